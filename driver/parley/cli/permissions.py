"""The service account of a standalone driver, as Kubernetes objects, with permissions for that driver's objects
only.

Its parts that are the same for all drivers, the ClusterRole `parley-driver` and the policies that hold accounts to
their drivers, are in `deploy/base/driver.yaml`.
"""

from typing import Any, Final

from parley.api.names import GROUP, driver_lease

Manifest = dict[str, Any]

EVERY_DRIVERS_ROLE: Final = "parley-driver"
_RBAC: Final = "rbac.authorization.k8s.io"


def lease_name(driver: str) -> str:
    """The Lease by which replicas of the driver elect one that works."""
    return driver_lease(driver)


def account_name(driver: str) -> str:
    """The driver's service account, and what is granted to it."""
    return f"parley-driver-{driver}"


def permissions(driver: str, namespace: str) -> list[Manifest]:
    """A service account in the namespace that may act as the driver of that name, with the Lease of its election.

    The Lease is made here, so that the account need not be allowed to make any.
    """
    account = account_name(driver)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    own_name = _rule(GROUP, "resourceclaims/driver", driver, "allocate")
    own_lease = _rule("coordination.k8s.io", "leases", lease_name(driver), "get", "patch", "update")
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}},
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": account}, "rules": [own_name]},
        _binding("ClusterRoleBinding", account, subject, "ClusterRole", account),
        _binding("ClusterRoleBinding", f"{account}-common", subject, "ClusterRole", EVERY_DRIVERS_ROLE),
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease_name(driver), "namespace": namespace},
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": {"name": account, "namespace": namespace},
            "rules": [own_lease],
        },
        _binding("RoleBinding", account, subject, "Role", account),
    ]


def _rule(group: str, resource: str, name: str, *verbs: str) -> Manifest:
    return {"apiGroups": [group], "resources": [resource], "resourceNames": [name], "verbs": list(verbs)}


def _binding(kind: str, name: str, subject: dict[str, str], role_kind: str, role: str) -> Manifest:
    place = {"namespace": subject["namespace"]} if kind == "RoleBinding" else {}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name, **place},
        "roleRef": {"apiGroup": _RBAC, "kind": role_kind, "name": role},
        "subjects": [subject],
    }
