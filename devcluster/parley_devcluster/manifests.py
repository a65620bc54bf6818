"""Renders the kustomize bases below deploy/ from the Helm chart: `python -m parley_devcluster.manifests`.

Each folder is the chart with certain values and without what only helm needs. A template becomes the file of its
name. A ConfigMap becomes the files in it: kustomize generates it, with a name that depends on its content.
The kustomization.yaml files are written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from parley_devcluster import binaries, commands, versions

CHART = Path("chart") / "parley"
"""Below deploy/."""

RELEASE, NAMESPACE = "parley", "parley-system"

_SOURCE = "# Source: parley/templates/"
_HEADER = "# Rendered from deploy/chart/parley/templates/{} by `make manifests`: change it there.\n"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster if PyYAML was built with libyaml."""


@dataclass(frozen=True)
class ManifestFolder:
    """One folder: its path, the prefixes of the templates that become its files, and the chart's values."""

    path: str
    templates: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)


_WITHOUT_HELM = {"image": {"tag": "dev"}, "namespace": {"create": True}, "uninstall": {"hooks": False}}
_LOOPBACK = {"secondScheduler": {"enabled": True, "mode": "Sidecar"}}
_SERVICE = {"secondScheduler": {"enabled": True, "mode": "Service"}}

FOLDERS = (
    ManifestFolder("base", ("base/",)),
    ManifestFolder("workloads", ("workloads/",)),
    ManifestFolder("extender", ("workloads/", "extender/configuration", "extender/permissions/"), _LOOPBACK),
    ManifestFolder("extender/permissions", ("extender/permissions/",), _SERVICE),
    ManifestFolder(
        "extender-service",
        ("workloads/", "extender/configuration", "extender/deployment", "extender/extender"),
        _SERVICE,
    ),
)


def helm() -> Path:
    """The helm program, built if it is not found; raises `BuildError` if that fails."""
    return binaries.obtain(versions.INSTALLER, versions.KUBERNETES)["helm"]


def template(deploy: Path, values: Mapping[str, Any], *arguments: str) -> str:
    """The rendered chart with these values, for a cluster of the default Kubernetes version."""
    command = [str(helm()), "template", RELEASE, str(deploy / CHART), "--namespace", NAMESPACE]
    chosen = ["--kube-version", versions.KUBERNETES, "--values", "-", *arguments]
    text = yaml.safe_dump(dict(values))
    return commands.run([*command, *chosen], RuntimeError, stdin=text, shown="helm template")


def rendered(deploy: Path) -> dict[Path, str]:
    """The content of every rendered file, by its path below `deploy`."""
    return {
        Path(folder.path) / name: text
        for folder in FOLDERS
        for name, text in _files(template(deploy, {**_WITHOUT_HELM, **folder.values}), folder).items()
    }


def _files(output: str, folder: ManifestFolder) -> dict[str, str]:
    files: dict[str, str] = {}
    for part in output.split(f"---\n{_SOURCE}")[1:]:
        source, _, document = part.partition("\n")
        if not source.startswith(folder.templates):
            continue
        parsed = yaml.load(document, _LOADER)
        if parsed["kind"] == "ConfigMap":
            files |= {name: _HEADER.format(source) + text for name, text in parsed["data"].items()}
        else:
            name = _file_name(source, folder)
            files[name] = f"{files[name]}---\n" if name in files else _HEADER.format(source)
            files[name] += document.strip("\n") + "\n"
    return files


def _file_name(source: str, folder: ManifestFolder) -> str:
    """The template's name, with a prefix for permissions beside workloads, which have the same names."""
    path = PurePosixPath(source)
    apart = path.parent.name == "permissions" and not folder.path.endswith("permissions")
    return f"permissions-{path.name}" if apart else path.name


def main() -> None:
    """Write the files below the deploy/ of this checkout."""
    deploy = Path(__file__).parents[2] / "deploy"
    for path, text in rendered(deploy).items():
        (deploy / path).write_text(text)
        print(deploy / path, file=sys.stderr)


if __name__ == "__main__":
    main()
