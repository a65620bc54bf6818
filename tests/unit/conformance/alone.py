"""The driver of seats as a process of its own: `python -m tests.unit.conformance.alone [CHECK TO FAIL]`."""

import asyncio
import sys

from tests.unit.conformance.seats import Seats

from parley.kube.http import HttpClient


async def main(broken: str) -> None:
    async with HttpClient.from_kubeconfig() as client:
        driver = Seats(client, broken)
        await driver.start()
        await driver.ended()


if __name__ == "__main__":
    asyncio.run(main("".join(sys.argv[1:])))
