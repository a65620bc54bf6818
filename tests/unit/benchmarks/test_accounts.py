"""Whose writes are counted: what the API server says about each FlowSchema."""

from benchmarks import accounts


def line(schema: str, count: float) -> str:
    return f'{accounts.METRIC}{{flow_schema="{schema}",priority_level="workload-low"}} {count:g}'


def test_the_writes_of_an_account_are_those_of_its_flow_schema() -> None:
    name = accounts.flow_schema("parley-system", "parley-controller")["metadata"]["name"]
    metrics = "\n".join(
        [
            f"# HELP {accounts.METRIC} Number of requests",
            line(name, 12),
            line(f"{name}-other", 5),
            line("service-accounts", 70),
            f'apiserver_flowcontrol_rejected_requests_total{{flow_schema="{name}",reason="time-out"}} 3',
        ]
    )
    assert accounts.written(metrics, "parley-controller") == 12


def test_an_account_that_has_not_written_yet_wrote_nothing() -> None:
    assert accounts.written("", "parley-controller") == 0


def test_leases_and_reads_are_not_counted() -> None:
    (rule,) = accounts.flow_schema("parley-system", "parley-controller")["spec"]["rules"]
    (resources,) = rule["resourceRules"]
    assert "coordination.k8s.io" not in resources["apiGroups"]
    assert not {"get", "list", "watch", "*"} & set(resources["verbs"])
