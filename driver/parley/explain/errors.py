"""What has no answer although the cluster answers."""

from parley.api.exits import Exit
from parley.kube.faults import Unanswerable


class NothingToExplain(Unanswerable):
    """Raised when there is no such pod, or none in which Parley has a part."""

    status = Exit.NOT_FOUND
