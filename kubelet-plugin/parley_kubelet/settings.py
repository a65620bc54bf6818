"""The command line of `parley-kubelet`, and the same options as environment variables, for a pod's manifest.

An option wins over its variable, which is the option's name in capitals (`--node-name`, NODE_NAME). `doctor`
checks whether the settings are right for the node.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parley_kubelet.configuration import DEFAULT_DRIVER, driver_name

DEVICES: Final = "devices"
"""The value of --driver for the plugin's own driver of the devices in the configuration file."""

WORKSPACES: Final = "workspaces"
"""The value of --driver for the driver `workspace.parley.dev`."""

LAST_PORT: Final = 65_535

SERVE: Final = "serve"
DOCTOR: Final = "doctor"
VERSION: Final = "version"
"""This command is answered by `main`, before this module is loaded."""

TEXT: Final = "text"
WIDE: Final = "wide"
NAME: Final = "name"
JSON: Final = "json"
YAML: Final = "yaml"
FORMATS: Final = (TEXT, WIDE, NAME, JSON, YAML)
"""The output formats of doctor."""


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The plugin's settings.

    `kubeconfig` is None inside a cluster, `state` None for the plugin's own folder in `plugins`, `driver` (the
    name of the device driver) None to use the configuration file's, `metrics_port` None if nothing is served.
    `instance` is the pod's UID, or "" outside of a pod. `drivers` are DEVICES, WORKSPACES or `module:Class`.
    """

    node: str
    config: Path
    plugins: Path
    registry: Path
    cdi: Path
    kubeconfig: Path | None = None
    state: Path | None = None
    driver: str | None = None
    instance: str = ""
    drivers: tuple[str, ...] = (DEVICES,)
    containerd: Path = Path("/etc/containerd/config.toml")
    crio: Path = Path("/etc/crio/crio.conf")
    metrics_port: int | None = None
    command: str = SERVE
    output: str = TEXT
    headings: bool = True

    def state_of(self, driver: str, *, own: bool) -> Path:
        """The folder of the driver's checkpoint. The device driver uses `state` itself, as in earlier versions,
        which had no other drivers."""
        if self.state is None:
            return self.plugins / driver
        return self.state if own else self.state / driver


def parse_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> PluginSettings:
    """The settings. Ends the process with a usage message, status 2, if they are not complete and valid."""
    parser = argparse.ArgumentParser(
        prog="parley-kubelet",
        description="Parley's node plugin: publishes this node's devices and hands them to containers.",
        epilog="Each option can be given as an environment variable: --node-name as NODE_NAME, several drivers as"
        " DRIVER, separated by commas. POD_UID distinguishes two plugins on one node during a rolling update.",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=(SERVE, DOCTOR, VERSION),
        default=SERVE,
        help="serve (the default); doctor: check this node, and say what has to be fixed; version: the same as"
        " --version",
    )
    parser.add_argument(
        "--driver",
        action="append",
        metavar="MODULE:CLASS",
        help="a node driver to serve; can be repeated. 'devices' and 'workspaces' come with the plugin (default: "
        "devices)",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.add_argument(
        "-o", "--output", choices=FORMATS, default=TEXT, help="output format of doctor (default: text)"
    )
    parser.add_argument("--no-headers", action="store_true", help="doctor prints no column headings")
    for option, default, text in _OPTIONS:
        value = environment.get(option.upper().replace("-", "_")) or default
        note = f" (default: {default})" if default else ""
        parser.add_argument(
            f"--{option}", default=value, required=option in _REQUIRED and not value, help=text + note
        )
    given = vars(parser.parse_args(arguments))
    try:
        driver = driver_name(given["driver_name"]) if given["driver_name"] else None
    except ValueError as error:
        parser.error(f"--driver-name={given['driver_name']!r}: {error}")
    return PluginSettings(
        node=given["node_name"],
        config=Path(given["config"]),
        plugins=Path(given["plugins_dir"]),
        registry=Path(given["plugins_registry_dir"]),
        cdi=Path(given["cdi_dir"]),
        kubeconfig=_optional_path(given["kubeconfig"]),
        state=_optional_path(given["state_dir"]),
        driver=driver,
        instance=environment.get("POD_UID", ""),
        drivers=tuple(given["driver"] or _listed(environment.get("DRIVER", ""))) or (DEVICES,),
        containerd=Path(given["containerd_config"]),
        crio=Path(given["crio_config"]),
        metrics_port=_port(parser, given["metrics_port"]),
        command=given["command"],
        output=given["output"],
        headings=not given["no_headers"],
    )


def _port(parser: argparse.ArgumentParser, text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) > LAST_PORT:
        parser.error(f"--metrics-port={text!r}: use a number from 0, for any that is free, to {LAST_PORT}")
    return int(text)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


_REQUIRED = ("node-name", "config")

_OPTIONS = (
    ("kubeconfig", "", "access to the API server; without it, the pod's service account"),
    ("node-name", "", "the node on which this runs; required"),
    ("config", "", "YAML file with the node's devices and the drivers' settings; required"),
    ("plugins-dir", "/var/lib/kubelet/plugins", "the kubelet's folder for the plugins' own sockets"),
    ("plugins-registry-dir", "/var/lib/kubelet/plugins_registry", "where the kubelet looks for plugins"),
    ("cdi-dir", "/var/run/cdi", "where the container runtime looks for CDI specifications"),
    ("state-dir", "", "where checkpoints are kept; without it, in PLUGINS_DIR/DRIVER_NAME"),
    ("driver-name", "", f"name of the driver 'devices'; without it, the one in the file, or {DEFAULT_DRIVER}"),
    ("metrics-port", "", "serve /metrics, and /healthz and /readyz for probes, on this port; without it, none"),
    ("containerd-config", "/etc/containerd/config.toml", "containerd's configuration, which doctor reads"),
    (
        "crio-config",
        "/etc/crio/crio.conf",
        "CRI-O's, likewise, with the files of the folder crio.conf.d beside it",
    ),
)


def _optional_path(text: str) -> Path | None:
    return Path(text) if text else None
