"""Who writes how much, as the API server counts it: a FlowSchema for each account of interest. Pure.

The API server counts the requests of each FlowSchema. Those here take in what one service account writes, leases
left out, and give it the priority that it has anyway; so the count holds for every write, refused ones included.
"""

import re
from collections.abc import Mapping
from typing import Any

METRIC = "apiserver_flowcontrol_dispatched_requests_total"
_LABEL = re.compile(r'flow_schema="([^"]*)"')

Body = Mapping[str, Any]


def flow_schema(namespace: str, account: str) -> Body:
    """Has the writes of the account counted."""
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": account}}
    rule = {
        "verbs": ["create", "update", "patch", "delete", "deletecollection"],
        "apiGroups": ["", "events.k8s.io", "parley.dev", "resource.k8s.io"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": _name(account)},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"},
            "distinguisherMethod": {"type": "ByUser"},
            "matchingPrecedence": 1000,
            "rules": [{"subjects": [subject], "resourceRules": [rule]}],
        },
    }


def written(metrics: str, account: str) -> int:
    """How many writes of the account the API server has seen, by its metrics in the text format."""
    lines = (line for line in metrics.splitlines() if line.startswith(f"{METRIC}{{"))
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if _LABEL.findall(line) == [_name(account)])


def _name(account: str) -> str:
    return f"bench-{account}"


def driver_account(namespace: str, account: str) -> list[tuple[str, Body]]:
    """A service account that may do what `docs/driver-protocol.md` asks of a driver, each object with its path."""
    rbac = "rbac.authorization.k8s.io"
    head = {"metadata": {"name": account}}
    read = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": read},
        {"apiGroups": ["parley.dev"], "resources": ["resourceclasses"], "verbs": read},
        {
            "apiGroups": ["parley.dev"],
            "resources": ["resourceclaims", "resourceclaims/status", "podschedulings"],
            "verbs": [*read, "patch"],
        },
        {
            "apiGroups": ["parley.dev"],
            "resources": ["resourceclaims/driver"],
            "verbs": ["allocate", "associated-driver"],
        },
    ]
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": account}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    return [
        (
            f"/api/v1/namespaces/{namespace}/serviceaccounts",
            {"apiVersion": "v1", "kind": "ServiceAccount", **head},
        ),
        (
            f"/apis/{rbac}/v1/clusterroles",
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", **head, "rules": rules},
        ),
        (
            f"/apis/{rbac}/v1/clusterrolebindings",
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "ClusterRoleBinding",
                **head,
                "roleRef": role,
                "subjects": [subject],
            },
        ),
    ]
