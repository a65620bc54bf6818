"""A server with TLS, and certificates of an authority of its own."""

import ssl
from pathlib import Path

import orjson
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer


class TlsServer:
    """Demands a client certificate and answers with its common name, "anybody" if it may be left out.

    The connection is closed after each answer unless it is to be kept.
    """

    def __init__(
        self, authority: trustme.CA, demanded: ssl.VerifyMode = ssl.CERT_REQUIRED, *, keep: bool = False
    ) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        context.verify_mode = demanded
        authority.configure_trust(context)
        self._context = context
        self._keep = keep
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(application, scheme="https")

    async def start(self) -> str:
        await self._server.start_server(ssl=self._context)
        return str(self._server.make_url("")).rstrip("/")

    async def stop(self) -> None:
        await self._server.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = (request.transport.get_extra_info("peercert") or {}).get("subject", ())
        name = dict(pair for entry in subject for pair in entry).get("commonName", "anybody")
        answer = web.Response(body=orjson.dumps({"metadata": {"name": name}}))
        if not self._keep:
            answer.force_close()
        return answer


def write_certificate(folder: Path, authority: trustme.CA, name: str) -> None:
    pair = authority.issue_cert(f"{name}@parley.dev", common_name=name)
    pair.cert_chain_pems[0].write_to_path(folder / "client.crt")
    pair.private_key_pem.write_to_path(folder / "client.key")
