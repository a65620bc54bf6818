"""Kinds that only the doctor reads, as plain dictionaries."""

from typing import Any

from parley.api.resources import Resource

Body = dict[str, Any]


def _kind(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Resource[Body]:
    return Resource(group, "v1", plural, kind, namespaced, Body)


CRDS = _kind("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition")
POLICIES = _kind("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
POLICY_BINDINGS = _kind(
    "admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)
CLUSTER_ROLES = _kind("rbac.authorization.k8s.io", "clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS = _kind("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding")
ROLES = _kind("rbac.authorization.k8s.io", "roles", "Role", namespaced=True)
ROLE_BINDINGS = _kind("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", namespaced=True)
FLOW_SCHEMAS = _kind("flowcontrol.apiserver.k8s.io", "flowschemas", "FlowSchema")
ACCOUNTS = _kind("", "serviceaccounts", "ServiceAccount", namespaced=True)
DEPLOYMENTS = _kind("apps", "deployments", "Deployment", namespaced=True)
DAEMON_SETS = _kind("apps", "daemonsets", "DaemonSet", namespaced=True)
