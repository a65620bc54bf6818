"""How often garbage is looked for in a process that plays tests, and in programs in Go that it starts."""

import gc
import os


def collect_seldom() -> None:
    """What was imported until now is no garbage, and a test makes little of it that needs a collector: looking for
    it took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def collect_seldom_in_go() -> None:
    """A quarter of a control plane's CPU went to looking for garbage. An API server takes 820 MB, not 410."""
    os.environ.setdefault("GOGC", "400")
    os.environ.setdefault("GOMEMLIMIT", "2GiB")  # from there on as often as ever
