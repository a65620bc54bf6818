"""What is read, and what is told where something can't be."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from tests.unit.explain.conftest import Play, explained, text_of
from tests.unit.scheduler.conftest import World

from parley.api.resources import BUILTIN_CLAIMS, CLAIM_RELEASES, NODES, PODS, RESOURCE_SLICES, Resource
from parley.explain.errors import Unanswerable, readable_errors
from parley.explain.explaining import explain, explain_waiting, namespaces_of
from parley.explain.overview import classes, waits
from parley.explain.snapshot import read
from parley.kube.client import (
    ApiError,
    Call,
    Client,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    ServerError,
    Unauthorized,
)
from parley.kube.credentials import NoConfiguration

T = TypeVar("T")


class Refusing(Client):
    """A server that refuses what `refuse` says an error for."""

    def __init__(self, client: Client, refuse: Callable[[Call], ApiError | None]) -> None:
        super().__init__(client)
        self._refuse = refuse

    async def request(self, call: Call) -> bytes:
        if error := self._refuse(call):
            raise error
        return await super().request(call)


async def one_waits(world: World) -> None:
    world.start_parley()
    await world.add_node("a", 1)
    await world.add_class()
    await world.add_template("two", count=2)
    await world.add_pod("wants", "two")
    await world.settle()


def of_one_namespace(world: World) -> Client:
    """The client of a user who may read namespaced objects of one namespace, and nothing else."""

    def refuse(call: Call) -> ApiError | None:
        if call.verb == "list" and call.namespace is None:
            return Forbidden(403, "Forbidden", f"{call.resource.plural} is forbidden at the cluster scope")
        return None

    return Refusing(world.client, refuse)


def test_who_sees_one_namespace_only_is_told_what_is_missing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)

        told = await explain(of_one_namespace(world), world.clock(), "default", "wants")

        assert (told.code, [row.node for row in told.nodes]) == ("NothingViable", ["a"])
        assert "nodes is forbidden at the cluster scope" in told.unread
        assert [(claim.class_name, claim.state) for claim in told.claims] == [("gpu", "pending")]
        assert told.remedies == ()

    play(scenario)


def test_who_sees_one_namespace_only_is_told_what_claims_of_it_lack(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        await world.add_class("strange", driverName="strange.example.com")
        await world.add_template("strange", class_name="strange")
        await world.add_pod("misspelt", claims=["dsik"])
        await world.add_pod("asks", "strange")
        await world.settle()
        client = of_one_namespace(world)

        missing = await explain(client, world.clock(), "default", "misspelt")
        silent = await explain(client, world.clock(), "default", "asks")

        message = (
            "claim default/dsik does not exist: create a ResourceClaim of parley.dev (or of resource.k8s.io) with "
            "that name"
        )
        assert (missing.code, missing.message) == ("ClaimNotFound", message)
        assert [(claim.state, claim.message) for claim in missing.claims] == [("ClaimNotFound", message)]
        assert silent.code == "DriverNotAnswering"
        assert [(claim.state, claim.message) for claim in silent.claims] == [("pending", "")]
        assert [one.text.partition(" for ")[0] for one in silent.findings if one.by.startswith("driver")] == [
            "has not answered about claim gpu-0"
        ]

    play(scenario)


@pytest.mark.parametrize("width", [None, 60])
@pytest.mark.parametrize("nodes_are_read", [True, False])
def test_a_pod_without_candidates_is_explained_without_nodes(
    play: Play, width: int | None, nodes_are_read: bool
) -> None:
    """Of which the cluster has none, or the user may read none."""

    def refuse(call: Call) -> ApiError | None:
        hidden = call.resource == NODES and not nodes_are_read
        return Forbidden(403, "Forbidden", "nodes are forbidden") if hidden else None

    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("wants", "one")
        await world.settle()

        told = await explain(Refusing(world.client, refuse), world.clock(), "default", "wants")

        assert "has been waiting for 60 s: NoCandidates" in text_of(told, width)

    play(scenario)


NOT_READ = (
    (RESOURCE_SLICES, Forbidden(403, "Forbidden", "slices are forbidden")),
    (NODES, Forbidden(403, "Forbidden", "nodes are forbidden")),
    (CLAIM_RELEASES, Forbidden(403, "Forbidden", "releases are forbidden")),
    (BUILTIN_CLAIMS, NotFound(404, "NotFound", "the server could not find the requested resource")),
)


@pytest.mark.parametrize(("resource", "error"), NOT_READ, ids=lambda it: getattr(it, "plural", None))
def test_where_something_is_not_read_nothing_is_concluded_from_its_absence(
    play: Play, resource: Resource[Any], error: ApiError
) -> None:
    def refuse(call: Call) -> ApiError | None:
        return error if call.resource.path() == resource.path() else None

    async def scenario(world: World) -> None:
        await one_waits(world)
        client = Refusing(world.client, refuse)

        told = await explain(client, world.clock(), "default", "wants")
        (class_,) = classes(await read(client, world.clock(), "default"))

        (row,) = told.nodes
        assert [cell.why for cell in row.claims] == ["1 of 1 device free, 2 wanted"]
        assert told.remedies == ()
        assert len(told.unread) == 1
        assert (class_.total, class_.free, class_.nodes) == (None, None, None if resource == NODES else 1)

    play(scenario)


def test_a_report_that_is_not_read_is_not_missing(play: Play) -> None:
    def refuse(call: Call) -> ApiError | None:
        hidden = call.resource.plural in ("podschedulings", "events")
        return Forbidden(403, "Forbidden", f"{call.resource.plural} is forbidden") if hidden else None

    async def scenario(world: World) -> None:
        await one_waits(world)

        told = await explain(Refusing(world.client, refuse), world.clock(), "default", "wants")

        assert (told.code, told.message) == ("", "what the controller reported can't be read")
        assert not told.recorded
        assert [finding.by for finding in told.findings] == ["scheduler"]
        assert set(told.unread) == {"podschedulings is forbidden", "events is forbidden"}

    play(scenario)


class Newer(Client):
    """A server whose PodSchedulings a newer controller wrote."""

    async def request(self, call: Call) -> bytes:
        return (await super().request(call)).replace(b'"round":1', b'"round":"first"')


def test_a_report_that_cannot_be_decoded_is_not_missing(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        client = Newer(world.server.client())

        told = await explain(client, world.clock(), "default", "wants")
        (row,) = waits(await read(client, world.clock(), "default"), None)

        unread = "PodScheduling default/wants, which has what the controller reported, can't be read: spec.round: "
        unread += "Input should be a valid integer, unable to parse string as an integer: "
        unread += "check whether there is a newer Parley"
        assert (told.code, told.message, told.recorded) == ("", unread, False)
        assert (row.code, row.message) == ("", unread)
        assert "Nodes (1; the last round could not be read)" in text_of(told)
        assert not any("has not reported" in finding.text for finding in told.findings)
        assert told.unread[0].startswith("PodScheduling default/wants can't be read: ValidationError: ")

    play(scenario)


def test_a_pod_of_which_only_an_undecodable_report_is_left_is_parleys(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_template("one")
        await world.add_pod("ran", "one")
        await world.settle()
        await world.finish_pod("ran")
        await world.settle()

        told = await explain(Newer(world.server.client()), world.clock(), "default", "ran")

        assert (told.state, told.recorded) == ("ended", False)

    play(scenario)


def test_what_cannot_be_decoded_is_told_beside_what_can(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        for number in range(7):
            with suppress(OutcomeUnknown):
                node = {"metadata": {"name": f"n{number}"}, "spec": {"unschedulable": "on Sundays"}}
                await world.client.create(NODES, node)

        told = await explain(world.client, world.clock(), "default", "wants")

        assert told.code == "NothingViable"
        assert told.unread == (
            *(
                f"Node n{number} can't be read: ValidationError: "
                "Expected `bool`, got `str` - at `$.spec.unschedulable`"
                for number in range(5)
            ),
            "2 more of Node can't be read",
        )

    play(scenario)


def test_a_pod_that_cannot_be_decoded_is_a_sentence_too(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        with suppress(OutcomeUnknown):
            await world.add_pod("odd", "two", priority="high")

        assert await refusal(world, "default", "odd") == (
            "pod default/odd can't be read: ValidationError: Expected `int | null`, got `str` - at "
            "`$.spec.priority`: check whether there is a newer Parley"
        )

    play(scenario)


def test_a_cluster_without_parley(play: Play) -> None:
    def refuse(call: Call) -> ApiError | None:
        custom = call.resource.group == "parley.dev"
        return NotFound(404, "NotFound", "the server could not find the requested resource") if custom else None

    async def scenario(world: World) -> None:
        await world.add_template("one")
        await world.add_pod("wants", "one")

        with pytest.raises(Unanswerable) as raised:
            await explain(Refusing(world.client, refuse), world.clock(), "default", "wants")

        assert str(raised.value).startswith("Parley is not installed in this cluster, or not completely: ")
        assert "docs/install.md" in str(raised.value)

    play(scenario)


async def refusal(world: World, namespace: str, name: str) -> str:
    with pytest.raises(Unanswerable) as raised:
        await explain(world.client, world.clock(), namespace, name)
    return str(raised.value)


def test_pods_that_are_not_there(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        await world.client.create(PODS, {"metadata": {"name": "far"}, "spec": {"containers": []}}, "team")

        assert await refusal(world, "default", "far") == (
            "pod default/far does not exist: there is one of that name in namespace team (-n team)"
        )
        assert await refusal(world, "default", "want") == "pod default/want does not exist: did you mean wants?"
        assert await refusal(world, "other", "gpu") == (
            "pod other/gpu does not exist: see `kubectl get pods -n other`, or name another namespace with -n"
        )
        assert await refusal(world, "team", "far") == (
            "pod team/far has no claims (spec.resourceClaims is empty): there is nothing to negotiate"
        )
        assert await namespaces_of(world.client, "far") == ["team"]

    play(scenario)


def test_a_pod_with_claims_of_others(play: Play) -> None:
    async def scenario(world: World) -> None:
        world.start_parley()
        await world.create(BUILTIN_CLAIMS, {"metadata": {"name": "theirs"}, "spec": {"devices": {}}})
        await world.add_pod("wants", claims=["theirs"])
        await world.settle()

        assert "has no Parley claims" in await refusal(world, "default", "wants")

    play(scenario)


def test_all_that_wait(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        await world.add_pod("next", "two")
        await world.add_pod("plain")
        await world.settle()

        cluster = await read(world.client, world.clock(), "default")
        here = await explain_waiting(world.client, cluster, "default")
        there = await explain_waiting(world.client, cluster, "team")
        anywhere = await explain_waiting(world.client, cluster, None)

        assert [told.name for told in here] == ["wants", "next"] == [told.name for told in anywhere]
        assert [told.ahead for told in here] == [(), ("default/wants",)]
        assert there == []

    play(scenario)


def test_a_pod_that_the_controller_has_not_seen(play: Play) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a", 1)
        await world.add_class()
        await world.add_claim("mine")
        await world.add_pod("wants", claims=["mine"])
        await world.settle()

        told = await explained(world, "wants")

        assert (told.state, told.findings[0].by) == ("waits", "controller")
        assert told.findings[0].text.startswith("has not reported on the pod for 30 s: check whether it runs")

    play(scenario)


def test_a_node_that_does_not_exist_any_more_is_no_trouble(play: Play) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        await world.client.delete(NODES, "a")
        await world.settle()

        assert (await explained(world, "wants")).code == "NoCandidates"

    play(scenario)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoConfiguration("kubeconfig x: no such file"), "kubeconfig x: no such file"),
        (Unauthorized(401, "Unauthorized", "Unauthorized"), "log in again"),
        (
            Forbidden(403, "Forbidden", "pods is forbidden"),
            "pods is forbidden: ask an administrator for that right",
        ),
        (ServerError(500, "InternalError", "boom"), "the API server refused: boom"),
        (OutcomeUnknown("GET pods: no answer: refused"), "check whether the API server runs"),
    ],
)
def test_what_a_client_raises_becomes_a_sentence(error: Exception, words: str) -> None:
    with pytest.raises(Unanswerable) as raised, readable_errors():
        raise error

    assert words in str(raised.value)
