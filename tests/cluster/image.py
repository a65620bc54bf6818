"""Container images of what deploy/ runs, made without a container engine.

Parley's is what deploy/Dockerfile says: the package with the locked versions in /opt/parley, and the instructions
of its last stage. Python and the libraries that it needs are this machine's, at the same paths.
"""

import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from parley_devcluster.images import Image

CHECKOUT = Path(__file__).parents[2]
HOME = Path("/opt/parley")

_NEEDS = re.compile(r"(/\S+) \(0x")
_UNUSED = {"test", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages"}


def parley_image(name: str, scratch: Path) -> Image:
    """`scratch` is an empty folder for what is made on the way."""
    python = Path(sys.executable).resolve()
    uv = Path(sys.executable).with_name("uv")
    _run(uv, "venv", "--quiet", "--python", python, scratch)
    # the Dockerfile's versions, not compiled: most of that is never imported
    _run(uv, "pip", "install", "--quiet", "--python", scratch, "--constraint", "deploy/requirements.lock", ".")
    for script in (scratch / "bin").glob("parley*"):
        script.write_text(script.read_text().replace(str(scratch), str(HOME)))
    standard = Path(sysconfig.get_path("stdlib"))
    files = {
        **{HOME / path.relative_to(scratch): path for path in _files(scratch)},
        **{path: path for path in _files(standard, _UNUSED)},
        **{path: path for path in python.parent.glob("python3*")},
    }
    programs = [python, *(path for path in files.values() if ".so" in path.suffixes)]
    files |= {path: path.resolve() for path in _libraries(programs)}
    return Image(name, _layer(files), _last_stage((CHECKOUT / "deploy" / "Dockerfile").read_text()))


def _run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=CHECKOUT)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


def _files(folder: Path, without: Iterable[str] = ()) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in without or path.name.startswith("config-"):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path, without)
        else:
            yield path


def _libraries(programs: Sequence[Path]) -> set[Path]:
    """The shared libraries that the dynamic linker would load for any of them, itself included."""
    done = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False)
    return {Path(found) for found in _NEEDS.findall(done.stdout)}


def _layer(files: Mapping[Path, Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("/tmp", "/etc", "/proc", "/sys", "/dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "/tmp" else 0o755
            tar.addfile(entry)
        for target, source in sorted(files.items()):
            tar.add(source, str(target), recursive=False)
    return buffer.getvalue()


def _last_stage(dockerfile: str) -> dict[str, Any]:
    """What its ENV, USER and CMD mean for the container."""
    stage = dockerfile.rpartition("\nFROM ")[2]
    told = dict(
        line.split(" ", 1) for line in stage.splitlines() if line.split(" ", 1)[0] in ("ENV", "USER", "CMD")
    )
    environment = [word.replace("$PATH", "/usr/local/bin:/usr/bin:/bin") for word in told["ENV"].split()]
    return {"Env": environment, "User": told["USER"], "Cmd": json.loads(told["CMD"])}
