"""The edits that a claim adds to its containers: variables, device nodes, mounts, hooks.

The values are validated when they are made, because the container runtime refuses a whole CDI file for one bad
value, and then no container of the claim starts. `cdi` writes the files.

Source of the fields: Container Device Interface specification, version 0.6.0.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from parley.api.meta import Model

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise ValueError("use an absolute path, such as /dev/fuse")
    return path


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("use letters, digits and '_', with no digit first, for the variable's name")
    return name


def _without_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("leave out the zero byte: a process cannot be given it")
    return text


Path = Annotated[str, AfterValidator(_absolute)]
Text = Annotated[str, AfterValidator(_without_zero)]
Variables = Mapping[Annotated[str, AfterValidator(_variable)], Text]
Id = Annotated[int, Field(ge=0, lt=2**32)]


class _Edit(Model):
    """Its errors are logged without the values: variables may be secrets."""

    model_config = ConfigDict(hide_input_in_errors=True)


class DeviceNode(_Edit):
    """A device node of the host. `path` is its name in the container, and on the host if `host_path` is left out.

    `permissions` are those of the container's device cgroup: of r, w and m; all if left out.
    """

    path: Path
    host_path: Path | None = None
    permissions: Annotated[str, Field(pattern="^[rwm]{1,3}$")] | None = None
    uid: Id | None = None
    gid: Id | None = None


class Mount(_Edit):
    """A file or folder of the host. `options` as in mount(8); a bind mount needs `bind` or `rbind`."""

    host_path: Path
    container_path: Path
    options: tuple[Text, ...] = ("rbind", "nosuid", "nodev")
    type: Text | None = None


class ContainerHook(_Edit):
    """A program of the host that the container runtime runs (OCI runtime specification, hooks).

    `args` are all arguments, its own name first; `timeout` is in seconds.
    """

    hook_name: Literal["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
    path: Path
    args: tuple[Text, ...] = ()
    env: Variables = Field(default_factory=dict)
    timeout: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class Edits(_Edit):
    """The edits of one claim's containers."""

    env: Variables = Field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[ContainerHook, ...] = ()

    def cdi(self) -> dict[str, Any]:
        """The edits as `containerEdits` of a CDI specification, without empty fields."""
        edits: dict[str, Any] = {}
        if self.env:
            edits["env"] = _variables(self.env)
        if self.device_nodes:
            edits["deviceNodes"] = [_filled(node) for node in self.device_nodes]
        if self.mounts:
            edits["mounts"] = [_filled(mount) for mount in self.mounts]
        if self.hooks:
            edits["hooks"] = [_hook(hook) for hook in self.hooks]
        return edits


def _variables(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def _filled(model: _Edit) -> dict[str, Any]:
    fields = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: value for name, value in fields.items() if value != []}


def _hook(hook: ContainerHook) -> dict[str, Any]:
    fields = {**_filled(hook), "env": _variables(hook.env)}
    return {name: value for name, value in fields.items() if value != []}
