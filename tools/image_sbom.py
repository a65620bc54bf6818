"""Writes what an image of Parley consists of, as CycloneDX: `python -m tools.image_sbom IMAGE > parley.cdx.json`.

The image itself is asked, in a container without network: which Python distributions there are in the environment
and beside the interpreter, which interpreter it is, and which Debian packages dpkg has installed. Without an image
to ask, deploy/Dockerfile is built first.
"""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false
# The library's class decorators hide its constructors from pyright; mypy sees them.

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from parley_devcluster import engine, parley_image
from parley_devcluster.engine import Engine, EngineError

ROOT = Path(__file__).parents[1]
BUILT = "parley.dev/parley:dev"

_ASK = """
import importlib.metadata, json, os, platform, sys, sysconfig
beside = sysconfig.get_path("purelib", vars={"base": sys.base_prefix})
found = importlib.metadata.distributions(path=[*sys.path, beside])
read = lambda path: open(path).read() if os.path.exists(path) else ""
print(json.dumps({
    "python": platform.python_version(),
    "distributions": sorted({(each.name, each.version) for each in found}),
    "dpkg": read("/var/lib/dpkg/status"),
    "release": read("/etc/os-release"),
}))
"""


def of_image(chosen: Engine, image: str) -> str:
    """The document about an image that the engine has. Raises EngineError."""
    (inspected,) = json.loads(chosen.run("image", "inspect", image))
    return inventory(image, inspected, asked(chosen, image))


def asked(chosen: Engine, image: str) -> Mapping[str, Any]:
    """What is in the image: `python`, `distributions` as pairs, `dpkg` and `release` as texts."""
    command = ("run", "--rm", "--network=none", "--read-only", image, "python3", "-c", _ASK)
    return dict(json.loads(chosen.run(*command)))


def components(content: Mapping[str, Any]) -> list[Component]:
    """The interpreter, Python's distributions and Debian's packages."""
    python = _component(PackageURL("generic", name="python", version=content["python"]), ComponentType.PLATFORM)
    distributions = [
        _component(PackageURL("pypi", name=name.lower().replace("_", "-"), version=version))
        for name, version in content["distributions"]
    ]
    return [python, *distributions, *map(_component, debian(content["dpkg"], content["release"]))]


def debian(status: str, release: str) -> Iterable[PackageURL]:
    """The packages that are installed, by dpkg's status file, of the distribution that os-release names."""
    about = {key: value.strip('"') for key, _, value in (line.partition("=") for line in release.splitlines())}
    for stanza in status.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            distribution = f"{about.get('ID', 'debian')}-{about.get('VERSION_ID', '')}".rstrip("-")
            qualifiers = {"arch": fields["Architecture"], "distro": distribution}
            name, version = fields["Package"], fields["Version"]
            yield PackageURL("deb", about.get("ID", "debian"), name, version, qualifiers)


def inventory(image: str, inspected: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """The document; the same for the same image, whose time it has and from which its serial number follows."""
    digest = str(inspected["Id"]).removeprefix("sha256:")
    folder, _, last = image.rpartition("/")
    name, _, tag = last.partition(":")
    purl = PackageURL("oci", name=name, version=f"sha256:{digest}", qualifiers={"tag": tag} if tag else None)
    whole = Component(
        type=ComponentType.CONTAINER, group=folder, name=name, version=tag, purl=purl, bom_ref=digest
    )
    made = datetime.fromisoformat(str(inspected["Created"]))
    bom = Bom(
        components=components(content),
        serial_number=uuid5(NAMESPACE_URL, digest),
        metadata=BomMetaData(component=whole, timestamp=made),
    )
    bom.register_dependency(whole, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _component(purl: PackageURL, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    return Component(type=kind, name=purl.name, version=purl.version, purl=purl, bom_ref=purl.to_string())


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 if it was written, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tools.image_sbom", description="List what is in an image.")
    parser.add_argument("image", nargs="?", help="as the container engine knows it; built if none is named")
    image = parser.parse_args(arguments).image
    try:
        chosen = engine.require()
        if image is None:
            image = BUILT
            parley_image.build(chosen, ROOT, image)
        print(of_image(chosen, image))
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
