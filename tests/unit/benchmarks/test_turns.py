"""How the ways compare: ratios of turns that ran one after the other."""

from benchmarks.turns import Turn, table

PEERS = ["structured v1.37.0", "classic v1.31.0"]


def turn(way: str, number: int, rate: float, cost: float, others: float = 0.0) -> Turn:
    return Turn(
        way=way, turn=number, pods=1000, nodes=100, pods_per_second=rate, cpu_ms_per_pod=cost, others=others
    )


def test_one_turn_of_each_gives_one_ratio_to_each_peer() -> None:
    measured = [
        turn("claims1-100nodes", 1, 40, 24, 0.5),
        turn("structured v1.37.0", 1, 32, 30, 0.4),
        turn("classic v1.31.0", 1, 10, 96, 0.4),
    ]

    assert table(measured, PEERS).splitlines() == [
        "| way | turns | pods/s | CPU/pod | CPU of others | pods/s, ours/structured v1.37.0 |"
        " CPU/pod, ours/structured v1.37.0 | pods/s, ours/classic v1.31.0 | CPU/pod, ours/classic v1.31.0 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| claims1-100nodes | 1 | 40.0 | 24.0 ms | 50 % | 1.25 | 0.80 | 4.00 | 0.25 |",
        "| structured v1.37.0 | 1 | 32.0 | 30.0 ms | 40 % |  |  |  |  |",
        "| classic v1.31.0 | 1 | 10.0 | 96.0 ms | 40 % |  |  |  |  |",
    ]


def test_ratios_are_those_of_each_round_so_that_a_slow_hour_of_the_machine_does_not_count() -> None:
    measured = [
        turn("claims1-100nodes", 1, 60, 24),
        turn("structured v1.37.0", 1, 40, 30),
        turn("structured v1.37.0", 2, 4, 31),
        turn("claims1-100nodes", 2, 8, 25),
        turn("claims1-100nodes", 3, 60, 24),
        turn("structured v1.37.0", 3, 50, 30),
    ]

    ours = table(measured, PEERS).splitlines()[2]

    assert ours == "| claims1-100nodes | 3 | 60.0 | 24.0 ms | 0 % | 1.50 (1.20 to 2.00) | 0.80 (0.80 to 0.81) |"


def test_a_peer_that_could_not_be_built_has_no_columns() -> None:
    measured = [turn("claims1-100nodes", 1, 40, 24), turn("structured v1.37.0", 1, 32, 30)]

    assert "classic" not in table(measured, PEERS)
