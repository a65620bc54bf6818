"""Why a question can't be answered: exceptions whose message is for the user and names a remedy."""

from parley.api.exits import Exit
from parley.kube.faults import Unanswerable, readable_errors

__all__ = ["NothingToExplain", "Unanswerable", "readable_errors"]


class NothingToExplain(Unanswerable):
    """Raised if the pod does not exist or has no Parley claims."""

    status = Exit.NOT_FOUND
