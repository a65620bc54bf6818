"""What `parley doctor` finds: nothing where all is well, and each planted fault with its remedy."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.doctor.conftest import Sick
from tests.unit.doctor.healthy import NOW

from parley.api.resources import SERVER_VERSION, Resource
from parley.doctor.diagnosing import CHECKS, Diagnosis, diagnose
from parley.doctor.facts import EVERYWHERE, IN_NAMESPACE
from parley.doctor.findings import Finding, Severity, error, ok, warning
from parley.doctor.text import lines
from parley.kube.client import Call, Client, Forbidden


async def test_where_all_is_well_there_is_nothing_to_mend(cluster: Sick) -> None:
    diagnosis = await cluster.diagnosis()

    assert diagnosis.verdict is Severity.OK
    assert [finding.remedy for finding in diagnosis.findings if finding.remedy] == []
    assert list(lines(diagnosis))[-1] == f"All well: {len(diagnosis.findings)} findings, nothing to fix."


def test_a_finding_cannot_look_like_another_one() -> None:
    """A driver's Lease says who holds it, in that driver's words."""
    finding = Finding(Severity.ERROR, "held by\n\x1b[2Jok       leader", about="Lease a")

    assert next(lines(Diagnosis((finding,), "parley-system", "1", ""))) == (
        "error      Lease a: held by\\n\\x1b[2Jok       leader"
    )


def test_findings_with_the_same_remedy_stand_together_with_the_remedy_once() -> None:
    findings = (
        replace(error("is missing", "apply the base", "Role a"), check="permissions"),
        replace(ok("can be decoded"), check="undecodable"),
        replace(error("is down", "see its log", "Deployment b"), check="controller"),
        replace(warning("is missing", "apply the base", "FlowSchema c"), check="lane"),
        replace(ok("is there"), check="cdi"),
    )

    assert list(lines(Diagnosis(findings, "parley-system", "0.1.0", ""))) == [
        "error    permissions  Role a: is missing",
        "warning  lane         FlowSchema c: is missing",
        "                      -> for these 2: apply the base",
        "ok       undecodable  can be decoded",
        "error    controller   Deployment b: is down",
        "                      -> see its log",
        "ok       cdi          is there",
        "",
        "2 errors, 1 warning.",
    ]


def test_of_very_many_findings_with_the_same_remedy_the_first_are_printed() -> None:
    stuck = [replace(error("was deleted", "ask", f"ResourceClaim {n}"), check="deleted-claims") for n in range(99)]
    last = replace(error("can't be decoded", "correct it", "ResourceClaim z"), check="undecodable")

    printed = list(lines(Diagnosis((*stuck, last), "parley-system", "0.1.0", "")))

    assert printed[9:] == [
        "error    deleted-claims  ResourceClaim 9: was deleted",
        "                         and 89 more with the same remedy (-o wide has all)",
        "                         -> for these 99: ask",
        "error    undecodable     ResourceClaim z: can't be decoded",
        "                         -> correct it",
        "",
        "100 errors.",
    ]


class Refusing(Client):
    """Lets nobody list one kind."""

    def __init__(self, client: Client, resource: Resource[Any]) -> None:
        super().__init__(client)
        self._refused = resource

    async def request(self, call: Call) -> bytes:
        if call.resource == self._refused:
            raise Forbidden(403, "Forbidden", f"{call.resource.plural} is forbidden")
        return await super().request(call)


@pytest.mark.parametrize("resource", [SERVER_VERSION, *EVERYWHERE, *IN_NAMESPACE], ids=lambda kind: kind.plural)
async def test_what_may_not_be_read_is_a_finding_of_its_own(cluster: Sick, resource: Resource[Any]) -> None:
    diagnosis = await diagnose(Refusing(cluster.client, resource), NOW, "parley-system", "0.1.0")

    unknown = [finding for finding in diagnosis.findings if finding.severity is Severity.UNKNOWN]
    assert {finding.severity for finding in diagnosis.findings} == {Severity.OK, Severity.UNKNOWN}
    for finding in unknown:
        assert finding.text == f"could not be checked: {resource.plural} is forbidden"
        assert finding.remedy.startswith("ask an administrator for the right to get and list ")


def test_the_page_has_every_check_in_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()

    assert re.findall(r"^\| `([a-z-]+)` \|", page, flags=re.MULTILINE) == list(CHECKS)
