"""The manifests of the extender path: its two sides agree, and each line that a trap taught is there."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from parley.cli.main import app
from parley.scheduler.extender.binding import BIND_SECONDS
from parley.scheduler.extender.endpoint import PORT_NAME

DEPLOY = Path(__file__).parents[3] / "deploy"
VARIANTS = ("extender", "extender-service")
by_variant = pytest.mark.parametrize("variant", VARIANTS)


def configuration(variant: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((DEPLOY / variant / "scheduler.yaml").read_text())
    return document


def pod_spec(variant: str, file: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / variant / file).read_text())
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def container(variant: str, file: str, name: str) -> dict[str, Any]:
    (found,) = (it for it in pod_spec(variant, file)["containers"] if it["name"] == name)
    return dict(found)


def controller(variant: str) -> dict[str, Any]:
    return container(variant, "controller.yaml", "controller")


def arguments(variant: str) -> dict[str, str]:
    """The options that the controller gets for the extender."""
    given = (argument.removeprefix("--").partition("=") for argument in controller(variant)["args"])
    options = ("extender-", "pod-ip", "scheduler-name", "follow-lease")
    return {name: value for name, _, value in given if name.startswith(options)}


def scheduler_container(variant: str) -> dict[str, Any]:
    return container(variant, "controller.yaml" if variant == "extender" else "deployment.yaml", "scheduler")


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


@by_variant
def test_the_controller_takes_its_options(variant: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    given = [f"--{name}={value.replace('$(POD_IP)', '10.0.0.1')}" for name, value in arguments(variant).items()]

    command = group.get_command(typer.Context(group), "controller")
    assert command is not None
    parameters = command.make_context("controller", given).params

    assert parameters["extender_address"] == arguments(variant)["extender-address"]
    assert parameters["scheduler_name"] == [arguments(variant)["scheduler-name"]]
    assert str(parameters["extender_client_ca"]) == arguments(variant).get("extender-client-ca", "None")
    assert parameters["follow_lease"] == arguments(variant).get("follow-lease", "")


@by_variant
def test_pods_that_name_the_scheduler_are_those_that_the_controller_leaves_to_it(variant: str) -> None:
    (profile,) = configuration(variant)["profiles"]

    assert profile["schedulerName"] == arguments(variant)["scheduler-name"]


@by_variant
def test_claims_are_left_to_parley_and_all_nodes_are_candidates(variant: str) -> None:
    settings = configuration(variant)

    assert settings["profiles"][0]["plugins"] == {"multiPoint": {"disabled": [{"name": "DynamicResources"}]}}
    assert settings["percentageOfNodesToScore"] == 100


@by_variant
def test_a_failed_attempt_costs_a_second(variant: str) -> None:
    settings = configuration(variant)

    assert (settings["podInitialBackoffSeconds"], settings["podMaxBackoffSeconds"]) == (1, 1)


@by_variant
def test_answers_are_waited_for_briefly_and_a_binding_longer_than_the_controller_takes(variant: str) -> None:
    answering, binding = configuration(variant)["extenders"]

    assert "bindVerb" not in answering
    assert {"filterVerb", "prioritizeVerb", "preemptVerb"} <= answering.keys()
    assert not {"filterVerb", "prioritizeVerb", "preemptVerb"} & binding.keys()
    assert answering["urlPrefix"] == binding["urlPrefix"]
    assert seconds(answering["httpTimeout"]) == 5
    assert seconds(binding["httpTimeout"]) > BIND_SECONDS


@by_variant
def test_no_pod_is_bound_without_the_extender(variant: str) -> None:
    for entry in configuration(variant)["extenders"]:
        assert entry["ignorable"] is False
        assert entry["nodeCacheCapable"] is True
        assert "managedResources" not in entry


def test_both_variants_are_configured_alike_but_for_the_way_to_the_controller() -> None:
    loopback, service = configuration("extender"), configuration("extender-service")
    for settings in (loopback, service):
        for entry in settings["extenders"]:
            for key in ("urlPrefix", "enableHTTPS", "tlsConfig"):
                entry.pop(key, None)

    assert loopback == service


def test_on_loopback_the_scheduler_calls_where_the_controller_listens() -> None:
    for entry in configuration("extender")["extenders"]:
        address = urlsplit(entry["urlPrefix"])
        assert (address.scheme, address.netloc) == ("http", arguments("extender")["extender-address"])
        assert address.hostname == "127.0.0.1"


def test_elsewhere_the_scheduler_calls_the_service_over_tls_with_a_certificate_of_its_own() -> None:
    given = arguments("extender-service")
    documents = list(yaml.safe_load_all((DEPLOY / "extender-service" / "deployment.yaml").read_text()))
    (service,) = (document for document in documents if document["kind"] == "Service")
    (port,) = service["spec"]["ports"]
    (listening,) = (it for it in controller("extender-service")["ports"] if it["name"] == "extender")

    for entry in configuration("extender-service")["extenders"]:
        assert entry["enableHTTPS"] is True
        assert set(entry["tlsConfig"]) == {"caFile", "certFile", "keyFile"}
        assert entry["urlPrefix"] == f"https://{service['metadata']['name']}.parley-system.svc:{port['port']}"
    assert port["port"] == listening["containerPort"]
    assert given["extender-address"].endswith(f":{listening['containerPort']}")
    assert {"extender-tls-cert", "extender-tls-key", "extender-client-ca"} <= given.keys()


def test_the_service_leads_where_the_leader_says() -> None:
    given = arguments("extender-service")
    documents = list(yaml.safe_load_all((DEPLOY / "extender-service" / "deployment.yaml").read_text()))
    (service,) = (document for document in documents if document["kind"] == "Service")

    assert "selector" not in service["spec"]
    assert [port["name"] for port in service["spec"]["ports"]] == [PORT_NAME]
    assert (given["extender-service"], given["pod-ip"]) == (service["metadata"]["name"], "$(POD_IP)")


def test_on_loopback_the_controller_follows_the_schedulers_lease() -> None:
    election = configuration("extender")["leaderElection"]

    assert election["leaderElect"] is True
    assert election["resourceName"] == arguments("extender")["follow-lease"]
    assert "follow-lease" not in arguments("extender-service")


@by_variant
def test_the_scheduler_reads_the_configuration_that_is_mounted(variant: str) -> None:
    container = scheduler_container(variant)
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    (config,) = (a.partition("=")[2] for a in container["args"] if a.startswith("--config="))
    files = {config}
    for entry in configuration(variant)["extenders"]:
        files |= set(entry.get("tlsConfig", {}).values())

    assert {str(Path(file).parent) for file in files} == mounted
    assert Path(config).name == "scheduler.yaml"


@by_variant
def test_the_scheduler_has_no_privileges(variant: str) -> None:
    security = scheduler_container(variant)["securityContext"]

    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}


@by_variant
def test_the_version_of_the_scheduler_is_what_kustomize_sets(variant: str) -> None:
    (image,) = yaml.safe_load((DEPLOY / variant / "kustomization.yaml").read_text())["images"]

    assert scheduler_container(variant)["image"] == f"{image['name']}:{image['newTag']}"
