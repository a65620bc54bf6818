"""Which pod is proposed to whoever asks for one that does not exist, and what it takes to find it."""

from tests.support.effort import cpu_seconds

from parley.explain.missing import no_such_pod


def test_a_name_is_proposed_without_much_work_whatever_pods_are_called() -> None:
    """These names are the hardest to compare: they consist of the same two letters. There may be thousands."""
    names = ["".join("ab"[number >> bit & 1] for bit in range(199)) for number in range(2**190, 2**190 + 2_000)]
    hard = ["ab" * 93 + name[:13] for name in names]
    keys = [("team", name) for name in [*hard, "wants"]]

    assert cpu_seconds(lambda: no_such_pod("team", "ba" * 99, keys)) < 0.25
    assert no_such_pod("team", "wnats", keys) == "pod team/wnats does not exist: did you mean wants?"
