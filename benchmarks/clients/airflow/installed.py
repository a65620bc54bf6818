"""Apache Airflow as its documentation installs it: from PyPI, in its own environment, by `airflow standalone`.

The file of constraints that goes with a release of Airflow is published beside it, not in PyPI; `constraints.txt`
here has what pip resolved on the day of the measurement.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parley_devcluster import Cluster
from parley_devcluster.binaries import cache_directory
from parley_devcluster.gobuild import say
from parley_devcluster.machine import free_ports

NAMESPACE, ACCOUNT = "airflow", "airflow-worker"
"""Of the tasks, in an installation by Airflow's own chart."""

_REQUIREMENTS = ("apache-airflow", "apache-airflow-providers-cncf-kubernetes")
_CONSTRAINTS = Path(__file__).with_name("constraints.txt")
_NAME = "airflow"
_LIMIT = 180.0
_POLL = 1.0


class Airflow:
    """Its API, as its command line and its pages use it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._token = ""

    def wait_for(self, dags: Sequence[str], limit: float = _LIMIT) -> None:
        """Return when it has read these DAGs; they take runs then. Raises TimeoutError."""
        deadline = time.monotonic() + limit
        while not self._has(dags):
            if time.monotonic() > deadline:
                raise TimeoutError(f"Airflow has not read {', '.join(dags)} within {limit:g} s")
            time.sleep(_POLL)
        for dag in dags:
            self._request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})

    def trigger(self, dag: str, parameters: Mapping[str, str]) -> str:
        """Begin a run; returns its identifier."""
        body = {"logical_date": None, "conf": dict(parameters)}
        return str(self._request("POST", f"/api/v2/dags/{dag}/dagRuns", body)["dag_run_id"])

    def run(self, dag: str, run: str) -> Any:
        """The run, with `state`, `start_date` and `end_date`."""
        return self._request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}")

    def tasks(self, dag: str, run: str) -> Mapping[str, Any]:
        """The run's task instances by the name of their task."""
        listing = self._request("GET", f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances")
        return {task["task_id"]: task for task in listing["task_instances"]}

    def log(self, dag: str, run: str, task: str) -> Sequence[str]:
        """The lines of the task's first try."""
        path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/1"
        return [str(entry.get("event", entry)) for entry in self._request("GET", path)["content"]]

    def _has(self, dags: Sequence[str]) -> bool:
        try:
            if not self._token:
                self._token = str(self._request("GET", "/auth/token")["access_token"])
            known = self._request("GET", "/api/v2/dags")["dags"]
        except OSError:
            return False
        return set(dags) <= {entry["dag_id"] for entry in known}

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, headers, method=method)
        with self._open(request, timeout=30) as answer:
            return json.load(answer)


def start(cluster: Cluster, dags: Path, home: Path, patience: int) -> Airflow:
    """Airflow with the DAGs of that folder, as a component of the cluster that ends with it."""
    program = environment() / "bin" / "airflow"
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    account = cluster.kubeconfig_for_service_account(NAMESPACE, ACCOUNT)
    connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(account)}}
    settings = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(connection),
        "PIPELINE_PATIENCE": str(patience),
        "PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin",
    }
    cluster.add_program(_NAME, [str(program), "standalone"], environment=settings)
    return Airflow(address)


def end(cluster: Cluster) -> None:
    """Kill it with the processes that it started: those outlive it, and call themselves by other names."""
    pid = cluster.component(_NAME).pid
    if pid is not None:
        os.killpg(pid, signal.SIGKILL)  # it leads a group of its own, as every component does


def environment() -> Path:
    """The virtual environment, which is made if the per-user cache has none of these versions: 450 MB."""
    constraints = _CONSTRAINTS.read_bytes()
    folder = cache_directory() / "clients" / f"airflow-{hashlib.sha256(constraints).hexdigest()[:12]}"
    done = folder / ".installed"
    if not done.exists():
        say(f"installing Airflow from PyPI in {folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = (Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", f"--python={folder}")
        subprocess.run([*pip, *_REQUIREMENTS, f"--constraint={_CONSTRAINTS}"], check=True)
        done.touch()
    return folder
