"""Checks whether this node's CRI-O adds CDI devices, as far as its version and configuration files show.

CRI-O has CDI from 1.23 on, always on. It reads the folders of `cdi_spec_dirs` in [crio.runtime] of its
configuration file, or of a file in the folder beside it (crio.conf.d), of which the last by name wins
(crio.conf(5)).
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from parley_kubelet.cdi.containerd import DEFAULT_FOLDERS, RuntimeCheck

_OLDEST: Final = (1, 23)
_VERSION = re.compile(r"cri-o://v?(\d+)\.(\d+)")


def look(version: str, file: Path, cdi: Path) -> Iterator[RuntimeCheck]:
    """The checks; `version` as in a node's status (`cri-o://1.35.0`)."""
    matched = _VERSION.match(version)
    if matched is None:
        yield f"{version}: its version is not known, make sure that it reads CDI files in {cdi}", ""
        return
    if (int(matched[1]), int(matched[2])) < _OLDEST:
        yield version, "update it to 1.23 or later: it does not know CDI"
        return
    folders: list[str] = list(DEFAULT_FOLDERS)
    said_in, unread = "by default", []
    for one in (file, *sorted(file.with_name(f"{file.name}.d").glob("*"))):
        try:
            runtime = tomllib.loads(one.read_text()).get("crio", {}).get("runtime", {})
        except FileNotFoundError:
            continue  # it is optional
        except OSError as error:
            unread.append(f"{one} cannot be read ({error.strerror})")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            unread.append(f"{one} is not TOML ({error})")
        else:
            if "cdi_spec_dirs" in runtime:
                folders, said_in = list(runtime["cdi_spec_dirs"]), str(one)
    for fault in unread:
        yield f"{version}, {fault}", "correct it, or give the right file in --crio-config"
    if cdi.resolve() in [Path(folder).resolve() for folder in folders]:
        yield f"{version} reads CDI files in {cdi}", ""
    else:
        yield (
            f"{version}, {said_in}: cdi_spec_dirs={folders} has no {cdi}",
            "add it in [crio.runtime] and restart CRI-O, or give one of them in --cdi-dir",
        )
