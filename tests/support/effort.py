"""What a call costs."""

import sys
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


def calls(call: Callable[[], object]) -> int:
    """How many functions are called for it."""
    count = 0

    def called(_frame: object, event: str, _of: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count
