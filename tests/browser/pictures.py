"""`python -m tests.browser.pictures`: takes the pictures in docs/images anew, of a cluster that never changes."""

import asyncio
import sys
from datetime import datetime
from pathlib import Path

from tests.browser import demo
from tests.browser.devtools import browser
from tests.unit.scheduler.conftest import World

from parley.cli import logs
from parley.cli.endpoints import served
from parley.kube.memory import MemoryServer
from parley.simulate.virtual_time import run
from parley.web.server import application
from parley.web.snapshots import Snapshots
from parley_devcluster import debian

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PICTURES = {
    "web-pods.png": ("/", "light", (1120, 760)),
    "web-pod.png": (f"/pods/default/{demo.TRAINER}", "light", (1120, 1000)),
    "web-pod-dark.png": ("/pods/default/archive", "dark", (1120, 860)),
}
"""Which page, in which colours, and how large."""


async def _played() -> tuple[MemoryServer, datetime]:
    """The cluster's objects, and when it is."""
    world = World()
    world.start_kubernetes()
    await demo.play(world)
    await world.stop()
    return world.server, world.clock()


async def _take(server: MemoryServer, now: datetime) -> None:
    snapshots = Snapshots(server.client(), "default", clock=lambda: now)
    async with (
        served(application(snapshots), 0, "127.0.0.1") as port,
        browser(debian.BROWSER["chromium"]) as program,
    ):
        for name, (path, scheme, size) in PICTURES.items():
            async with program.page(scheme=scheme, size=size) as page:
                await page.open(f"http://127.0.0.1:{port}{path}")
                await page.until("document.getElementById('live').textContent === 'live'")
                (IMAGES / name).write_bytes(await page.picture())
    await snapshots.close()


def main() -> int:
    """Returns the exit code."""
    logs.silence()
    if missing := debian.missing(packages=debian.BROWSER):
        print(debian.absence(missing, who_needs=debian.TESTS), file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    asyncio.run(_take(*run(_played())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
