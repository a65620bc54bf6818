"""Standard output of the programs: where it can't be written they end with one sentence, and without a word where
its reader has gone, as in `parley get uses | head`.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import NoReturn

from parley.api.exits import Exit


@contextmanager
def guarded() -> Iterator[None]:
    """Within, what can't be printed ends the program: raises SystemExit."""
    plain = sys.stdout
    if plain is not sys.__stdout__ or not isinstance(plain, TextIOWrapper):  # guarded already, a test's, or closed
        yield
        return
    sys.stdout = _Guarded(
        plain.buffer,
        plain.encoding,
        plain.errors,
        line_buffering=plain.line_buffering,
        write_through=plain.write_through,
    )
    try:
        yield
    finally:
        sys.stdout.flush()


class _Guarded(TextIOWrapper):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._end(error)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> NoReturn:
        # What is left in the buffer is written once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        if error.errno != errno.EPIPE:
            why = (error.strerror or str(error)).lower()
            with suppress(OSError):  # stderr may be the same file
                print(f"error: stdout can't be written: {why}: make room, or print elsewhere", file=sys.stderr)
        raise SystemExit(Exit.FAILED)
