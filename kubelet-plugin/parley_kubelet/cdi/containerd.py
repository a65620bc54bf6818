"""Checks whether this node's containerd adds CDI devices, as far as its version and configuration file show.

In containerd 1.7 CDI is off by default, in 2.0 and later always on; both read two folders by default (containerd,
documentation of the CRI plugin). `cdi.crio` checks CRI-O; other runtimes are reported without a check.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

DEFAULT_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
_PLUGINS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_VERSION = re.compile(r"containerd://v?(\d+)\.(\d+)")

RuntimeCheck = tuple[str, str]
"""What was found, and the remedy; "" if nothing is wrong."""


def look(version: str, file: Path, cdi: Path) -> Iterator[RuntimeCheck]:
    """The checks; `version` as in a node's status (`containerd://2.1.4`)."""
    matched = _VERSION.match(version)
    if matched is None:
        yield f"{version or 'not known yet'}: not containerd, make sure that it reads CDI files in {cdi}", ""
        return
    major, minor = int(matched[1]), int(matched[2])
    if (major, minor) < (1, 7):
        yield version, "update it to 1.7 or later: it does not know CDI"
        return
    configuration = _read(file)
    if isinstance(configuration, str):
        yield (
            f"{version}, {configuration}",
            ""
            if major > 1
            else f"give the file in --containerd-config; it must say enable_cdi = true for {version}",
        )
        return
    yield from _settings(version, major, configuration, file, cdi)


def _read(file: Path) -> Mapping[str, Any] | str:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        return f"{file} cannot be read ({error.strerror}), so its defaults are assumed"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return f"{file} is not TOML ({error})"


def _settings(
    version: str, major: int, configuration: Mapping[str, Any], file: Path, cdi: Path
) -> Iterator[RuntimeCheck]:
    section, settings = _section(configuration)
    if major == 1 and settings.get("enable_cdi") is not True:
        yield (
            f"{version}, {file}: enable_cdi={settings.get('enable_cdi')!r}",
            f"set enable_cdi = true in [plugins.'{section}'], and restart containerd",
        )
    folders = settings.get("cdi_spec_dirs", DEFAULT_FOLDERS)
    if cdi.resolve() not in [Path(folder).resolve() for folder in folders]:
        yield (
            f"{version}, {file}: cdi_spec_dirs={list(folders)} has no {cdi}",
            f"add it in [plugins.'{section}'] and restart containerd, or give one of them in --cdi-dir",
        )
    else:
        yield f"{version} reads CDI files in {cdi}", ""


def _section(configuration: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    plugins = configuration.get("plugins", {})
    for name in _PLUGINS:
        if name in plugins:
            return name, plugins[name]
    return _PLUGINS[0 if configuration.get("version", 2) >= 3 else 1], {}
