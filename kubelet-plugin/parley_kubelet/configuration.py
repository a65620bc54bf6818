"""Reads and validates the configuration file: the devices of this node, and the settings of other drivers.

All faults are reported at once, each with the file, the field, its value and the remedy. What may be secret is
left out: values of drivers' settings and of containers' variables, and the text of a file that is not YAML.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from parley.api.quantity import parse

DEFAULT_DRIVER = "device.parley.dev"

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"(?=[a-z].{{0,62}}$){_LABEL.pattern}(\.{_LABEL.pattern})*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ConfigurationError(Exception):
    """Raised when the configuration file cannot be used; each line of the message is one fault."""


def label(text: str) -> str:
    """The text, if it can name a device. Raises ValueError with the remedy."""
    if not _LABEL.fullmatch(text):
        raise ValueError("use at most 63 of a-z, 0-9 and '-', with a letter or digit at both ends")
    return text


def driver_name(text: str) -> str:
    """The text, if it can name a driver. Raises ValueError with the remedy."""
    if not _SUBDOMAIN.fullmatch(text):
        raise ValueError(
            "use a lower-case DNS name of at most 63 characters that starts with a letter,"
            f" such as {DEFAULT_DRIVER}"
        )
    return text


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError("use letters, digits and '_', with no digit first, for the variable's name")
    return text


def _quantity(text: str) -> str:
    if parse(text) <= 0:
        raise ValueError("must be more than 0; leave the field out if it does not matter")
    return text


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("use an absolute path, such as /dev/fuse")
    return path


Label = Annotated[str, AfterValidator(label)]
DriverName = Annotated[str, AfterValidator(driver_name)]
Variable = Annotated[str, AfterValidator(_variable)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class _Strict(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid")


class HealthCheck(_Strict):
    """A program that exits with status 0 while the device is healthy. The environment has the device's name in
    PARLEY_DEVICE and its nodes in PARLEY_DEVICE_NODES. It is killed after `timeout_seconds`."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    interval_seconds: Annotated[float, Field(ge=1, le=3600)] = 10
    timeout_seconds: Annotated[float, Field(gt=0, le=20)] = 5


class DeviceEntry(_Strict):
    """One device by `name`, or one device per device node that `glob` matches."""

    name: Label | None = None
    glob: AbsolutePath | None = None
    model: Annotated[str, Field(min_length=1, max_length=64)]
    memory: Annotated[str, AfterValidator(_quantity)] | None = None
    slices: Annotated[int, Field(ge=1, le=256, strict=True)] = 1
    device_nodes: tuple[AbsolutePath, ...] = ()
    env: dict[Variable, str] = {}
    check: HealthCheck | None = None

    @model_validator(mode="after")
    def _name_or_glob(self) -> Self:
        if (self.name is None) == (self.glob is None):
            raise ValueError("give either name, for one device, or glob, for one device per match")
        if self.glob is not None and self.device_nodes:
            raise ValueError("leave out deviceNodes beside glob: each match is the device's node")
        return self


class Configuration(_Strict):
    """The whole file. `driver` is the device driver's name; if left out, that of --driver-name or the default
    name. `drivers` has the settings of drivers that are loaded with --driver, by their names."""

    driver: DriverName | None = None
    devices: tuple[DeviceEntry, ...] = ()
    drivers: dict[DriverName, dict[str, Any]] = {}

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        names = [entry.name for entry in self.devices if entry.name is not None]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"devices: two have the name {twice[0]!r}: rename one of them")
        return self


def load(path: Path) -> Configuration:
    """The checked content of the file. Raises ConfigurationError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}: give a file that can be read in --config") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ConfigurationError(f"{path}{where}: is not YAML: correct it") from None
    try:
        return Configuration.model_validate({} if content is None else content)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        raise ConfigurationError("\n".join(f"{path}: {_fault(fault)}" for fault in faults)) from None


M = TypeVar("M", bound=BaseModel)


def settings_of(configuration: Configuration, path: Path, driver: str, model: type[M]) -> M:
    """The driver's part of the file, or its defaults. Raises ConfigurationError."""
    try:
        return model.model_validate(configuration.drivers.get(driver, {}))
    except ValidationError as error:
        faults = [_fault({**fault, "loc": ("drivers", driver, *fault["loc"])}) for fault in error.errors()]
        raise ConfigurationError("\n".join(f"{path}: {fault}" for fault in faults)) from None


_REMEDIES = {
    "extra_forbidden": "is not a field of this file: correct its spelling or remove it",
    "string_type": "is not a text: put it in quotes",
    "int_type": "is not a whole number",
    "model_type": "is not a mapping of fields to values",
    "tuple_type": "is not a list",
    "dict_type": "is not a mapping of names to values",
}


def _fault(fault: ErrorDetails) -> str:
    field, value = _field(fault["loc"]), fault["input"]
    if fault["type"] == "missing":
        return f"{field} is missing: add it"
    message = _REMEDIES.get(fault["type"]) or str(fault["msg"]).removeprefix("Value error, ")
    if isinstance(value, BaseModel | dict) and fault["type"] == "value_error":
        return f"{field}: {message}" if field else message
    return f"{field}: {message}" if _may_be_secret(fault["loc"]) else f"{field or 'the file'}={value!r}: {message}"


def _may_be_secret(location: tuple[str | int, ...]) -> bool:
    """Whether the value there is of a driver's settings, or of a container's variable; names are not secret."""
    return location[-1:] != ("[key]",) and (location[:1] == ("drivers",) or "env" in location)


def _field(location: tuple[str | int, ...]) -> str:
    """The field's path for messages: devices[0].env.NAME."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "." in part:
            text += f"[{part!r}]"
        elif part != "[key]":
            text += f".{part}" if text else part
    return text
