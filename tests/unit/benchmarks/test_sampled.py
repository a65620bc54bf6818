"""Counting stacks: own time is the innermost function's, and a recursive function counts once."""

import sys

from benchmarks.sampled import Samples


def outer(samples: Samples, depth: int) -> None:
    if depth:
        outer(samples, depth - 1)
    else:
        inner(samples)


def inner(samples: Samples) -> None:
    samples.take(0, sys._getframe())


def test_a_sample_counts_for_the_innermost_function_and_once_for_each_around_it() -> None:
    samples = Samples()
    outer(samples, depth=3)
    assert samples.own == {inner.__code__: 1}
    assert samples.within[outer.__code__] == 1


def test_the_report_tells_shares_and_places() -> None:
    samples = Samples()
    outer(samples, depth=0)
    own, within = samples.report().split("with what it calls")
    assert own.startswith("own time (1 samples of 2 ms CPU)\n 100.0 %  inner  unit/benchmarks/test_sampled.py:")
    assert " 100.0 %  outer  unit/benchmarks/test_sampled.py:" in within
