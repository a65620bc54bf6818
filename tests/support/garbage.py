"""How often Python looks for garbage in a process that plays tests."""

import gc


def collect_seldom() -> None:
    """What was imported until now is no garbage, and a test makes little of it that needs a collector: looking for
    it took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
