"""docker's commands in the docs, as their reader types them, in an engine of their own.

There is no registry that the base could come from: it is given to the engine under the name that deploy/Dockerfile
has. What is built uses this machine's network and package index.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.cluster.registry import Registry
from tests.support.pages import File, steps, take
from tests.support.shell import typed

from parley_devcluster import debian_image, docker, parley_image
from parley_devcluster.engine import Engine

CHECKOUT = Path(__file__).parents[3]
INSTALL = (CHECKOUT / "docs" / "install.md").read_text()
TUTORIAL = CHECKOUT / "docs" / "tutorials" / "first-driver.md"
REGISTRY = "registry.example.com"


@asynccontextmanager
async def without_tls() -> AsyncIterator[str]:
    """A proxy to servers of HTTP alone: engines try HTTPS first, and give up where nobody answers."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


@contextmanager
def serving(http: str, https: str) -> Iterator[Engine]:
    """With these proxies. Skips where docker can't run; under CI that is a failure."""
    environment = {**os.environ, "HTTP_PROXY": f"http://{http}", "HTTPS_PROXY": f"http://{https}"}
    try:
        with (
            parley_image.package_index() as index,
            docker.serving(f"--insecure-registry={REGISTRY}", build=index, environment=environment) as engine,
        ):
            yield engine
    except docker.NoDocker as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


def give(engine: Engine, base: str, donor: Engine, archive: Path) -> None:
    """The donor's image, as what deploy/Dockerfile begins with."""
    (name,) = re.findall(r"(?m)^ARG BASE=(\S+)$", (CHECKOUT / "deploy" / "Dockerfile").read_text())
    donor.run("save", "--output", str(archive), base)
    engine.run("load", "--input", str(archive))
    engine.run("tag", base, name)


def build_and_push(donor: Engine, folder: Path, http: str, https: str) -> str:
    """All of the docs' commands, in order. Returns what a driver's image says."""
    base = debian_image.ensure(donor, debian_image.PYTHON)
    with serving(http, https) as engine:
        environment = {**engine.environment(), "PATH": f"{Path(engine.program).parent}:{os.environ['PATH']}"}
        give(engine, base, donor, folder / "base.tar")
        typed("\n".join(re.findall(r"(?m)^docker .+$", INSTALL)), CHECKOUT, environment)
        for step in steps(TUTORIAL):
            if isinstance(step, File):
                take(step, folder)
            elif step.where == "With a container engine":
                typed(step.line, folder, environment)
        ask = ("python3", "-c", "import slots; print(slots.Slots.name)")
        return engine.run("run", "--rm", "--read-only", "--network=none", f"{REGISTRY}/slots:1", *ask).strip()


async def test_images_are_built_and_pushed_as_the_docs_say(container_engine: Engine, tmp_path: Path) -> None:
    registry = Registry()
    async with registry.serving() as http, without_tls() as https:
        said = await asyncio.to_thread(build_and_push, container_engine, tmp_path, http, https)

    assert said == "slots.example.com"
    (built,) = re.findall(r"(?m)^docker push registry\.example\.com/(\S+)$", INSTALL)
    parley, slots = (configuration_of(registry, name) for name in (built, "slots:1"))
    assert (parley["Cmd"], parley["User"]) == (["parley", "controller"], "65532:65532")
    assert slots["Cmd"] == ["parley", "driver", "run", "slots:Slots"]


def configuration_of(registry: Registry, name: str) -> dict[str, object]:
    manifest = json.loads(registry.manifests[name])
    if "manifests" in manifest:  # an index, of buildx: the image, and how it was built
        manifest = json.loads(registry.manifests[f"{name.partition(':')[0]}:{manifest['manifests'][0]['digest']}"])
    assert {layer["digest"] for layer in manifest["layers"]} <= registry.blobs.keys()
    found: dict[str, object] = json.loads(registry.blobs[manifest["config"]["digest"]])["config"]
    return found
