"""Certificates of the extender and its scheduler, made by the commands that docs/extender.md shows."""

import os
import re
import subprocess
from pathlib import Path

from tests.cluster.starting import DEPLOY

from parley_devcluster import Cluster

PAGE = (DEPLOY.parent / "docs" / "extender.md").read_text()


def block(language: str, containing: str) -> str:
    """The one of the page's examples in that language that contains these words."""
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if containing in text)
    return str(found)


def make_certificates(cluster: Cluster, folder: Path) -> None:
    """Files in the folder, and Secrets in Parley's namespace."""
    path = f"{cluster.directory}/bin:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}
    command = ["sh", "-c", block("sh", "openssl")]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
