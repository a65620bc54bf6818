"""Explains to users why a program can't work with an API server: a sentence that names object, cause and remedy,
and the program's exit status."""

from collections.abc import Iterator
from contextlib import contextmanager

from parley.api.exits import Exit
from parley.kube.credentials import NoConfiguration
from parley.kube.errors import ApiError, Forbidden, Garbled, OutcomeUnknown, Unauthorized, Unreachable


class Unanswerable(Exception):
    """Raised when a program can't answer its user; the message is for that user."""

    status = Exit.FAILED

    def __init__(self, message: str, status: Exit | None = None) -> None:
        super().__init__(message)
        if status is not None:
            self.status = status


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turns the client's exceptions within the block into Unanswerable."""
    try:
        yield
    except NoConfiguration as error:
        raise Unanswerable(str(error), Exit.NO_ACCESS) from error
    except Unauthorized as error:
        raise Unanswerable(
            f"the API server does not know you ({_words(error)}): log in again, or name another user's kubeconfig "
            "with --kubeconfig or --context",
            Exit.FORBIDDEN,
        ) from error
    except Forbidden as error:
        raise Unanswerable(f"{_words(error)}: ask an administrator for that right", Exit.FORBIDDEN) from error
    except ApiError as error:
        raise Unanswerable(f"the API server refused: {_words(error)}") from error
    except Unreachable as error:
        raise Unanswerable(
            f"{error.server} does not answer: {error.why}: check whether the API server runs and can be "
            "reached, or choose another one with --context or --kubeconfig",
            Exit.NO_ANSWER,
        ) from error
    except Garbled as error:
        raise Unanswerable(
            "what answers is not a Kubernetes API server: check whether the kubeconfig has the right address, or "
            "choose another one with --context or --kubeconfig",
            Exit.NO_ANSWER,
        ) from error
    except OutcomeUnknown as error:
        raise Unanswerable(
            f"{error}: check whether the API server runs and can be reached", Exit.NO_ANSWER
        ) from error


def _words(error: ApiError) -> str:
    """The server's message; not the source of a page for browsers."""
    page = error.message.startswith("<")
    return f"{error.status} and a page for browsers, as from a proxy" if page else error.message
