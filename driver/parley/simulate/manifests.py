"""Reads the YAML files that a user would give to `kubectl apply`, and reports all faults in them.

Every fault of every file is reported: file, document, object, field, value, remedy. Faults between objects (a
claim of a class that does not exist) are reported by the controller, with the same messages as in a real cluster.
A dump of a live cluster (`kubectl get ... -o yaml`) may contain any kinds: those that are not simulated are
counted and left out.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    CLASSES,
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    TEMPLATES,
    Resource,
)
from parley.simulate.objects import BadManifests, Manifest
from parley.simulate.priorities import PRIORITY_CLASSES
from parley.simulate.validation import Validator, name_fault
from parley.simulate.workloads import WORKLOADS, pod_of, template_of, workload_fault

KINDS: tuple[Resource[Any], ...] = (
    NAMESPACES,
    NODES,
    RESOURCE_SLICES,
    CONFIG_MAPS,
    PRIORITY_CLASSES,
    CLASSES,
    TEMPLATES,
    CLAIMS,
    *WORKLOADS,
    PODS,
)
"""The kinds that a simulated cluster takes, in the order of creation. `workloads` replaces some by their pods,
`priorities` writes others into pods."""

DUMPED: tuple[Resource[Any], ...] = (*KINDS, BUILTIN_TEMPLATES, BUILTIN_CLAIMS, CLAIM_RELEASES)
"""The kinds that are imported from a live cluster."""

STANDARD_INPUT = Path("-")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The YAML loader; ten times faster if PyYAML was built with libyaml."""


@dataclass(frozen=True, slots=True)
class _Document:
    """A parsed document, or an item of a `kind: List`."""

    source: str
    content: Any


def read(paths: Iterable[Path]) -> list[Manifest]:
    """The objects of all files, ordered by kind as in KINDS and otherwise as written.

    Raises BadManifests with every fault found.
    """
    return _read(paths, KINDS, None)


def read_dump(paths: Iterable[Path]) -> tuple[list[Manifest], Mapping[str, int]]:
    """As `read`, also of the kinds in DUMPED; and how many objects of other kinds were left out.

    Raises BadManifests with every fault found.
    """
    left_out: Counter[str] = Counter()
    return _read(paths, DUMPED, left_out), left_out


def _read(paths: Iterable[Path], kinds: Sequence[Resource[Any]], left_out: Counter[str] | None) -> list[Manifest]:
    known = {(resource.api_version, resource.kind): resource for resource in kinds}
    manifests: list[Manifest] = []
    faults: list[str] = []
    validator = Validator()
    for path in paths:
        for document in _documents(path, faults):
            if left_out is not None and (kind := _other_kind(document, known)):
                left_out[kind] += 1
            elif (manifest := _manifest(document, known, validator, faults)) is not None:
                manifests.append(manifest)
    faults += _duplicates(manifests)
    if faults:
        raise BadManifests(faults)
    return sorted(manifests, key=lambda manifest: kinds.index(manifest.resource))


_Known = Mapping[tuple[str, str], Resource[Any]]


def _other_kind(document: _Document, known: _Known) -> str:
    """The kind of an object that is not simulated; "" for others."""
    content = document.content
    if not isinstance(content, dict):
        return ""
    version, kind = content.get("apiVersion"), content.get("kind")
    return kind if isinstance(version, str) and isinstance(kind, str) and (version, kind) not in known else ""


def _parsed(text: str) -> list[Any]:
    if text.lstrip().startswith("{"):
        try:
            return [orjson.loads(text)]
        except orjson.JSONDecodeError:
            pass  # YAML in flow style, or invalid: the YAML parser reports the fault
    try:
        return list(yaml.load_all(text, _LOADER))
    except yaml.YAMLError:
        return list(yaml.safe_load_all(text))  # its messages are better than libyaml's


def _text(path: Path) -> str:
    return sys.stdin.read() if path == STANDARD_INPUT else path.read_text(encoding="utf-8")


def _documents(path: Path, faults: list[str]) -> Iterator[_Document]:
    try:
        parsed = _parsed(_text(path))
    except OSError as error:
        faults.append(f"{path}: cannot be read: {error.strerror or error}; give the path of a YAML file")
    except UnicodeDecodeError:
        faults.append(f"{path}: is not UTF-8 text; give the path of a YAML file")
    except yaml.YAMLError as error:
        faults.append(f"{path}{_line(error)}: is not YAML: {_problem(error)}")
    else:
        for number, content in enumerate(parsed, start=1):
            if content is not None:
                yield from _items(_Document(f"{path}, document {number}", content))


def _line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error)


def _items(document: _Document) -> Iterator[_Document]:
    content = document.content
    if isinstance(content, dict) and content.get("kind") == "List" and isinstance(content.get("items"), list):
        for number, item in enumerate(content["items"], start=1):
            yield _Document(f"{document.source}, item {number}", item)
    else:
        yield document


def _manifest(document: _Document, known: _Known, validator: Validator, faults: list[str]) -> Manifest | None:
    resource = _resource(document, known, faults)
    if resource is None:
        return None
    body = orjson.loads(orjson.dumps(document.content, default=str, option=orjson.OPT_NON_STR_KEYS))
    raw = body.get("metadata")
    metadata: dict[str, Any] = raw if isinstance(raw, dict) else {}
    if fault := name_fault(metadata.get("name")):
        faults.append(f"{document.source} ({resource.kind}): {fault}")
        return None
    namespace = metadata.get("namespace") or "default" if resource.namespaced else None
    manifest = Manifest(document.source, resource, namespace, metadata["name"], body)
    faults.extend(f"{document.source} ({manifest.title}): {fault}" for fault in _faults(manifest, validator))
    return manifest


def _faults(manifest: Manifest, validator: Validator) -> list[str]:
    """The faults of the object, and of the pods that it describes."""
    resource, body = manifest.resource, manifest.body
    found = validator.faults_of(resource, body, manifest.namespace)
    if resource not in WORKLOADS or found:
        return found
    if fault := workload_fault(resource, body):
        return [fault]
    pod = pod_of(manifest, manifest.name)
    labels = template_of(body).get("metadata", {}).get("labels") or {}
    described = {**pod.body, "metadata": {"name": manifest.name, "labels": labels}}
    return [f"spec.template: {fault}" for fault in validator.faults_of(PODS, described, manifest.namespace)]


def _resource(document: _Document, known: _Known, faults: list[str]) -> Resource[Any] | None:
    content = document.content
    if not isinstance(content, dict):
        faults.append(
            f"{document.source}: is {type(content).__name__} {content!r:.60}, not an object; "
            "start it with apiVersion, kind and metadata"
        )
        return None
    for field in ("apiVersion", "kind"):
        if not isinstance(content.get(field), str):
            faults.append(f"{document.source}: {field} is missing; write for example {_example(field)}")
            return None
    resource = known.get((content["apiVersion"], content["kind"]))
    if resource is None:
        faults.append(f"{document.source}: {_unknown(content['apiVersion'], content['kind'])}")
    return resource


def _example(field: str) -> str:
    return "apiVersion: parley.dev/v1alpha1" if field == "apiVersion" else "kind: ResourceClaim"


def _unknown(api_version: str, kind: str) -> str:
    versions = [resource.api_version for resource in KINDS if resource.kind == kind]
    if versions:
        return f"apiVersion {api_version!r} is not one of {kind} here; write apiVersion: {versions[0]}"
    known = ", ".join(resource.kind for resource in KINDS)
    return f"kind {kind!r} ({api_version}) is not known to the simulated cluster; it knows {known}"


def _duplicates(manifests: Iterable[Manifest]) -> Iterator[str]:
    first: dict[tuple[Resource[Any], str | None, str], Manifest] = {}
    for manifest in manifests:
        key = (manifest.resource, manifest.namespace, manifest.name)
        earlier = first.setdefault(key, manifest)
        if earlier is not manifest:
            yield (
                f"{manifest.source} ({manifest.title}): metadata.name {manifest.name!r} is already used by "
                f"{earlier.source}; rename one of them"
            )
