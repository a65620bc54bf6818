"""The extender's TLS certificates, for a scheduler that runs elsewhere: it needs a client certificate that is
signed by `client_ca`. The files are checked in each handshake, so that renewed ones take effect at once.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Certificates:
    """PEM files: the extender's certificate and key, and the CA certificate for its schedulers."""

    certificate: Path
    key: Path
    client_ca: Path

    def _state(self) -> tuple[tuple[int, int], ...]:
        found = (path.stat() for path in (self.certificate, self.key, self.client_ca))
        return tuple((status.st_mtime_ns, status.st_ino) for status in found)

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context

    def context(self) -> ssl.SSLContext:
        """The server's context. Raises OSError (ssl.SSLError among them) if the files can't be used now."""
        known, current = self._state(), self._loaded()

        def renewed(
            connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
        ) -> None:
            nonlocal known, current
            try:
                if (state := self._state()) != known:
                    current, known = self._loaded(), state
                    log.info("certificates renewed", certificate=str(self.certificate))
            except OSError as error:
                log.error("certificates not renewed", certificate=str(self.certificate), error=str(error))
            connection.context = current

        first = self._loaded()
        first.sni_callback = renewed
        return first
