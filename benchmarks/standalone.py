"""The tokens driver by another name, in a process of its own: `python -m benchmarks.standalone KUBECONFIG SOCKET`.

The controller serves the tokens driver itself, so that the one outside needs a name that the controller does
not know. The unix socket accepts connections once the driver answers.
"""

import asyncio
import signal
import sys

from parley.drivers.tokens import TokensDriver
from parley.kube.http import HttpClient
from parley.sdk.standalone import StandaloneDriver


class Outside(TokensDriver):
    """Counted pools, judged and handed out through API objects."""

    name = "outside.bench.parley.dev"


async def _serve(kubeconfig: str, socket: str) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    async with HttpClient.from_kubeconfig(kubeconfig) as client, asyncio.TaskGroup() as tasks:
        driver = StandaloneDriver(client, Outside())
        tasks.create_task(driver.run())
        await driver.ready.wait()
        await asyncio.start_unix_server(lambda _, writer: writer.close(), socket)
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_serve(*sys.argv[1:]))
    except asyncio.CancelledError:
        pass
