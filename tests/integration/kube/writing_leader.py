"""A process that leads and writes as often as it can, for `test_lease` to stop in the midst of it.

python writing_leader.py <kubeconfig> <namespace>
"""

import asyncio
import sys

from parley.api.resources import LEASES
from parley.kube.client import OutcomeUnknown
from parley.kube.fencing import LeasedClient
from parley.kube.http import HttpClient
from parley.kube.lease import LeaseElector, LeaseLost, LeaseTimes

TIMES = LeaseTimes.lasting(9)


async def main(kubeconfig: str, namespace: str) -> None:
    """Lead until the lease is lost. Prints "leading" when the first write is done, and then why it ended."""
    async with HttpClient.from_kubeconfig(kubeconfig) as client:
        elector = LeaseElector(client, namespace, "leader", "writer", TIMES)
        writer = LeasedClient(client.fenced(elector.held), elector)

        async def lead() -> None:
            number = 0
            while True:
                labels = {"metadata": {"labels": {"written-by": f"writer-{number}"}}}
                try:
                    await writer.patch(LEASES, "target", labels, namespace)
                except OutcomeUnknown:
                    continue  # the connection did not outlive the stop
                if number == 0:
                    print("leading", flush=True)
                number += 1

        try:
            await elector.run(lead)
        except LeaseLost as error:
            print(error, flush=True)
        finally:
            await writer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
