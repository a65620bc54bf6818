"""The kubeconfig files of a cluster, with certificates and tokens inline, so that each file can be used by
itself."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from parley_devcluster.certificates import KeyPair


def with_certificate(server: str, authority: Path, pair: KeyPair) -> dict[str, Any]:
    """A kubeconfig whose user authenticates with a client certificate."""
    user = {"client-certificate-data": _inline(pair.certificate), "client-key-data": _inline(pair.key)}
    return _document(server, authority, user)


def with_token(server: str, authority: Path, token: str) -> dict[str, Any]:
    """A kubeconfig whose user authenticates with a bearer token."""
    return _document(server, authority, {"token": token})


def write(path: Path, document: dict[str, Any]) -> Path:
    """Write the document atomically, readable by its owner only; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(document, file, indent=2)
    partial.rename(path)
    return path


def _document(server: str, authority: Path, user: dict[str, str]) -> dict[str, Any]:
    """A kubeconfig with one cluster, user and context. It is written as JSON, which is YAML."""
    name = "parley"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": _inline(authority)}}
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def _inline(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
