"""Runs a Python module and samples where its CPU time goes: `python -m benchmarks.sampled FILE MODULE ARGUMENT...`

A timer of the process's CPU time interrupts it 500 times a second, and the stack is counted then: unlike a
tracing profiler this costs next to nothing, and does not make small functions look expensive. What is spent in
C counts for the Python function that called it.
"""

import runpy
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

_INTERVAL = 0.002
_ENTRIES = 60


class Samples:
    """Counts of functions: `own` where the process was, `within` that and everything that had called it."""

    def __init__(self) -> None:
        self.taken = 0
        self.own: Counter[CodeType] = Counter()
        self.within: Counter[CodeType] = Counter()

    def take(self, _: int, frame: FrameType | None) -> None:
        """A handler for the timer's signal."""
        codes = list(callers(frame))
        if codes:
            self.taken += 1
            self.own[codes[0]] += 1
            self.within.update(set(codes))

    def report(self) -> str:
        """Two tables, in percent of the samples."""
        tables = (("own time", self.own), ("with what it calls", self.within))
        return "\n".join(line for title, counts in tables for line in self._table(title, counts))

    def _table(self, title: str, counts: Counter[CodeType]) -> Iterator[str]:
        yield f"{title} ({self.taken} samples of {_INTERVAL * 1000:g} ms CPU)"
        for code, count in counts.most_common(_ENTRIES):
            place = "/".join(Path(code.co_filename).parts[-3:])
            yield f"{100 * count / self.taken:6.1f} %  {code.co_qualname}  {place}:{code.co_firstlineno}"


@contextmanager
def sampling(take: Callable[[int, FrameType | None], None], interval: float) -> Iterator[None]:
    """Inside, `take` is called with the stack whenever the process has used so many seconds of CPU time."""
    signal.signal(signal.SIGPROF, take)
    signal.setitimer(signal.ITIMER_PROF, interval, interval)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def callers(frame: FrameType | None) -> Iterator[CodeType]:
    """The code of each function of the stack, the innermost first."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def main() -> None:
    """Run the module as if it were the program, and write the report however it ends."""
    report, module, *arguments = sys.argv[1:]
    sys.argv = [module, *arguments]
    samples = Samples()
    try:
        with sampling(samples.take, _INTERVAL):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        Path(report).write_text(samples.report() + "\n")


if __name__ == "__main__":
    main()
