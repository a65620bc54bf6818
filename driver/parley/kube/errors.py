"""The exceptions of a client of an API server.

ApiError                  the server answered, and refused
  BadRequest (400)  Unauthorized (401)  Forbidden (403)  NotFound (404)
  AlreadyExists, Conflict (409)   Expired (410)   Invalid (422)
    TooLarge (of etcd, 500, or 413), a kind of Invalid
  TooManyRequests (429)   ServerError (500 and above)
OutcomeUnknown            no answer: a write may or may not have happened, read before acting on it
  Garbled                 an answer that does not come from an API server
  Unreachable             a server over HTTP did not answer: no connection, a lost one, or a time-out
    Silent                a watch got nothing for minutes, not even a bookmark
"""

import re

_NO_RIGHT = re.compile(r'User ".*" cannot \w+ resource ')


class ApiError(Exception):
    """Raised when the API server refused a request.

    `status` is the HTTP code, `reason` the API's code ("NotFound"), `message` the server's sentence,
    `retry_after` the seconds that the server asked to wait, if it did.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class BadRequest(ApiError):
    """Raised when the request itself is malformed (400)."""


class Unauthorized(ApiError):
    """Raised when the server does not know who is asking (401)."""


class Forbidden(ApiError):
    """Raised when the account lacks the permission, or an admission policy refused (403)."""


class NotFound(ApiError):
    """Raised when the object or its kind does not exist (404)."""


class AlreadyExists(ApiError):
    """Raised when an object of that name is there already (409, reason AlreadyExists)."""


class Conflict(ApiError):
    """Raised when the object changed since the resourceVersion or UID that was sent, or another field
    manager owns a field (409)."""


class Expired(ApiError):
    """Raised when a watch or list continues from a resourceVersion that the server no longer has (410)."""


class Invalid(ApiError):
    """Raised when the object does not pass validation (422); the message names the field."""


class TooLarge(Invalid):
    """Raised when the object would exceed the size limit: nothing was written. Any account that may write an
    object can fill it up, so that no other can add to it."""


class TooManyRequests(ApiError):
    """Raised when the server throttles the client (429)."""


class ServerError(ApiError):
    """Raised when the server failed (500 and above)."""


REFUSALS = (BadRequest, Forbidden, Invalid)
"""Errors of requests that the server, a policy or a webhook (400 by default) refuses each time."""


def is_right_lacking(error: ApiError) -> bool:
    """Whether the API server's authorizer refused the request, which one that has just started does until it has
    read all roles. Admission, which also answers 403, refuses only the one object."""
    return isinstance(error, Forbidden) and _NO_RIGHT.search(error.message) is not None


def is_of_another_uid(error: ApiError) -> bool:
    """Whether the API server refused a patch because the object of that name has another UID than the patch: it
    was deleted and created again. If there is no such object, that is a Conflict."""
    return isinstance(error, Invalid) and "metadata.uid: Invalid value" in error.message


class OutcomeUnknown(Exception):
    """Raised when no answer came (connection lost, time-out): the write may have happened or may yet happen."""


class Garbled(OutcomeUnknown):
    """Raised when an answer can't be decoded as the requested type."""


class PageTooLong(OutcomeUnknown):
    """Raised when a page of a list is longer than a transport reads: fewer objects have to be asked for."""


class Unreachable(OutcomeUnknown):
    """Raised when a server over HTTP gave no answer: `server` is its address, `why` the cause in plain words."""

    def __init__(self, call: str, server: str, why: str) -> None:
        super().__init__(f"{call}: no answer: {why}")
        self.server = server
        self.why = why


class Silent(Unreachable):
    """Raised when a watch is open and gets nothing, not even a bookmark. An API server is silent until its
    resourceVersion reaches that of the watch, which may be never after a restore of etcd: list again."""
