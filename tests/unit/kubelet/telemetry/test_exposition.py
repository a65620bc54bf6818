"""The text of metrics, as Prometheus' own parser reads it."""

from prometheus_client.parser import text_string_to_metric_families

from parley_kubelet.telemetry.exposition import Histogram, NodeReading, exposition


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_reading_has_its_type_help_and_labels() -> None:
    reading = NodeReading("claims", "gauge", "Claims held.", ("driver",), {("a.b",): 2, ('odd"\\\n',): 3})

    (family,) = text_string_to_metric_families(exposition([reading]))

    assert (family.name, family.type, family.documentation) == ("claims", "gauge", "Claims held.")
    assert [(s.labels["driver"], s.value) for s in family.samples] == [("a.b", 2), ('odd"\\\n', 3)]


def test_a_histogram_counts_what_is_at_most_its_bound_and_all_that_is_longer() -> None:
    calls = Histogram("call_seconds", "Calls.", ("call",), (0.1, 1))
    for seconds in (0.05, 0.1, 0.5, 7):
        calls.observe(seconds, "prepare")

    found = samples(exposition([calls]))

    prepare = ("call", "prepare")
    assert [found["call_seconds_bucket", frozenset({prepare, ("le", le)})] for le in ("0.1", "1.0", "+Inf")] == [
        2,
        3,
        4,
    ]
    assert found["call_seconds_count", frozenset({prepare})] == 4
    assert found["call_seconds_sum", frozenset({prepare})] == 7.65


def test_series_of_other_labels_are_apart() -> None:
    calls = Histogram("call_seconds", "Calls.", ("call",), (0.1,))
    calls.observe(1, "prepare")
    calls.observe(1, "unprepare")

    found = samples(exposition([calls]))

    assert [found["call_seconds_count", frozenset({("call", it)})] for it in ("prepare", "unprepare")] == [1, 1]
