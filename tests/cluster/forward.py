"""A program: passes connections to one address on to another. `forward.py HOST:PORT HOST:PORT`

It stands in for kube-proxy, so that pods reach the API server by the address of its Service.
"""

import asyncio
import sys


async def main(here: str, there: str) -> None:
    """Until it is ended."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond_reader, beyond_writer = await asyncio.open_connection(*address(there))
        await asyncio.gather(pass_on(reader, beyond_writer), pass_on(beyond_reader, writer))

    server = await asyncio.start_server(serve, *address(here))
    await server.serve_forever()


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # either side went away
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
