"""What a call costs."""

import time
from collections.abc import Callable


def cpu_seconds(call: Callable[[], object]) -> float:
    """Of the processor's time, the least of three calls: garbage that others left is collected in some of them."""

    def once() -> float:
        started = time.process_time()
        call()
        return time.process_time() - started

    return min(once() for _ in range(3))
