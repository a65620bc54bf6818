"""Checks of what `deploy/base` installs: kinds, admission policies, permissions, the FlowSchema of leader
election."""

from collections.abc import Iterator, Mapping

from parley.api.names import VERSION
from parley.api.wording import listed
from parley.doctor import installed
from parley.doctor.comparing import differences, missing_grants
from parley.doctor.facts import Facts
from parley.doctor.findings import Finding, error, ok, warning
from parley.doctor.kinds import (
    ACCOUNTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    FLOW_SCHEMAS,
    POLICIES,
    POLICY_BINDINGS,
    ROLE_BINDINGS,
    ROLES,
    Body,
)

APPLY_CRDS = (
    "install the CRDs of this version again: helm upgrade or, without helm, kubectl apply --server-side -k crds"
)
APPLY = (
    "install deploy/base of this version again: helm upgrade or, without helm, "
    "kubectl apply --server-side -k deploy/base"
)

_AGGREGATED_TO = "rbac.authorization.k8s.io/aggregate-to-"
"""Of the labels by which Kubernetes adds a role's rules to its own roles view, edit and admin."""


def crds(facts: Facts) -> Iterator[Finding]:
    """Each is there, established, stored in one version, and has the schema that this program writes by."""
    found, wrong = facts.named(CRDS), False
    for name, expected in installed.crds().items():
        crd = found.get(name)
        about = f"CustomResourceDefinition {name}"
        findings = list(_crd(expected, crd)) if crd is not None else [error("is missing", APPLY_CRDS)]
        for finding in findings:
            wrong = True
            yield Finding(finding.severity, finding.text, finding.remedy, about)
    if not wrong:
        count = len(installed.crds())
        yield ok(f"{count} kinds are served as {VERSION}, with the schemas of Parley {facts.program}")


def _crd(expected: Body, found: Body) -> Iterator[Finding]:
    status = found.get("status") or {}
    stored = status.get("storedVersions") or []
    versions = {version["name"]: version for version in found["spec"]["versions"]}
    if other := [version for version in stored if version != VERSION]:
        yield warning(
            f"objects may be stored as {listed(other)}",
            f"rewrite each object once, then remove {listed(other)} from status.storedVersions",
        )
    if VERSION not in versions or not versions[VERSION].get("served"):
        yield error(f"{VERSION} is not served", APPLY_CRDS)
        return
    (wanted,) = expected["spec"]["versions"]
    changed = list(differences(wanted["schema"], versions[VERSION].get("schema"), "schema"))
    changed += differences(wanted.get("subresources"), versions[VERSION].get("subresources"), "subresources")
    if changed:
        yield error(f"is not the one of this version: {listed(changed, 3)} differs", APPLY_CRDS)
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    established = conditions.get("Established") or {}
    if established.get("status") != "True":
        yield error(
            f"is not established: {established.get('message') or 'no condition says so'}",
            "see its conditions: kubectl describe crd",
        )


def policies(facts: Facts) -> Iterator[Finding]:
    """Each is there with its binding, and both are as they were installed."""
    wrong = False
    for kind, resource in (
        ("ValidatingAdmissionPolicy", POLICIES),
        ("ValidatingAdmissionPolicyBinding", POLICY_BINDINGS),
    ):
        for finding in _policies(kind, facts.named(resource), facts.namespace):
            wrong = True
            yield finding
    if not wrong:
        yield ok(f"{len(installed.of_kind('ValidatingAdmissionPolicy'))} policies are in force, as installed")


def _policies(kind: str, found: Mapping[str, Body], namespace: str) -> Iterator[Finding]:
    for name, expected in installed.of_kind(kind, namespace).items():
        policy, about = found.get(name), f"{kind} {name}"
        if policy is None:
            yield error("is missing: what it forbids is allowed", APPLY, about)
        elif changed := list(differences(expected["spec"], policy["spec"], "spec")):
            yield error(f"is not the one that was installed: {listed(changed, 3)} differs", APPLY, about)
        elif warnings := _expression_warnings(policy):
            yield warning(f"its expressions do not fit the cluster: {warnings}", APPLY, about)


def _expression_warnings(policy: Body) -> str:
    """The warnings of the API server's type checking of the policy."""
    checking = (policy.get("status") or {}).get("typeChecking") or {}
    return "; ".join(one.get("warning", "") for one in checking.get("expressionWarnings") or ())


def permissions(facts: Facts) -> Iterator[Finding]:
    """Roles grant all that is needed, to the accounts that need it. That they may grant more is nobody's fault."""
    findings = [
        *_accounts(facts),
        *_roles("ClusterRole", facts.named(CLUSTER_ROLES)),
        *_roles("Role", facts.named(ROLES)),
        *_bindings("ClusterRoleBinding", facts.named(CLUSTER_ROLE_BINDINGS), facts.namespace),
        *_bindings("RoleBinding", facts.named(ROLE_BINDINGS), facts.namespace),
    ]
    yield from findings
    if not findings:
        yield ok("accounts, roles and bindings are as installed")


def _accounts(facts: Facts) -> Iterator[Finding]:
    found = facts.named(ACCOUNTS)
    for name in installed.of_kind("ServiceAccount"):
        if name not in found:
            yield error("is missing", APPLY, f"ServiceAccount {facts.namespace}/{name}")


def _roles(kind: str, found: Mapping[str, Body]) -> Iterator[Finding]:
    for name, expected in installed.of_kind(kind).items():
        role, about = found.get(name), f"{kind} {name}"
        if role is None:
            yield error("is missing", APPLY, about)
            continue
        if missing := missing_grants(expected, role):
            yield error(f"does not grant {listed(missing, 3)}", APPLY, about)
        labels = role["metadata"].get("labels") or {}
        for label, value in (expected["metadata"].get("labels") or {}).items():
            if label.startswith(_AGGREGATED_TO) and labels.get(label) != value:
                target = label.removeprefix(_AGGREGATED_TO)
                text = f"has no label {label}={value}: who has the role {target} has no rights on Parley's objects"
                yield warning(text, APPLY, about)


def _bindings(kind: str, found: Mapping[str, Body], namespace: str) -> Iterator[Finding]:
    for name, expected in installed.of_kind(kind).items():
        binding, about = found.get(name), f"{kind} {name}"
        if binding is None:
            yield error("is missing: the account has no rights", APPLY, about)
            continue
        if binding["roleRef"].get("name") != expected["roleRef"]["name"]:
            yield error(
                f"binds role {binding['roleRef'].get('name')}, not {expected['roleRef']['name']}", APPLY, about
            )
        subjects = {(one["kind"], one["name"], one.get("namespace")) for one in binding.get("subjects") or ()}
        for subject in expected["subjects"]:
            if (subject["kind"], subject["name"], namespace) not in subjects:
                account = f"{subject['kind']} {namespace}/{subject['name']}"
                yield error(f"does not name {account}: it has no rights", APPLY, about)


def lane(facts: Facts) -> Iterator[Finding]:
    """Renewals of Leases have a lane of their own in the API server's priority and fairness."""
    found = facts.named(FLOW_SCHEMAS)
    for name, expected in installed.of_kind("FlowSchema").items():
        about = f"FlowSchema {name}"
        schema = found.get(name)
        level = (schema or {}).get("spec", {}).get("priorityLevelConfiguration", {}).get("name")
        if level == expected["spec"]["priorityLevelConfiguration"]["name"]:
            yield ok(f"Lease renewals have priority level {level}", about)
        else:
            text = "is missing" if schema is None else f"has priority level {level}"
            yield warning(f"{text}: under load a leader may lose its Lease", APPLY, about)
