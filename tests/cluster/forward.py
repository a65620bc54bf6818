"""A program that stands in for kube-proxy: `forward.py HOST:PORT PORT COMMAND...`

What connects to the address is passed on to the port of the host that the command prints then; if it prints none,
the connection ends.
"""

import asyncio
import sys
from functools import partial


async def main(here: str, port: str, *command: str) -> None:
    """Until it is ended."""
    host, _, own_port = here.rpartition(":")
    server = await asyncio.start_server(partial(serve, int(port), command), host, int(own_port))
    await server.serve_forever()


async def serve(
    port: int, command: tuple[str, ...], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    asked = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    host = (await asked.communicate())[0].decode().strip()
    try:
        if not host:
            raise ConnectionRefusedError
        beyond_reader, beyond_writer = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pass_on(reader, beyond_writer), pass_on(beyond_reader, writer))


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
