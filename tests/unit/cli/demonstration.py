"""Runs `parley demo` as tests do."""

from typing import Any

import orjson
from typer.testing import CliRunner, Result

from parley.cli.main import app


def demo(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


def outcome(*arguments: object) -> dict[str, dict[str, Any]]:
    result = demo("-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    return {pod["name"]: pod for pod in orjson.loads(result.stdout)["items"]}
