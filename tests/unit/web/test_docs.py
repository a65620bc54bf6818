"""docs/web.md names options, addresses, fields and pictures that exist."""

import re
from pathlib import Path

import orjson
import yaml
from tests.unit.scheduler.conftest import World
from tests.unit.web.conftest import Play, at, one_runs_and_one_waits, snapshots
from typer.main import get_command

from parley.cli.main import app
from parley.web.pages import data

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "web.md").read_text()


def options(command: str) -> set[str]:
    found = get_command(app).get_command(None, command)  # type: ignore[attr-defined]
    return {option for parameter in found.params for option in parameter.opts}


def test_options_exist() -> None:
    named = set(re.findall(r"(?<![\w-])(--web-[a-z]+)", PAGE))

    assert named == {"--web-address", "--web-host"}
    assert named <= options("controller")
    assert {"--context", "--kubeconfig", "-n", "--web-host", "--address"} <= options("web")


def test_files_exist() -> None:
    named = re.findall(r"\]\(([^)#]+)", PAGE)

    assert len([name for name in named if name.endswith(".png")]) == 3
    assert [name for name in named if not (DOCS / name).exists()] == []


def test_the_example_is_yaml() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)

    assert [container["name"] for container in yaml.safe_load(block)["containers"]] == ["controller", "login"]


def test_every_field_is_on_the_page(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_runs_and_one_waits(world)
        made = snapshots(world)
        for path, kinds in (
            ("/", ("pods",)),
            ("/pods/default/wants", ("timeline",)),
            ("/nodes/a", ("nodes",)),
            ("/classes/gpu", ()),
        ):
            status, content = await data(made, at(path))
            found = orjson.loads(content)
            assert status == 200
            assert [name for name in found if f"`{name}`" not in PAGE] == []
            for kind in kinds:
                assert [name for name in found[kind][0] if f"`{name}`" not in PAGE] == []
        (node,) = orjson.loads((await data(made, at("/nodes/a")))[1])["nodes"]
        assert [name for name in node["devices"][0] if f"`{name}`" not in PAGE] == []
        await made.close()

    play(scenario)
