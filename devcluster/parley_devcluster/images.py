"""Container images that need no registry: `docker-archive` tar files as `ctr images import` takes them.

Two are made from busybox-static for every cluster: one to run pods with, one to pause with. The first is there
under the public name that the examples have as well, so that they run here as anywhere.
"""

from __future__ import annotations

import hashlib
import io
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

BUSYBOX = "parley.dev/busybox:dev"
PUBLIC_BUSYBOX = "docker.io/library/busybox:1.37"
"""What a kubelet makes of `busybox:1.37`, the image of all examples: any cluster pulls it, and this one has it."""
PAUSE = "parley.dev/pause:dev"

_WAIT = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"
_COMMANDS = {BUSYBOX: ["/bin/sh"], PUBLIC_BUSYBOX: ["/bin/sh"], PAUSE: ["/bin/sh", "-c", _WAIT]}
"""The first process of a container ignores SIGTERM unless it handles it, so pausing is more than a sleep."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = {"bin": 0o755, "dev": 0o755, "etc": 0o755, "proc": 0o755, "root": 0o700, "sys": 0o755, "tmp": 0o1777}


@dataclass(frozen=True)
class Image:
    """An image of one layer: its full name, the layer as a tar file, and the `config` of the OCI specification."""

    name: str
    layer: bytes
    config: Mapping[str, Any]


def archive(target: Path, images: Sequence[Image]) -> Path:
    """Write the images into one archive at `target`, which is returned; a layer in common is there once."""
    files: dict[str, bytes] = {}
    manifest: list[dict[str, Any]] = []
    for image in images:
        digest = hashlib.sha256(image.layer).hexdigest()
        config = orjson.dumps(_configuration(image.config, digest))
        file, layer = f"{hashlib.sha256(config).hexdigest()}.json", f"{digest}.tar"
        files |= {file: config, layer: image.layer}
        manifest.append({"Config": file, "RepoTags": [image.name], "Layers": [layer]})
    files["manifest.json"] = orjson.dumps(manifest)
    with tarfile.open(target, mode="w") as tar:
        for name, data in files.items():
            _add(tar, name, data)
    return target


def busybox_images(busybox: Path) -> Sequence[Image]:
    """Raises `OSError` or `subprocess.CalledProcessError` where `busybox` cannot be read or run."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    layer = layer_tar(busybox.read_bytes(), listed.stdout.split())
    return [
        Image(name, layer, {"Cmd": command, "Env": ["PATH=/bin"], "WorkingDir": "/"})
        for name, command in _COMMANDS.items()
    ]


def program_image(name: str, program: Path) -> Image:
    """One program that needs nothing else, found by its name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add_folders(tar)
        _add(tar, f"usr/local/bin/{program.name}", program.read_bytes(), mode=0o755)
    return Image(name, buffer.getvalue(), {"Env": ["PATH=/usr/local/bin"], "Entrypoint": [program.name]})


def layer_tar(busybox: bytes, applets: Sequence[str]) -> bytes:
    """The file system of both: busybox, a link for each applet, and the folders that programs expect."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add_folders(tar)
        _add(tar, "bin/busybox", busybox, mode=0o755)
        for applet in applets:
            if applet != "busybox":
                _add(tar, f"bin/{applet}", mode=0o777, kind=tarfile.SYMTYPE, link="busybox")
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        _add(tar, "etc/group", b"root:x:0:\nnobody:x:65534:\n")
    return buffer.getvalue()


def _configuration(config: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """An image's configuration, in the form of the OCI image specification."""
    machine = platform.machine()
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }


def _add_folders(tar: tarfile.TarFile) -> None:
    for folder, mode in _FOLDERS.items():
        _add(tar, folder, mode=mode, kind=tarfile.DIRTYPE)


def _add(
    tar: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
) -> None:
    """Owner root and time 0: the same busybox gives the same image."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(data), mode, kind, link
    tar.addfile(entry, io.BytesIO(data))
