"""Requests about claims, and whether the admission policies of `deploy/base` let them pass: one table, for a real
API server and for the model of the policies. What a case leaves out is as Parley and Kubernetes made it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley.api.names import (
    DEVICE_CLASS,
    FINALIZER,
    GENERATED_LABEL,
    MIRROR_LABEL,
    POD_CLAIM_NAME_ANNOTATION,
    driver_annotation,
    driver_finalizer,
)
from parley.api.resources import BUILTIN_CLAIMS, BUILTIN_TEMPLATES, CLAIMS, Resource

Json = dict[str, Any]

TENANT, CLAIM_CONTROLLER, COLLECTOR = "tenant", "claim controller", "collector"
NAMESPACE_CONTROLLER, PARLEY = "namespace controller", "parley"
DRIVER = "driver"
"""Of the account, which may act as the driver DISKS."""

DISKS, SEATS = "disks.example.com", "seats.example.com"


@dataclass(frozen=True)
class Case:
    """A request: `before` was created with all rights (None: it creates `after`); without `after` it deletes.

    `reserved`: the built-in claim is, for the test's pod, or a Parley claim is allocated.
    `refused`: whether a policy keeps the account from it.
    """

    name: str
    account: str
    resource: Resource[Any]
    before: Json | None
    after: Json | None
    refused: bool
    reserved: bool = False
    version: str = "v1"
    """Of resource.k8s.io, in which the request is made."""


ALLOCATED: Json = {"driverName": DISKS, "allocation": {"handles": [{"driverName": DISKS}]}}
"""Status of a Parley claim."""

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "UID", "controller": True}
"""The test's pod; UID stands for its own."""


def _requests(*names: str, device_class: str = DEVICE_CLASS, first_available: bool = False) -> list[Json]:
    if first_available:
        return [
            {"name": name, "firstAvailable": [{"name": "s", "deviceClassName": device_class}]} for name in names
        ]
    return [{"name": name, "exactly": {"deviceClassName": device_class}} for name in names]


def builtin(*requests: str, **metadata: Any) -> Json:
    """A built-in claim that names Parley's class."""
    return {"metadata": dict(metadata), "spec": {"devices": {"requests": _requests(*requests or ("exclusive",))}}}


def generated(**metadata: Any) -> Json:
    """A claim that the claim controller made for a pod."""
    meta = {
        "labels": {MIRROR_LABEL: "generated"},
        "annotations": {POD_CLAIM_NAME_ANNOTATION: "gpu"},
        "ownerReferences": [OWNER],
    }
    return builtin("exclusive", **{**meta, **metadata})


def named(**metadata: Any) -> Json:
    """The mirror of a named claim."""
    return builtin("exclusive", **{"labels": {MIRROR_LABEL: "named"}, "finalizers": [FINALIZER], **metadata})


def parleys(**metadata: Any) -> Json:
    """A Parley claim."""
    return {"metadata": dict(metadata), "spec": {"resourceClassName": "gpu"}}


def begun(driver: str = DISKS, node: str = "n1", **metadata: Any) -> Json:
    """A Parley claim that the driver has begun to allocate on the node."""
    marks = {"finalizers": [driver_finalizer(driver)], "annotations": {driver_annotation(driver): node}}
    return parleys(**{**marks, **metadata})


def stand_in(**metadata: Any) -> Json:
    return parleys(**{"labels": {GENERATED_LABEL: "gpu"}, "ownerReferences": [OWNER], **metadata})


def _template(*requests: str, **more: Any) -> Json:
    return {"metadata": {}, "spec": {"spec": {"devices": {"requests": _requests(*requests, **more)}}}}


def _creations() -> list[Case]:
    foreign = {"metadata": {}, "spec": {"devices": {"requests": _requests("x", device_class="gpus.example.org")}}}
    listed = {"metadata": {}, "spec": {"devices": {"requests": _requests("x", first_available=True)}}}
    mixed = {"metadata": {}, "spec": {"devices": {"requests": [*_requests("exclusive"), *_requests("x")]}}}
    rows: list[tuple[str, str, Resource[Any], Json, bool]] = [
        ("an ordinary claim", TENANT, BUILTIN_CLAIMS, foreign, False),
        ("a claim with any request", TENANT, BUILTIN_CLAIMS, builtin("x"), True),
        ("an exclusive claim", TENANT, BUILTIN_CLAIMS, builtin("exclusive"), True),
        ("a shareable claim", TENANT, BUILTIN_CLAIMS, builtin("shareable"), True),
        ("a claim as generated", TENANT, BUILTIN_CLAIMS, generated(), True),
        ("alternatives", TENANT, BUILTIN_CLAIMS, listed, True),
        ("several requests", TENANT, BUILTIN_CLAIMS, mixed, True),
        ("a generated claim", CLAIM_CONTROLLER, BUILTIN_CLAIMS, generated(), False),
        ("a generated claim of any name", CLAIM_CONTROLLER, BUILTIN_CLAIMS, builtin("x"), True),
        ("a generated shareable claim", CLAIM_CONTROLLER, BUILTIN_CLAIMS, builtin("shareable"), True),
        ("a named mirror", PARLEY, BUILTIN_CLAIMS, named(), False),
        ("a template", TENANT, BUILTIN_TEMPLATES, _template("exclusive"), True),
        ("a template with any request", TENANT, BUILTIN_TEMPLATES, _template("x"), True),
        ("a template with alternatives", TENANT, BUILTIN_TEMPLATES, _template("x", first_available=True), True),
        (
            "an ordinary template",
            TENANT,
            BUILTIN_TEMPLATES,
            _template("x", device_class="gpus.example.org"),
            False,
        ),
        ("a mirrored template", PARLEY, BUILTIN_TEMPLATES, _template("exclusive"), False),
        ("a Parley claim", TENANT, CLAIMS, parleys(labels={"app": "x"}), False),
        ("a stand-in", TENANT, CLAIMS, stand_in(), True),
        ("a stand-in by Parley", PARLEY, CLAIMS, stand_in(), False),
        ("an empty mark", TENANT, CLAIMS, parleys(labels={GENERATED_LABEL: ""}), True),
        ("what a driver has begun", TENANT, CLAIMS, begun(), True),
        ("a driver's finalizer", TENANT, CLAIMS, begun(annotations=None), True),
        ("a driver's annotation", TENANT, CLAIMS, begun(finalizers=None), True),
        (
            "what two drivers have begun",
            DRIVER,
            CLAIMS,
            begun(finalizers=[driver_finalizer(DISKS), driver_finalizer(SEATS)]),
            True,
        ),
        ("what another driver has begun", DRIVER, CLAIMS, begun(SEATS), True),
        ("what it has begun itself", DRIVER, CLAIMS, begun(), False),
        ("what a driver has begun as Parley", PARLEY, CLAIMS, begun(), False),
        (
            "other finalizers and annotations",
            TENANT,
            CLAIMS,
            parleys(finalizers=["x.example.org/y"], annotations={"x.example.org/y": "z"}),
            False,
        ),
    ]
    cases = [Case(f"create {name}", who, kind, None, after, refused) for name, who, kind, after, refused in rows]
    for version in ("v1beta1", "v1beta2"):
        requests: list[Json] = _requests("x")
        if version == "v1beta1":
            requests = [{"name": "x", "deviceClassName": DEVICE_CLASS}]
        spec = {"devices": {"requests": requests}}
        cases.append(
            Case(
                f"create in {version}",
                TENANT,
                BUILTIN_CLAIMS,
                None,
                {"metadata": {}, "spec": spec},
                True,
                version=version,
            )
        )
        body = {"metadata": {}, "spec": {"spec": spec}}
        cases.append(
            Case(f"create template in {version}", TENANT, BUILTIN_TEMPLATES, None, body, True, version=version)
        )
    return cases


def _changes() -> list[Case]:
    rows: list[tuple[str, str, Resource[Any], Json, Json, bool]] = [
        ("drop owners", TENANT, BUILTIN_CLAIMS, generated(), generated(ownerReferences=None), True),
        ("orphan", COLLECTOR, BUILTIN_CLAIMS, generated(), generated(ownerReferences=None), False),
        ("change the entry", TENANT, BUILTIN_CLAIMS, generated(),
         generated(annotations={POD_CLAIM_NAME_ANNOTATION: "x"}), True),
        ("drop the entry", TENANT, BUILTIN_CLAIMS, generated(),
         generated(annotations={POD_CLAIM_NAME_ANNOTATION: None}), True),
        ("drop the label", TENANT, BUILTIN_CLAIMS, generated(), generated(labels={MIRROR_LABEL: None}), True),
        ("drop the finalizer", TENANT, BUILTIN_CLAIMS, named(), named(finalizers=None), True),
        ("add a finalizer", TENANT, BUILTIN_CLAIMS, generated(), generated(finalizers=["x.example.org/y"]), False),
        ("add a label", TENANT, BUILTIN_CLAIMS, generated(),
         generated(labels={MIRROR_LABEL: "generated", "app": "x"}), False),
        ("drop the finalizer as Parley", PARLEY, BUILTIN_CLAIMS, named(), named(finalizers=None), False),
        ("make a stand-in of it", TENANT, CLAIMS, parleys(), stand_in(), True),
        ("drop a stand-in's owner", TENANT, CLAIMS, stand_in(), stand_in(ownerReferences=None), True),
        ("drop a stand-in's label", TENANT, CLAIMS, stand_in(), stand_in(labels={GENERATED_LABEL: None}), True),
        ("drop a stand-in's label as Parley", PARLEY, CLAIMS, stand_in(), stand_in(labels={GENERATED_LABEL: None}),
         False),
        ("orphan a stand-in", COLLECTOR, CLAIMS, stand_in(), stand_in(ownerReferences=None), False),
        ("let a claim go", TENANT, CLAIMS, parleys(finalizers=[FINALIZER]), parleys(finalizers=None), True),
        ("let a claim go as Parley", PARLEY, CLAIMS, parleys(finalizers=[FINALIZER]), parleys(finalizers=None),
         False),
        ("annotate a claim", TENANT, CLAIMS, parleys(), parleys(annotations={"app": "x"}), False),
        ("begin as a driver", TENANT, CLAIMS, parleys(), begun(), True),
        ("say that a driver has begun", TENANT, CLAIMS, begun(annotations=None), begun(), True),
        ("say that a driver has begun elsewhere", TENANT, CLAIMS, begun(), begun(node="n2"), True),
        ("drop a driver's annotation", TENANT, CLAIMS, begun(),
         begun(annotations={driver_annotation(DISKS): None}), True),
        ("drop a driver's finalizer", TENANT, CLAIMS, begun(), begun(finalizers=None), True),
        ("label what a driver has begun", TENANT, CLAIMS, begun(), begun(labels={"app": "x"}), False),
        ("orphan what a driver has begun", COLLECTOR, CLAIMS, begun(ownerReferences=[OWNER]),
         begun(ownerReferences=None), False),
        ("begin elsewhere", DRIVER, CLAIMS, begun(), begun(node="n2"), False),
        ("end what it has begun", DRIVER, CLAIMS, begun(),
         begun(finalizers=None, annotations={driver_annotation(DISKS): None}), False),
        ("end what another driver has begun", DRIVER, CLAIMS, begun(SEATS), begun(SEATS, finalizers=None), True),
        ("end what a driver has begun as Parley", PARLEY, CLAIMS, begun(), begun(finalizers=None), False),
    ]  # fmt: skip
    return [Case(name, who, kind, before, after, refused) for name, who, kind, before, after, refused in rows]


def _deletions() -> list[Case]:
    rows: list[tuple[str, str, Resource[Any], Json, bool, bool]] = [
        ("a claim in use", TENANT, BUILTIN_CLAIMS, generated(), True, True),
        ("an unused claim", TENANT, BUILTIN_CLAIMS, generated(), False, False),
        ("a named mirror", TENANT, BUILTIN_CLAIMS, named(), True, False),
        ("a claim in use as the collector", COLLECTOR, BUILTIN_CLAIMS, generated(), True, False),
        ("a claim with its namespace", NAMESPACE_CONTROLLER, BUILTIN_CLAIMS, generated(), True, False),
        ("a claim as its controller", CLAIM_CONTROLLER, BUILTIN_CLAIMS, generated(), True, False),
        ("a Parley claim", TENANT, CLAIMS, parleys(), False, False),
        ("what a driver has begun", TENANT, CLAIMS, begun(), False, False),
        ("what a driver has begun with its namespace", NAMESPACE_CONTROLLER, CLAIMS, begun(), False, False),
        ("a stand-in", TENANT, CLAIMS, stand_in(), False, True),
        ("a stand-in as the collector", COLLECTOR, CLAIMS, stand_in(), False, False),
        ("a stand-in with its namespace", NAMESPACE_CONTROLLER, CLAIMS, stand_in(), False, False),
        ("a stand-in as Parley", PARLEY, CLAIMS, stand_in(), False, False),
        ("an allocated stand-in as the collector", COLLECTOR, CLAIMS, stand_in(), True, True),
        ("an allocated stand-in with its namespace", NAMESPACE_CONTROLLER, CLAIMS, stand_in(), True, False),
        ("an allocated stand-in as Parley", PARLEY, CLAIMS, stand_in(), True, False),
        ("an allocated claim as the collector", COLLECTOR, CLAIMS, parleys(), True, False),
    ]
    return [
        Case(f"delete {name}", who, kind, before, None, refused, reserved)
        for name, who, kind, before, reserved, refused in rows
    ]


CASES: Sequence[Case] = (*_creations(), *_changes(), *_deletions())
