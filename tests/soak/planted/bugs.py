"""All planted bugs: each breaks one rule of the real code while it is planted, and the soak must find it.

A bug is planted in the process that calls; `parley`'s own modules are as before after the block.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tests.soak.planted.bindings import OF_BINDINGS
from tests.soak.planted.bug import Bug
from tests.soak.planted.decisions import OF_DECISIONS
from tests.soak.planted.nodes import OF_NODES
from tests.soak.planted.preemption import OF_PREEMPTION
from tests.soak.planted.records import OF_RECORDS
from tests.soak.planted.release import OF_RELEASE
from tests.soak.planted.reservations import OF_RESERVATIONS
from tests.soak.planted.restarts import OF_RESTARTS
from tests.soak.planted.standalone import OF_STANDALONE
from tests.soak.planted.tenant import OF_TENANT
from tests.soak.planted.wakeups import OF_WAKEUPS

BUGS: Mapping[str, Bug] = {
    **OF_DECISIONS,
    **OF_RESTARTS,
    **OF_RELEASE,
    **OF_RECORDS,
    **OF_WAKEUPS,
    **OF_BINDINGS,
    **OF_RESERVATIONS,
    **OF_TENANT,
    **OF_PREEMPTION,
    **OF_NODES,
    **OF_STANDALONE,
}


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """Plant the bug of that name within the block."""
    bug = BUGS[name]
    with ExitStack() as stack:
        for where, attribute, broken in bug.patches:
            stack.enter_context(patch.object(where, attribute, broken))
        yield bug
