"""Objects that no decoder takes, made by a user of one namespace, and nobody else notices: not the controller, not
a standalone driver of it, not a node plugin, not when they start anew."""

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson
import pytest
from tests.cluster.manifests import DRIVER, pod
from tests.cluster.namespace import Namespace
from tests.cluster.replicas import Replicas
from tests.cluster.watching import until
from tests.integration.hostile.conftest import DEVICES, NODES

from parley.api import reasons
from parley.api.names import API_VERSION, DEVICE_CLASS, GROUP
from parley.api.resources import (
    BUILTIN_CLAIMS,
    BUILTIN_TEMPLATES,
    CLAIM_RELEASES,
    CLAIMS,
    PODS,
    TEMPLATES,
    Resource,
)
from parley.kube.client import ApiError, OutcomeUnknown, TooLarge

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]


def nested(levels: int, name: str = "a") -> bytes:
    return b'{"%s":' % name.encode() * levels + b"1" + b"}" * levels


HOSTILE: Mapping[str, bytes] = {
    "deep-65": nested(65),
    "deep-250": nested(250),
    "deep-990": nested(990),
    "deep-1600": nested(1_600),
    "lists-4000": b'{"a":' + b"[" * 4_000 + b"]" * 4_000 + b"}",
    "half-pair": b'{"a":"\\ud800"}',
    "other-half": b'{"\\udc00":"\\udfff\\ud800"}',
    "no-utf-8": b'{"a":"\xff\xfe\xc0\x80"}',
    "infinite": b'{"a":1e400}',
    "endless": b'{"a":' + b"9" * 5_000 + b"}",
    "tiny": b'{"a":-1e-99999}',
    "twice": b'{"a":1,"a":{"a":[]},"a":null}',
    "nul": b'{"\\u0000":"\\u0000"}',
    "long": b'{"a":"' + b"x" * 9_000 + b'"}',
    "long-name": b'{"' + b"x" * 9_000 + b'":1}',
    "wide": b'{"a":[' + b"[]," * 3_000 + b"1]}",
    "null": b'{"a":null}',
    "blanks": b'{\n "a" :\r\n\t[ 1 ,\n 2 ] }',
    "separators": '{"a":"\u2028\u2029\u0085"}'.encode(),
    "html": b'{"a":"<&>"}',
    "brackets": b'{"a":"}]}\\"}]"}',
    "names": b'{"metadata":{"name":"x"},"items":[],"parameters":{"parameters":{}},"data":{"data":[]}}',
    "marked": b'{"parley.dev/unreadable":7}',
}
"""What the API server stores as opaque parameters; not all of it is refused by a decoder."""

OPAQUE = ("deep-250", "deep-1600", "lists-4000", "half-pair", "no-utf-8", "blanks")
"""Of these the API server is known to take every one: were it to refuse them, nothing would be tested."""

WRAPPED = b'{"resourceClassName":"gpu","parameters":%s}'


def config(driver: str, parameters: bytes) -> Manifest:
    return {"opaque": {"driver": driver, "parameters": orjson.Fragment(parameters)}}


def devices(device_class: str, *configs: Manifest) -> Manifest:
    request = {"name": "exclusive", "exactly": {"deviceClassName": device_class}}
    return {"devices": {"requests": [request], "config": list(configs)}}


def built_in(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def of_parley(kind: str, name: str, spec: Manifest, **metadata: Any) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def objects(name: str, parameters: bytes) -> Iterator[tuple[Resource[Any], Manifest]]:
    """Everything that the user can put the parameters into."""
    foreign = devices("example.com", config("example.com", parameters))
    asking = devices(DEVICE_CLASS, config(GROUP, WRAPPED % parameters))
    naked = devices(DEVICE_CLASS, config(GROUP, parameters))
    for case, spec in (("foreign", foreign), ("asking", asking), ("naked", naked)):
        yield BUILTIN_CLAIMS, built_in("ResourceClaim", f"{case}-{name}", spec)
        yield BUILTIN_TEMPLATES, built_in("ResourceClaimTemplate", f"{case}-{name}", {"spec": spec})
    own = {"resourceClassName": "gpu", "parameters": orjson.Fragment(parameters)}
    yield CLAIMS, of_parley("ResourceClaim", f"own-{name}", own)
    yield TEMPLATES, of_parley("ResourceClaimTemplate", f"own-{name}", {"spec": own})
    tokens = {"resourceClassName": "licences", "parameters": orjson.Fragment(parameters)}
    yield CLAIMS, of_parley("ResourceClaim", f"immediate-{name}", {**tokens, "allocationMode": "Immediate"})


async def make(mallory: Namespace, resource: Resource[Any], manifest: Manifest) -> bool:
    """Whether the API server took it."""
    try:
        await mallory.client.create(resource.untyped(), manifest, mallory.name)
        await mallory.client.get(resource.untyped(), manifest["metadata"]["name"], mallory.name)
    except (ApiError, OutcomeUnknown) as error:  # at a number that is no float64 the server hangs up
        print(f"refused: {resource.kind} {manifest['metadata']['name']}: {str(error)[:200]}")
        return False
    return True


async def everybody_is_served(team: Namespace, round_: int) -> None:
    """Pods with a device, with a token, and with both are bound."""
    one, token = {"gpu": "one"}, {"token": "token"}
    names = {f"gpu-{round_}": one, f"token-{round_}": token, f"both-{round_}": {**one, **token}}
    await team.create(*(pod(name, templates=templates) for name, templates in names.items()))
    for name in names:
        await team.bound(name)
    for name in names:
        await team.delete(PODS, name)


async def test_what_no_decoder_takes_stops_nothing_and_nobody(
    team: Namespace,
    mallory: Namespace,
    controllers: Replicas,
    drivers: Replicas,
    plugin: asyncio.subprocess.Process,
) -> None:
    await controllers.lead()
    await drivers.lead()
    await everybody_is_served(team, 0)

    taken = set()
    for name, parameters in HOSTILE.items():
        for resource, manifest in objects(name, parameters):
            if await make(mallory, resource, manifest):
                taken.add(f"{resource.group}/{resource.kind}/{manifest['metadata']['name']}")
    for name, case in itertools.product(OPAQUE, ("foreign", "asking", "naked")):
        assert f"resource.k8s.io/ResourceClaim/{case}-{name}" in taken
    for name in ("deep-250", "deep-990", "lists-4000"):
        assert f"{GROUP}/ResourceClaim/own-{name}" in taken
    await mallory.create(*(pod(f"a-{name}", templates={"it": f"asking-{name}"}) for name in HOSTILE))
    await mallory.create(*(pod(f"n-{name}", templates={"it": f"naked-{name}"}) for name in HOSTILE))

    await everybody_is_served(team, 1)
    await receipts_are_given(team)
    assert all(program.running for program in (*controllers.programs, *drivers.programs))

    for replicas in (controllers, drivers):
        await replicas.follow()
    await everybody_is_served(team, 2)
    assert plugin.returncode is None
    for program in (controllers.programs[-1], drivers.programs[-1]):
        assert program.running
        assert not program.has_said("watching interrupted"), program.last_lines()


async def receipts_are_given(team: Namespace) -> None:
    """The node plugin answers."""
    release = {
        "apiVersion": API_VERSION,
        "kind": "ClaimRelease",
        "metadata": {"name": f"honest-{team.name}"},
        "spec": {
            "claim": {"namespace": team.name, "name": "honest", "uid": "uid-of-nobody"},
            "holdingUid": "uid-of-nobody",
            "nodeName": NODES[0],
            "driverName": DRIVER,
            "allocation": {},
        },
        "status": {"allocationCleared": True},
    }
    await team.client.create(CLAIM_RELEASES, release)
    name = ("", f"honest-{team.name}")
    await until(team.client, CLAIM_RELEASES, lambda seen: name not in seen, "the receipt is given")


@pytest.mark.parametrize("name", OPAQUE)
async def test_who_asks_for_what_nobody_can_read_is_told(
    team: Namespace, mallory: Namespace, controllers: Replicas, name: str
) -> None:
    await controllers.lead()
    spec = devices(DEVICE_CLASS, config(GROUP, WRAPPED % HOSTILE[name]))
    await make(mallory, BUILTIN_TEMPLATES, built_in("ResourceClaimTemplate", "bad", {"spec": spec}))
    theirs = Namespace(team.client, mallory.name, grace=0)
    await mallory.create(pod("bad", templates={"it": "bad"}))

    message = await theirs.told("bad", reasons.PARAMETERS_INVALID)

    assert message.startswith(f"parameters of template {mallory.name}/bad")
    assert await theirs.waits("bad", reasons.PARAMETERS_INVALID) == message


async def test_a_device_is_not_handed_out_again_because_its_claim_has_parameters_that_nobody_can_read(
    team: Namespace, mallory: Namespace, controllers: Replicas
) -> None:
    await controllers.lead()
    for name in ("deep-1600", "half-pair", "no-utf-8"):
        unread = config("example.com", HOSTILE[name])
        spec = devices(DEVICE_CLASS, config(GROUP, b'{"resourceClassName":"gpu"}'), unread)
        assert await make(mallory, BUILTIN_TEMPLATES, built_in("ResourceClaimTemplate", name, {"spec": spec}))
        await mallory.create(pod(name, templates={"it": name}))
    theirs = Namespace(team.client, mallory.name, grace=0)
    for name in ("deep-1600", "half-pair", "no-utf-8"):
        await theirs.bound(name)

    await controllers.follow()

    left = len(NODES) * DEVICES - 3
    await team.create(*(pod(f"p{number}", templates={"it": "one"}) for number in range(left + 1)))
    await team.pods(lambda pods: sum(bool(p.spec.node_name) for p in pods) == left, "as many are bound as devices")
    await team.pods(lambda pods: sum(not p.spec.node_name for p in pods) == 1, "one waits")
    await asyncio.sleep(2)
    await team.pods(lambda pods: sum(not p.spec.node_name for p in pods) == 1, "one still waits")
    for name in ("deep-1600", "half-pair", "no-utf-8"):
        await theirs.delete(PODS, name)
    await team.pods(lambda pods: all(p.spec.node_name for p in pods), "all are bound")


async def fill(mallory: Namespace, name: str) -> None:
    """With labels, until the API server takes no more of them."""
    count, more, domain = 0, 2000, f"{'a' * 62}.{'b' * 62}.{'c' * 62}.com"
    while more:
        labels = {f"{domain}/{'d' * 55}-{n}": "e" * 63 for n in range(count, count + more)}
        try:
            await mallory.client.patch(BUILTIN_CLAIMS, name, {"metadata": {"labels": labels}}, mallory.name)
            count += more
        except TooLarge:
            more //= 2
    for number, size in enumerate((60, 60, 60, 60, 60, 30, 15, 8, 4, 2, 1, 1)):
        with suppress(TooLarge):
            label = {f"z-{number}": "z" * size}
            await mallory.client.patch(BUILTIN_CLAIMS, name, {"metadata": {"labels": label}}, mallory.name)


async def test_a_claim_that_is_so_full_that_nobody_can_write_to_it_keeps_nobody_from_leading(
    team: Namespace, mallory: Namespace, controllers: Replicas
) -> None:
    """Whoever may edit claims may give their built-in claims labels: nobody reads them, and etcd limits them."""
    await controllers.lead()
    await mallory.create(of_parley("ResourceClaim", "full", {"resourceClassName": "gpu"}))
    await until(
        mallory.client, BUILTIN_CLAIMS, lambda seen: (mallory.name, "full") in seen, "its built-in claim is there"
    )
    await fill(mallory, "full")
    try:
        await controllers.follow()
        await team.create(pod("one", templates={"it": "one"}))
        await team.bound("one")
    finally:  # or it could not be deleted either
        await mallory.client.patch(BUILTIN_CLAIMS, "full", {"metadata": {"labels": None}}, mallory.name)
