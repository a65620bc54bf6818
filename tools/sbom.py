"""The bill of materials of the wheel `parley`: CycloneDX 1.6, of all that it brings along at the pinned versions.

The versions, their hashes and what needs what are those of requirements.lock; what only development needs is left
out.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# The library's class decorators hide its constructors from pyright; mypy sees them.

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = "parley (pyproject.toml)"
"""How the lock names what the wheel itself depends on."""

_PINNED = re.compile(r"(?m)^([a-z0-9][a-z0-9._-]*)(?:\[[^]]*\])?==(\S+)")
_NEEDED_BY = re.compile(r"(?m)^ +#(?: via)? +(\S.*)$")


@dataclass(frozen=True)
class Pinned:
    """A distribution in the lock, with the SHA-256 of its files and what needs it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]


def pinned(lock: str) -> dict[str, Pinned]:
    """All distributions of a requirements.lock, by name."""
    starts = [*_PINNED.finditer(lock)]
    ends = [*(start.start() for start in starts[1:]), len(lock)]
    found = {}
    for start, end in zip(starts, ends, strict=True):
        entry = lock[start.start() : end]
        name, version = start.groups()
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
        found[name] = Pinned(name, version, hashes, tuple(_NEEDED_BY.findall(entry)))
    return found


def shipped(lock: Mapping[str, Pinned]) -> dict[str, Pinned]:
    """What is installed with the wheel: what it needs, and what that needs in turn."""
    known = {name: one for name, one in lock.items() if ROOT in one.needed_by}
    while more := {name: one for name, one in lock.items() if name not in known and known.keys() & one.needed_by}:
        known |= more
    return known


def bill(lock: str, version: str) -> str:
    """The document for that version of the wheel, as JSON."""
    parts = shipped(pinned(lock))
    wheel = _component("parley", version)
    wheel.licenses.add(LicenseExpression("Apache-2.0"))
    bom = Bom()
    bom.metadata.component = wheel
    components = {name: _pinned_component(part) for name, part in parts.items()}
    bom.components.update(components.values())
    bom.register_dependency(wheel, [components[n] for n, part in parts.items() if ROOT in part.needed_by])
    for name, component in components.items():
        needs = [components[other] for other, part in parts.items() if name in part.needed_by]
        bom.register_dependency(component, needs)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _component(name: str, version: str) -> Component:
    url = PackageURL("pypi", None, name, version)
    return Component(name=name, version=version, type=ComponentType.LIBRARY, purl=url, bom_ref=url.to_string())


def _pinned_component(part: Pinned) -> Component:
    made = _component(part.name, part.version)
    made.external_references.add(
        ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(str(made.purl)),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in part.hashes],
        )
    )
    return made


def write(root: Path, version: str, to: Path) -> None:
    """Write the bill for the checkout's lock."""
    to.write_text(bill((root / "requirements.lock").read_text(), version) + "\n")
