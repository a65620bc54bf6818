"""What the API server's counters say about writes."""

from benchmarks import writes
from benchmarks.writes import Write


def line(verb: str, resource: str, count: int, *, group: str = "", sub: str = "", code: str = "201") -> str:
    labels = {
        "code": code,
        "component": "apiserver",
        "dry_run": "",
        "group": group,
        "resource": resource,
        "scope": "resource",
        "subresource": sub,
        "verb": verb,
        "version": "v1",
    }
    listed = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{writes.METRIC}{{{listed}}} {count}"


PATCH_OF_STATUS = Write("PATCH", "resource.k8s.io", "resourceclaims", "status", "200")


def test_only_writes_are_counted_and_other_metrics_are_left_alone() -> None:
    metrics = "\n".join(
        [
            "# HELP apiserver_request_total Counter of apiserver requests",
            line("POST", "pods", 1000),
            line("GET", "pods", 5),
            line("WATCH", "pods", 3),
            line("PUT", "leases", 12, group="coordination.k8s.io"),
            'apiserver_request_duration_seconds_count{verb="POST",resource="pods"} 7',
        ]
    )
    assert writes.parse(metrics) == {Write("POST", "", "pods", "", "201"): 1000}


def test_counters_of_several_components_are_added_up() -> None:
    metrics = "\n".join([line("POST", "pods", 1), line("POST", "pods", 2).replace("apiserver", "other", 1)])
    assert writes.parse(f"{metrics}\n{line('POST', 'pods', 2)}") == {Write("POST", "", "pods", "", "201"): 3}


def test_what_was_there_before_does_not_count() -> None:
    before = {PATCH_OF_STATUS: 5, Write("POST", "", "pods", "", "201"): 3}
    after = {PATCH_OF_STATUS: 1005, Write("POST", "", "pods", "", "201"): 3}
    assert writes.since(before, after) == {PATCH_OF_STATUS: 1000}


def test_writes_per_pod() -> None:
    written = {PATCH_OF_STATUS: 1000, Write("POST", "", "pods", "", "201"): 1000}
    assert writes.per_pod(written, 1000) == 2.0


def test_a_refused_write_is_shown_with_its_code_and_a_rare_one_not_at_all() -> None:
    written = {
        Write("DELETE", "resource.k8s.io", "resourceclaims", "", "409"): 600,
        PATCH_OF_STATUS: 1000,
        Write("POST", "", "serviceaccounts", "token", "201"): 1,
    }
    assert writes.table(written, 1000) == {
        "PATCH resourceclaims.resource.k8s.io/status": 1.0,
        "DELETE resourceclaims.resource.k8s.io (409)": 0.6,
    }


def test_an_apply_that_created_and_one_that_changed_are_one_kind_of_write() -> None:
    applied = [Write("APPLY", "parley.dev", "podschedulings", "", code) for code in ("200", "201")]
    assert writes.table(dict.fromkeys(applied, 1000), 1000) == {"APPLY podschedulings.parley.dev": 2.0}
