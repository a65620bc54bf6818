"""The image's dependencies are those that the tests run with, each pinned by hash."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PIN = re.compile(r"(?m)^([a-z0-9._-]+==\S+)(?: ; [^\\\n]+)? \\$")


@pytest.mark.parametrize("lock", ["deploy/requirements.lock", "deploy/build.lock"])
def test_versions_are_those_of_the_development_environment(lock: str) -> None:
    pinned = set(PIN.findall((ROOT / lock).read_text()))

    assert pinned
    assert pinned <= set(PIN.findall((ROOT / "requirements.lock").read_text()))


@pytest.mark.parametrize("lock", ["deploy/requirements.lock", "deploy/build.lock"])
def test_every_pin_has_hashes(lock: str) -> None:
    for entry in re.split(r"(?m)^(?=[a-z0-9])", (ROOT / lock).read_text())[1:]:
        assert "--hash=sha256:" in entry, entry
