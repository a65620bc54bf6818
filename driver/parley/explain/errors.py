"""Why a question can't be answered: exceptions whose message is for the user and names a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

from parley.kube.client import ApiError, Forbidden, OutcomeUnknown, Unauthorized
from parley.kube.credentials import NoConfiguration


class Unanswerable(Exception):
    """Raised when a question has no answer; the message is what a user reads."""


class NothingToExplain(Unanswerable):
    """Raised when there is no such pod, or none in which Parley has a part."""


@contextmanager
def readable_errors() -> Iterator[None]:
    """Raise Unanswerable in place of what a client raises within."""
    try:
        yield
    except NoConfiguration as error:
        raise Unanswerable(str(error)) from error
    except Unauthorized as error:
        raise Unanswerable(
            f"the API server does not know you ({error.message}): log in again, or name another user's kubeconfig "
            "with --kubeconfig or --context"
        ) from error
    except Forbidden as error:
        raise Unanswerable(f"{error.message}: ask an administrator for that right") from error
    except ApiError as error:
        raise Unanswerable(f"the API server refused: {error.message}") from error
    except OutcomeUnknown as error:
        raise Unanswerable(f"{error}: see whether the API server runs and can be reached") from error
