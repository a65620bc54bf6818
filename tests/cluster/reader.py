"""A reader of the documentation at a real control plane: a shell in a checkout, where kubectl means the cluster.

Commands are typed as a page has them. The folder has the README's driver, and a kubeconfig with the reader's
namespace.
"""

import asyncio
import re
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.starting import DEPLOY
from tests.cluster.watching import LIMIT
from tests.support.shell import PROGRAMS, path

from parley_devcluster import Cluster
from parley_devcluster.processes import MARK

ROOT = DEPLOY.parent

COMMAND_LIMIT = 400.0
"""Seconds: the namespace controller may look at a namespace that has pods again only at its resync, after five
minutes, and a command that deletes one waits for that."""


@dataclass(frozen=True)
class Typed:
    """What a command printed on both streams, and its exit status."""

    output: str
    status: int


@dataclass(frozen=True)
class Reader:
    """A shell for the cluster, in the folder."""

    cluster: Cluster
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, folder: Path, namespace: str = "default", **environment: str) -> "Reader":
        """With the administrator's kubeconfig, whose context has that namespace."""
        for name in ("crds", "deploy", "examples"):
            (folder / name).symlink_to(ROOT / name)
        (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
        (folder / "licences.py").write_text(code)
        kubeconfig = folder / "kubeconfig"
        shutil.copy(cluster.kubeconfig, kubeconfig)
        programs = path(cluster.directory / "bin", PROGRAMS)
        given = {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(folder),
            "PATH": programs,
            MARK: str(cluster.directory),
        }
        chosen = ("config", "set-context", "--current", f"--namespace={namespace}", f"--kubeconfig={kubeconfig}")
        cluster.kubectl(*chosen)
        return cls(cluster, folder, {"PYTHONUNBUFFERED": "1", **given, **environment})

    async def __call__(self, command: str, *, status: int = 0) -> str:
        """Type a command that ends, with that exit status; what it printed."""
        async with self.typed(command) as process, asyncio.timeout(COMMAND_LIMIT):
            output, _ = await process.communicate()
        assert process.returncode == status, f"{command}: exit status {process.returncode}\n{output.decode()}"
        return output.decode()

    @asynccontextmanager
    async def typed(self, command: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The shell that the command runs in; at the end of the block Ctrl-C ends what still runs."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", f"exec {command}" if _simple(command) else command),
            cwd=self.folder,
            env=dict(self.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A shell lets what runs in the background ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
                await process.wait()


def _simple(command: str) -> bool:
    """Whether it is one program, which then takes the shell's place and gets its signals."""
    return not re.search(r"[|;&\n]", command) and "=" not in command.split()[0]


async def line(process: asyncio.subprocess.Process, containing: str) -> str:
    """The first line with that text, of what is printed from now on."""
    assert process.stdout is not None
    printed = []
    async with asyncio.timeout(LIMIT):
        while text := (await process.stdout.readline()).decode():
            printed.append(text)
            if containing in text:
                return text.rstrip("\n")
    raise AssertionError(f"it ended without {containing!r}:\n{''.join(printed)}")
