"""The reference pages of the docs site that are made from the program: API, commands, the SDK, that of node parts.

Each function returns one page's Markdown. What they read is `crds/`, the commands as typer holds them, and the
names that `parley.sdk` exports.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

import parley.sdk
from parley.cli.main import app

Schema = Mapping[str, Any]

LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "length at least {}",
    "maxLength": "length at most {}",
    "minItems": "entries: at least {}",
    "maxItems": "entries: at most {}",
    "maxProperties": "entries: at most {}",
}


def api(crds: Path) -> str:
    """One section for each kind in `crds`: names, columns, every field."""
    kinds = sorted(
        (yaml.safe_load(file.read_text())["spec"] for file in crds.glob("*.yaml")),
        key=lambda spec: spec["names"]["kind"],
    )
    sections = (line for spec in kinds for line in _kind(spec))
    return "\n".join(["# API", "", "The kinds of `parley.dev`, as in `crds/`.", "", *sections])


def _kind(spec: Schema) -> Iterator[str]:
    names, (version,) = spec["names"], spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"## {names['kind']}"
    yield ""
    yield schema.get("description", "")
    yield ""
    yield f"`{spec['group']}/{version['name']}`, {spec['scope'].lower()}, short name `{names['shortNames'][0]}`."
    columns = ", ".join(
        f"{column['name'].upper()} (`{column['jsonPath']}`)" for column in version["additionalPrinterColumns"]
    )
    yield f"Columns of `kubectl get`: {columns}."
    yield ""
    yield from ("| field | type | meaning |", "|---|---|---|")
    yield from _fields(schema, "")
    yield ""
    rules = [rule for rule in _rules(schema) if rule]
    if rules:
        yield "The API server also holds it to these rules:"
        yield ""
        yield from (f"- {rule}" for rule in dict.fromkeys(rules))
        yield ""


def _fields(schema: Schema, path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        here = f"{path}.{name}" if path else name
        required = ", required" if name in schema.get("required", ()) else ""
        yield f"| `{here}{_suffix(field)}` | {_type(field)}{required} | {_cell(_meaning(field))} |"
        yield from _fields(_inner(field), here + _suffix(field))


def _suffix(field: Schema) -> str:
    return "[]" if field.get("type") == "array" else ""


def _inner(field: Schema) -> Schema:
    inner = field.get("items", field)
    return inner if isinstance(inner, Mapping) else {}


def _type(field: Schema) -> str:
    if field.get("type") == "array":
        return f"list of {_inner(field).get('type', 'any')}"
    if isinstance(field.get("additionalProperties"), Mapping):
        return f"map of {field['additionalProperties'].get('type', 'any')}"
    return str(field.get("type", "any"))


def _meaning(field: Schema) -> str:
    sentences = [field.get("description") or _inner(field).get("description", "")]
    if "enum" in field:
        sentences.append("One of " + ", ".join(f"`{value}`" for value in field["enum"]) + ".")
    if "default" in field:
        sentences.append(f"Default: `{field['default']}`.")
    limits = [words.format(field[key]) for key, words in LIMITS.items() if key in field]
    if limits:
        sentences.append(", ".join(limits).capitalize() + ".")
    return " ".join(sentence for sentence in sentences if sentence)


def _rules(schema: Schema) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield rule.get("message", f"`{rule['rule']}`")
    for field in schema.get("properties", {}).values():
        yield from _rules(_inner(field))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def commands() -> str:
    """One section for each command of `parley`, with its arguments and options."""
    intro = "Every command with its options, as the program has them. `kubectl parley` has those that only read."
    return "\n".join(["# Commands", "", intro, "", *_commands(get_command(app), "parley")])


def _commands(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        context = command.context_class(command, info_name=name)
        for child in command.list_commands(context):
            yield from _commands(command.get_command(context, child), f"{name} {child}")
        return
    yield f"## {name}"
    yield ""
    yield from ((command.help or "").replace("\b", "").replace("\f", "").strip(), "")
    parameters = sorted(command.params, key=lambda parameter: parameter.param_type_name == "option")
    if parameters:
        yield from ("| argument or option | default | meaning |", "|---|---|---|")
        yield from map(_parameter, parameters)
        yield ""


def _parameter(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    written = ", ".join(f"`{name}`" for name in names)
    default = "required" if parameter.required else _default(parameter.default)
    return f"| {written} | {default} | {_cell(parameter.help or '')} |"


def _default(value: Any) -> str:
    """As one would write it on the command line; nothing for switches that are off and where there is none."""
    values = value if isinstance(value, list | tuple) else [value]
    shown = [getattr(one, "value", one) for one in values if one not in (None, False, "") and not callable(one)]
    return " ".join(f"`{one}`" for one in shown)


def sdk() -> str:
    """The page that mkdocstrings fills: each name that `parley.sdk` exports, and the test kit."""
    names = [f"::: parley.sdk.{name}" for name in ("Driver", *(n for n in parley.sdk.__all__ if n != "Driver"))]
    return "\n\n".join(
        [
            "# The SDK",
            "What the author of a driver in Python imports from `parley.sdk`. The tutorial is "
            "[the tokens driver](../tokens-driver.md); "
            "any other language speaks [the protocol](../driver-protocol.md).",
            *names,
            "## Test kit",
            "::: parley.sdk.testing",
            "",
        ]
    )


NODE_TEST_KIT = ("check_node_driver", "NodeScenario", "node_claim", "Kubelet")


def node_sdk() -> str:
    """The same for a driver's part on the node."""
    return "\n\n".join(
        [
            "# The SDK of node parts",
            "What the author of a driver's part on the node imports from `parley_kubelet`. "
            "[A driver's part on the node](../node-driver.md) says how to write, test and run one.",
            "::: parley_kubelet.hooks",
            "::: parley_kubelet.edits",
            "## Test kit of node parts",
            *(f"::: parley_kubelet.testing.{name}" for name in NODE_TEST_KIT),
            "",
        ]
    )
