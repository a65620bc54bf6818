"""Finds faults in a CDI specification for which a container runtime would refuse it. Changes nothing.

Our own check, of the rules that the CDI specification 0.6.0 states and that its reference implementation, which
containerd uses, enforces when it reads a file: unknown fields are refused, too. The JSON schema that the project
publishes does not serve: it knows types and required fields only, takes relative paths, empty devices, hooks of no
known name and two devices of one name, and refuses 5 of the 18 faults that our tests have.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_VERSIONS: Final = ("0.3.0", "0.4.0", "0.5.0", "0.6.0")
_WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[^=]+=.*", re.DOTALL)
_HOOKS: Final = frozenset(
    {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
)

Fields = Mapping[str, tuple[type, bool]]
"""Each field's type, and whether it is required."""

_SPECIFICATION: Final[Fields] = {
    "cdiVersion": (str, True),
    "kind": (str, True),
    "devices": (list, True),
    "annotations": (dict, False),
    "containerEdits": (dict, False),
}
_DEVICE: Final[Fields] = {"name": (str, True), "containerEdits": (dict, True), "annotations": (dict, False)}
_EDITS: Final[Fields] = {
    "env": (list, False),
    "deviceNodes": (list, False),
    "mounts": (list, False),
    "hooks": (list, False),
}
_PARTS: Final[Mapping[str, Fields]] = {
    "deviceNodes": {
        "path": (str, True),
        "hostPath": (str, False),
        "type": (str, False),
        "major": (int, False),
        "minor": (int, False),
        "fileMode": (int, False),
        "permissions": (str, False),
        "uid": (int, False),
        "gid": (int, False),
    },
    "mounts": {
        "hostPath": (str, True),
        "containerPath": (str, True),
        "options": (list, False),
        "type": (str, False),
    },
    "hooks": {
        "hookName": (str, True),
        "path": (str, True),
        "args": (list, False),
        "env": (list, False),
        "timeout": (int, False),
    },
}


def faults(specification: Any) -> tuple[str, ...]:
    """One sentence for each fault, with the field; none if the runtime accepts the specification."""
    return tuple(_specification(specification))


def _specification(content: Any) -> Iterator[str]:
    yield from _fields(content, _SPECIFICATION, "the file")
    if not isinstance(content, dict):
        return
    if content.get("cdiVersion") not in _VERSIONS:
        yield f"cdiVersion={content.get('cdiVersion')!r}: is not one of {', '.join(_VERSIONS)}"
    vendor, _, class_ = str(content.get("kind", "")).partition("/")
    if not (_WORD.fullmatch(vendor) and _WORD.fullmatch(class_)):
        yield f"kind={content.get('kind')!r}: is not vendor/class"
    devices = _list(content, "devices")
    if not devices:
        yield "devices: is empty"
    names = [device.get("name") for device in devices if isinstance(device, dict)]
    if len(set(names)) < len(names):
        yield "devices: two have the same name"
    for number, device in enumerate(devices):
        yield from _device(device, f"devices[{number}]")


def _device(device: Any, where: str) -> Iterator[str]:
    yield from _fields(device, _DEVICE, where)
    if not isinstance(device, dict):
        return
    if not _NAME.fullmatch(str(device.get("name", ""))):
        yield f"{where}.name={device.get('name')!r}: use letters, digits, '_', '-', '.' and ':'"
    edits = device.get("containerEdits")
    if not any(edits.values()) if isinstance(edits, dict) else True:
        yield f"{where}.containerEdits: is empty"
    elif isinstance(edits, dict):
        yield from _edits(edits, f"{where}.containerEdits")


def _edits(edits: dict[str, Any], where: str) -> Iterator[str]:
    yield from _fields(edits, _EDITS, where)
    yield from _env(edits, where)
    for part, fields in _PARTS.items():
        for number, item in enumerate(_list(edits, part)):
            place = f"{where}.{part}[{number}]"
            yield from _fields(item, fields, place)
            if isinstance(item, dict):
                yield from _item(part, item, place)


def _item(part: str, item: dict[str, Any], where: str) -> Iterator[str]:
    for field in ("path", "hostPath", "containerPath"):
        if field in item and not str(item[field]).startswith("/"):
            yield f"{where}.{field}={item[field]!r}: is not an absolute path"
    if part == "hooks":
        yield from _env(item, where)
        if item.get("hookName") not in _HOOKS:
            yield f"{where}.hookName={item.get('hookName')!r}: is not one of {', '.join(sorted(_HOOKS))}"
    if part == "deviceNodes" and str(item.get("permissions", "")).strip("rwm"):
        yield f"{where}.permissions={item['permissions']!r}: use r, w and m"


def _env(content: dict[str, Any], where: str) -> Iterator[str]:
    for number, variable in enumerate(_list(content, "env")):
        if not (isinstance(variable, str) and _VARIABLE.fullmatch(variable)):
            yield f"{where}.env[{number}]={variable!r}: is not NAME=value"


def _fields(content: Any, fields: Fields, where: str) -> Iterator[str]:
    if not isinstance(content, dict):
        yield f"{where}={content!r}: is not an object"
        return
    for name in content.keys() - fields.keys():
        yield f"{where}: {name} is not a field"
    for name, (kind, required) in fields.items():
        if name in content and not isinstance(content[name], kind):
            yield f"{where}.{name}={content[name]!r}: is not of type {kind.__name__}"
        if required and not content.get(name):
            yield f"{where}: {name} is missing"


def _list(content: dict[str, Any], name: str) -> list[Any]:
    found = content.get(name)
    return found if isinstance(found, list) else []
