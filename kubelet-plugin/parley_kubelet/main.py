"""The start of the program `parley-kubelet`. What it does is in `program`; here is what comes before its imports.

Exit status: 0 after SIGTERM or SIGINT, 1 if it cannot start or go on, 2 for wrong options; of `doctor` 1 if
something has to be mended.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    with _absent("rich"):  # structlog loads it for colours; log lines here are JSON, and it takes 3 MB
        import structlog  # noqa: F401
    from parley_kubelet.program import run

    return run(sys.argv[1:] if arguments is None else arguments)


@contextmanager
def _absent(module: str) -> Iterator[None]:
    """Inside, that optional module cannot be imported; those of drivers may need it later."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # so that importing it fails
    try:
        yield
    finally:
        del sys.modules[module]
