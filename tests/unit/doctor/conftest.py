"""A cluster in memory in which all is well with Parley, and ways to plant one fault at a time."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.doctor.healthy import NOW, fill

from parley.api.resources import Resource
from parley.doctor import facts
from parley.doctor.diagnosing import Diagnosis, diagnose
from parley.doctor.findings import Finding, Severity
from parley.kube.client import Client
from parley.kube.memory import MemoryServer

Body = dict[str, Any]


class Sick:
    """The cluster, and what the doctor says of it."""

    def __init__(self) -> None:
        self.server = MemoryServer(clock=lambda: NOW)
        self.client: Client = self.server.client()

    async def replace(self, resource: Resource[Any], name: str, change: Callable[[Body], None]) -> None:
        """Change an object as it is stored, past all rules."""
        collection = self.server.store.collection(resource)
        (key,) = (key for key in collection.objects if key[1] == name)
        body = _copied(collection.objects[key].body)
        change(body)
        self.server.store.write(collection, key, body, {})

    async def diagnosis(self) -> Diagnosis:
        return await diagnose(self.client, NOW, "parley-system", "0.1.0")

    async def found(self, check: str) -> list[Finding]:
        """What is not well by that check; every other check finds nothing wrong."""
        findings = (await self.diagnosis()).findings
        wrong = [finding for finding in findings if finding.severity is not Severity.OK]
        assert [finding for finding in wrong if finding.check != check] == []
        return wrong


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Later = Callable[[], Awaitable[datetime]]


@pytest.fixture(autouse=True)
def _soon_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that look old are looked at again at once."""
    monkeypatch.setattr(facts, "RENEWAL_SECONDS", 0.0)


@pytest.fixture
async def cluster() -> Sick:
    sick = Sick()
    await fill(sick.client)
    return sick
