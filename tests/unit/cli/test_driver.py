"""`parley driver run` and `parley controller --driver`: which class is meant, and what is said of a wrong one."""

import asyncio
import os
from pathlib import Path

import pytest
import yaml
from typer import BadParameter
from typer.testing import CliRunner

from parley.api.resources import LEASES
from parley.cli.drivers import driver_class, driver_classes, driver_name
from parley.cli.leading import Options, serve
from parley.cli.main import app
from parley.cli.permissions import permissions
from parley.drivers.tokens import TokensDriver
from parley.kube.memory import MemoryServer
from parley.sdk.standalone import StandaloneDriver
from parley.simulate.virtual_time import run


def test_a_short_name_or_a_class_of_a_module_means_a_driver() -> None:
    assert driver_class("tokens") is TokensDriver
    assert driver_class("parley.drivers.tokens:TokensDriver") is TokensDriver


def test_a_driver_may_be_a_file_in_the_folder_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from parley.drivers.tokens import TokensDriver\nclass Mine(TokensDriver):\n    name = 'mine.com'\n"
    (tmp_path / "a_driver_of_mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert driver_class("a_driver_of_mine:Mine").name == "mine.com"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("disks", "'disks' is not known: give one of device, tokens, workspace, or MODULE:CLASS"),
        (
            "absent:Driver",
            "'absent:Driver': module 'absent' cannot be imported: No module named 'absent': install it, or run "
            "this in its folder",
        ),
        (
            "os:Driver",
            "'os:Driver': os has no class 'Driver' that derives from parley.sdk.Driver: name the driver's class",
        ),
        (
            "os:getcwd",
            "'os:getcwd': os has no class 'getcwd' that derives from parley.sdk.Driver: name the driver's class",
        ),
    ],
)
def test_a_wrong_name_is_told_with_what_to_give_instead(text: str, words: str) -> None:
    with pytest.raises(BadParameter) as refused:
        driver_class(text)
    assert refused.value.message == words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("name = 'My_Disks'", "name='My_Disks' must be a DNS subdomain of at most 63 characters, such as"),
        (f"name = '{'a' * 64}'", "must be a DNS subdomain of at most 63 characters"),
        ("pass", "name='' must be a DNS subdomain"),
        (
            "name = 'a.b'\n    def __init__(self, url): pass",
            "it must be made without arguments (missing a required",
        ),
        (
            "name = 'a.b'",
            "parameters is missing: set it to a class that derives from parley.sdk.Parameters, or NoParameters",
        ),
        (
            "name, parameters, class_parameters = 'a.b', NoParameters, dict",
            "class_parameters is <class 'dict'>: set it to a class that derives from parley.sdk.Parameters",
        ),
        (
            "name, parameters, class_parameters = 'a.b', NoParameters, NoParameters\n"
            "    async def restore(self, held): pass\n"
            "    async def forget(self, uid): pass",
            "restore and forget must not be async: Parley calls it without await, and nothing of it runs",
        ),
        (
            "name, parameters, class_parameters = 'a.b', NoParameters, NoParameters\n"
            "    parameter_versions = {'a.b/v1': NoParameters, 'a.b/v2': Parameters}",
            "parameter_versions ends with Parameters, and parameters is NoParameters: put the newest version last",
        ),
        (
            "name, parameters, class_parameters = 'a.b', NoParameters, NoParameters\n"
            "    class_parameter_versions = {'a.b/v1': Parameters, 'a.b/v2': NoParameters}",
            "class_parameter_versions has Parameters, which is not the newest version: write newest() in "
            "Parameters, to return the same parameters as NoParameters",
        ),
        (
            "name, parameters, class_parameters = 'a.b', NoParameters, NoParameters\n"
            "    parameter_versions = ['a.b/v1']",
            "parameter_versions is ['a.b/v1']: set it to a mapping from apiVersion to classes like parameters",
        ),
    ],
)
def test_a_class_that_cannot_be_run_is_told_with_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    module = f"wrong_{abs(hash(body))}"
    text = f"from parley.sdk import Driver, NoParameters, Parameters\nclass Wrong(Driver):\n    {body}\n"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadParameter) as refused:
        driver_class(f"{module}:Wrong")
    assert refused.value.message.startswith(f"'{module}:Wrong': ")
    assert words in refused.value.message


def test_two_drivers_of_one_name_do_not_run_in_one_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from parley.drivers.tokens import TokensDriver\nclass Mine(TokensDriver): pass\n"
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadParameter) as refused:
        driver_classes(["tokens", "mine:Mine"])
    assert refused.value.message == (
        "'mine:Mine' and 'tokens' both have name='tokens.parley.dev': run one of them, or rename yours"
    )
    assert driver_classes(["tokens", "parley.drivers.tokens:TokensDriver"]) == [TokensDriver]


def test_a_wrong_driver_is_a_wrong_option() -> None:
    for command in (["driver", "run", "disks"], ["controller", "--driver", "disks"]):
        result = CliRunner(env={**os.environ, "COLUMNS": "200"}).invoke(app, command)
        assert result.exit_code == 2
        assert "'disks' is not known" in result.output


def test_a_driver_leads_by_a_lease_of_its_own() -> None:
    async def story() -> None:
        client = MemoryServer().client()
        options = Options("a", lease_name="parley-driver-tokens.parley.dev")
        task = asyncio.create_task(
            serve(client, options, lambda _: client, lambda leased, _: StandaloneDriver(leased, TokensDriver()))
        )
        await asyncio.sleep(1)
        lease = await client.get(LEASES, options.lease_name, options.namespace)
        assert lease.spec.holder_identity == "a"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(story())


def test_the_account_of_a_driver_is_printed_as_manifests() -> None:
    result = CliRunner().invoke(app, ["driver", "permissions", "tokens", "--namespace", "licences"])

    assert result.exit_code == 0
    documents = list(yaml.safe_load_all(result.output))
    assert documents == permissions("tokens.parley.dev", "licences")
    assert {document["metadata"].get("namespace", "licences") for document in documents} == {"licences"}
    (rules,) = (d["rules"] for d in documents if d["kind"] == "ClusterRole")
    assert [rule["resourceNames"] for rule in rules] == [["tokens.parley.dev"]]
    (lease,) = (d["metadata"]["name"] for d in documents if d["kind"] == "Lease")
    (renewing,) = (d["rules"] for d in documents if d["kind"] == "Role")
    assert [(rule["resourceNames"], "create" in rule["verbs"]) for rule in renewing] == [([lease], False)]


def test_a_driver_in_another_language_is_named_by_its_name() -> None:
    assert driver_name("seats.example.com") == "seats.example.com"
    assert driver_name("device") == "device.parley.dev"
    for text in ("disks", "Seats.example.com", "a." + "b" * 64):
        with pytest.raises(BadParameter) as refused:
            driver_name(text)
        assert refused.value.message == (
            f"{text!r} is not known: give one of device, tokens, workspace, MODULE:CLASS, "
            "or a name like disks.example.com"
        )
