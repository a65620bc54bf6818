"""What a call costs."""

import time
import tracemalloc
from collections.abc import Callable


def cpu_seconds(call: Callable[[], object]) -> float:
    """Of the processor's time, the least of three calls: garbage that others left is collected in some of them."""

    def once() -> float:
        started = time.process_time()
        call()
        return time.process_time() - started

    return min(once() for _ in range(3))


def peak_bytes(call: Callable[[], object]) -> int:
    """Of memory that the call takes at a time, of what it returns, too."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
