"""What a run clones, and with what: a git repository served from a node's address, and an image that has git.

The image is busybox with this machine's git and the libraries that it loads: no registry, and 20 MB.
"""

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from parley_devcluster import Cluster
from parley_devcluster.debian import BUSYBOX
from parley_devcluster.images import Image, archive, layer_tar
from parley_devcluster.machine import free_ports

IMAGE = "parley.dev/git:dev"

_FILES = 200
_NEEDS = re.compile(r"(/\S+) \(0x")
_AUTHOR = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.com")


def serve(cluster: Cluster, folder: Path, address: str) -> str:
    """Make a repository and serve it; returns its address."""
    source = folder / "source"
    source.mkdir(parents=True)
    for number in range(_FILES):
        (source / f"file-{number}").write_text(f"line of file {number}\n" * 50)
    _git(source, "init", "--quiet", "--initial-branch=main")
    _git(source, "add", ".")
    _git(source, *_AUTHOR, "commit", "--quiet", "--message=All files")
    (port,) = free_ports(1)
    daemon = Path(_git(folder, "--exec-path").strip()) / "git-daemon"
    options = ("--export-all", f"--base-path={folder}", f"--listen={address}", f"--port={port}", "--reuseaddr")
    cluster.add_program("git-daemon", [str(daemon), *options])
    return f"git://{address}:{port}/source"


def import_image(cluster: Cluster, folder: Path) -> None:
    """Let pods of all nodes use the image."""
    git = Path(shutil.which("git") or "git").resolve()
    image = Image(IMAGE, _layer(git), {"Env": ["PATH=/bin:/usr/bin"], "WorkingDir": "/"})
    file = archive(folder / "git.tar", [image])
    for node in cluster.nodes:
        cluster.import_images(node.name, file)


def _layer(git: Path) -> bytes:
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    buffer = io.BytesIO(layer_tar(BUSYBOX.read_bytes(), applets))
    loaded = subprocess.run(["ldd", git], capture_output=True, text=True, check=True).stdout
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        tar.add(git, "usr/bin/git")
        for library in sorted(set(_NEEDS.findall(loaded))):
            tar.add(Path(library).resolve(), library)
    return buffer.getvalue()


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True).stdout
