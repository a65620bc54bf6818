"""How programs import what they consist of, which takes most of the time of a short one."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Within, nobody looks for garbage, as modules stay; structlog goes without rich, which it would load for the
    colours of tracebacks."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _absent("rich"):
            import structlog  # noqa: F401
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def _absent(module: str) -> Iterator[None]:
    """Inside, that optional module cannot be imported; it may be needed later."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # so that importing it fails
    try:
        yield
    finally:
        del sys.modules[module]
