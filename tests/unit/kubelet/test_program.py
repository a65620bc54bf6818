"""The program itself: options, environment, SIGTERM, and one sentence where it cannot start."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import orjson
import pytest
import yaml

from parley_kubelet.settings import PluginSettings, parse_arguments
from parley_kubelet.state.durable import Folder
from parley_kubelet.testing import Kubelet, until


def test_options() -> None:
    arguments = "--kubeconfig /k --node-name n1 --config /c --plugins-dir /p --plugins-registry-dir /r"
    assert parse_arguments(
        [
            *arguments.split(),
            *["--cdi-dir", "/cdi", "--state-dir", "/s", "--driver-name", "gpu.example.com"],
            *["--driver", "devices", "--driver", "a:B", "--containerd-config", "/t", "--metrics-port", "8080"],
            *["--crio-config", "/o", "-o", "wide", "--no-headers"],
        ],
        {},
    ) == PluginSettings(
        node="n1",
        config=Path("/c"),
        plugins=Path("/p"),
        registry=Path("/r"),
        cdi=Path("/cdi"),
        kubeconfig=Path("/k"),
        state=Path("/s"),
        driver="gpu.example.com",
        drivers=("devices", "a:B"),
        containerd=Path("/t"),
        crio=Path("/o"),
        metrics_port=8080,
        output="wide",
        headings=False,
    )


def test_the_environment_of_a_pod() -> None:
    environment = {"NODE_NAME": "n1", "CONFIG": "/c", "POD_UID": "u1", "CDI_DIR": "/etc/cdi", "KUBECONFIG": ""}
    environment |= {"DRIVER": "devices, a:B"}
    assert parse_arguments([], environment) == PluginSettings(
        node="n1",
        config=Path("/c"),
        plugins=Path("/var/lib/kubelet/plugins"),
        registry=Path("/var/lib/kubelet/plugins_registry"),
        cdi=Path("/etc/cdi"),
        instance="u1",
        drivers=("devices", "a:B"),
    )


def test_without_any_driver_the_devices_of_the_file_are_served() -> None:
    assert parse_arguments([], {"NODE_NAME": "n1", "CONFIG": "/c"}).drivers == ("devices",)


def test_the_device_driver_keeps_its_checkpoint_where_it_was_whatever_else_is_served() -> None:
    options = ["--node-name", "n1", "--config", "/c"]
    settings = parse_arguments([*options, "--state-dir", "/s"], {})
    assert settings.state_of("device.parley.dev", own=True) == Path("/s")
    assert settings.state_of("gpu.example.com", own=False) == Path("/s/gpu.example.com")
    plugins = Path("/var/lib/kubelet/plugins")
    assert parse_arguments(options, {}).state_of("device.parley.dev", own=True) == plugins / "device.parley.dev"


def test_an_option_wins_over_the_environment() -> None:
    assert parse_arguments(["--node-name", "n2", "--config", "/c"], {"NODE_NAME": "n1"}).node == "n2"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "the following arguments are required: --node-name, --config"),
        (
            ["--node-name", "n1", "--config", "/c", "--driver-name", "GPU"],
            "--driver-name='GPU': use a lower-case DNS name of at most 63 characters that starts with a letter,"
            " such as device.parley.dev",
        ),
        (
            ["--node-name", "n1", "--config", "/c", "--metrics-port", "http"],
            "--metrics-port='http': use a number from 0, for any that is free, to 65535",
        ),
    ],
)
def test_wrong_options(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(arguments, {})
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"parley-kubelet: error: {reason}"


@pytest.fixture
def options(folder: Path) -> dict[str, str]:
    """A plugin whose API server does not answer."""
    (folder / "devices.yaml").write_text("devices: [{name: gpu-0, model: a100}]")
    server = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [server],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    return {
        "--kubeconfig": str(folder / "kubeconfig"),
        "--node-name": "n1",
        "--config": str(folder / "devices.yaml"),
        "--plugins-dir": str(folder / "plugins"),
        "--plugins-registry-dir": str(folder / "registry"),
        "--cdi-dir": str(folder / "cdi"),
    }


def sockets_in(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.rglob("*.sock"))]


def is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@asynccontextmanager
async def program(
    options: Mapping[str, str], environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = [part for option in options.items() for part in option]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley_kubelet", *arguments),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_sigterm_ends_it_and_removes_the_sockets(folder: Path, options: dict[str, str]) -> None:
    async with program(options, {"POD_UID": "u1"}) as process:
        path = folder / "registry/device.parley.dev-u1-reg.sock"
        await until(path.exists)
        async with Kubelet(path) as kubelet:
            assert kubelet.info.endpoint == str(folder / "plugins/device.parley.dev/dra-u1.sock")
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    assert sockets_in(folder) == []


async def test_sigterm_ends_a_start_that_waits_for_a_frozen_plugin(folder: Path, options: dict[str, str]) -> None:
    """The other one of a rolling update, in the middle of a write."""
    state = folder / "plugins/device.parley.dev"
    with Folder(state).locked():
        async with program(options, {"POD_UID": "u1"}) as process:
            await until((state / "spare").exists)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0
    assert sockets_in(folder) == []


async def test_after_a_kill_it_starts_over_the_sockets_that_stayed(folder: Path, options: dict[str, str]) -> None:
    path = folder / "registry/device.parley.dev-reg.sock"
    async with program(options, {}) as killed:
        await until(path.exists)
        killed.kill()
    assert sockets_in(folder) == ["dra.sock", "device.parley.dev-reg.sock"]
    async with program(options, {}):
        await until(lambda: is_served(path))
        async with Kubelet(path) as kubelet:
            assert kubelet.info.name == "device.parley.dev"


async def test_what_it_says_when_it_cannot_start(folder: Path, options: dict[str, str]) -> None:
    (folder / "devices.yaml").write_text("devices: [{name: gpu-0}]")
    async with program(options, {}) as process:
        _, errors = await process.communicate()
        assert process.returncode == 2
    assert errors.decode() == (f"parley-kubelet: {folder}/devices.yaml: devices[0].model is missing: add it\n")


async def test_a_start_loads_nothing_that_only_others_need_and_leaves_it_to_drivers(tmp_path: Path) -> None:
    program = (
        "import sys; from parley_kubelet.main import main;"
        f"ended = main(['--node-name', 'n1', '--config', {str(tmp_path / 'absent')!r}]);"
        "print(ended, sorted({'rich', 'kubernetes', 'parley_kubelet.doctor'} & sys.modules.keys()));"
        "import rich"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert (out.decode(), process.returncode) == ("2 []\n", 0)


@pytest.mark.parametrize("asked", ["--version", "version"])
async def test_its_version_is_printed_without_loading_what_serves(asked: str) -> None:
    program = (
        f"import sys; from parley_kubelet.main import main; main([{asked!r}]);"
        "print(sorted({'grpc', 'aiohttp', 'structlog', 'parley_kubelet.program'} & sys.modules.keys()))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode() == f"{version('parley')}\n[]\n"


async def test_the_doctor_as_data_and_with_a_status_of_its_own(folder: Path, options: dict[str, str]) -> None:
    arguments = ["doctor", "-o", "json", *(part for option in options.items() for part in option)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley_kubelet", *arguments), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    data = orjson.loads(out)
    assert (process.returncode, data["apiVersion"], data["kind"], data["nodeName"]) == (
        8,
        "cli.parley.dev/v1alpha1",
        "NodeDiagnosis",
        "n1",
    )
    assert data["items"][-1] == {
        "subject": "API server",
        "found": "http://127.0.0.1:9 does not answer: connection refused",
        "remedy": "correct --kubeconfig and --node-name, or apply deploy/base again",
        "well": False,
    }


async def test_without_a_kubeconfig_it_ends_with_another_status(options: dict[str, str]) -> None:
    async with program({**options, "--kubeconfig": "/nowhere/config"}, {}) as process:
        _, errors = await process.communicate()
        assert process.returncode == 4
    assert errors.decode() == (
        "parley-kubelet: kubeconfig /nowhere/config, current context: no such file; "
        "name another one with --kubeconfig or KUBECONFIG\n"
    )


async def test_a_port_that_is_taken_ends_it_with_a_status_of_its_own(options: dict[str, str]) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        async with program({**options, "--metrics-port": str(port)}, {}) as process:
            _, errors = await process.communicate()
    assert (process.returncode, errors.decode().splitlines()[-1]) == (
        7,
        f"parley-kubelet: cannot serve at port {port}: address already in use: give another one in --metrics-port",
    )


@pytest.mark.parametrize(
    ("option", "place", "status", "message"),
    [
        (
            "--plugins-dir",
            "/proc/none",
            1,
            "/proc/none: no such file or directory: name a folder that can be written",
        ),
        (
            "--plugins-registry-dir",
            "/proc/self",
            7,
            "socket /proc/self/device.parley.dev-reg.sock: cannot be made: check that the folder can be written",
        ),
    ],
)
async def test_a_folder_that_cannot_be_written_is_named(
    options: dict[str, str], option: str, place: str, status: int, message: str
) -> None:
    async with program({**options, option: place}, {}) as process:
        _, errors = await process.communicate()
    assert (process.returncode, errors.decode().splitlines()[-1]) == (status, f"parley-kubelet: {message}")
