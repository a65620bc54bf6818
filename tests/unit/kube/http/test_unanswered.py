"""Why a server gave no answer, in plain words: no library's sentence reaches a user."""

import errno
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from parley.kube.unanswered import words

KEY = ConnectionKey("api.example.com", 6443, True, True, None, None, None)


def certificate() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "certificate has expired"
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "nothing came within 10 s"),
        (aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "x")), "the name api.example.com is not known here"),
        (aiohttp.ClientConnectorError(KEY, ConnectionRefusedError(111, "x")), "connection refused"),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ENETUNREACH, "x")), "network is unreachable"),
        (
            aiohttp.ClientConnectorCertificateError(KEY, certificate()),
            "its certificate is not trusted (certificate has expired)",
        ),
        (
            aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "wrong version number")),
            "it does not speak TLS as expected: https is wrong, or the client's certificate is refused",
        ),
        (aiohttp.ServerDisconnectedError(), "the connection was closed"),
        (ConnectionResetError(errno.ECONNRESET, "x"), "connection reset by peer"),
    ],
)
def test_words(error: Exception, said: str) -> None:
    assert words(error, 10.0) == said
