"""Explains why a server gave no answer, in plain words instead of a library's. Pure."""

import os
import ssl

import aiohttp


def words(error: BaseException, seconds: float) -> str:
    """The explanation of an exception from a request with a time limit of so many seconds."""
    if isinstance(error, TimeoutError):
        return f"nothing came within {seconds:g} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host} is not known here"
    cause = _cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({cause.verify_message})"
    if isinstance(cause, ssl.SSLError):
        return "it does not speak TLS as expected: https is wrong, or the client's certificate is refused"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno).lower()
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the connection was closed"
    return str(error) or type(error).__name__


def _cause(error: BaseException) -> BaseException:
    """The exception that aiohttp wrapped."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error
