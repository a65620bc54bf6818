"""Planted bugs of a standalone driver's process."""

from collections.abc import Mapping

from tests.soak.planted.bug import Bug, no_result

from parley.sdk.standalone import runner
from parley.sdk.standalone.runner import StandaloneDriver

OF_STANDALONE: Mapping[str, Bug] = {
    "a standalone driver counts nothing of an earlier copy": Bug(
        ((runner, "restore", no_result),), ("handed out twice", "books differ", "left over"), standalone=True
    ),
    "a standalone driver wakes nobody when something is free": Bug(
        ((StandaloneDriver, "_changed", no_result),), ("waits in vain",), standalone=True
    ),
}
