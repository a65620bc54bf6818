"""Calls that no kube-scheduler sends are refused as such, whatever they contain, and leave nothing."""

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from parley.scheduler.extender import wire
from parley.scheduler.extender.wire import BadCall

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import World
else:
    World = Any

AWAY = "parley-away"
META = b'{"namespace":"default","name":"guess","uid":"guess"}'
DEEP = b"[" * 100_000 + b"]" * 100_000


def pod(**spec: Any) -> bytes:
    sent = {"metadata": orjson.loads(META), "spec": {"schedulerName": AWAY, **spec}}
    return bytes(orjson.dumps(sent))


def requesting(amount: Any) -> bytes:
    return pod(containers=[{"name": "main", "resources": {"requests": {"cpu": amount}}}])


PODS = {
    "nothing": b"null",
    "a list": b"[]",
    "a string": b'"p"',
    "metadata of another type": b'{"metadata":[]}',
    "a priority of another type": pod(priority="high"),
    "claims of another type": pod(resourceClaims=[5]),
    "what is no quantity": requesting("many"),
    "half a character": b'{"metadata":' + META + b',"spec":{"schedulerName":"\\ud800"}}',
    "what is no UTF-8": b'{"metadata":{"namespace":"default","name":"\xff","uid":"guess"}}',
    "depth": b'{"metadata":' + META + b',"spec":' + DEEP + b"}",
}


@pytest.mark.parametrize("sent", PODS.values(), ids=PODS)
@pytest.mark.parametrize("verb", ["filter", "preempt"])
def test_a_pod_that_no_api_server_has_is_refused(play: Any, verb: str, sent: bytes) -> None:
    async def scenario(world: World) -> None:
        await world.add_node("a")
        world.start_parley()
        await world.settle()
        nodes = b'"NodeNames":["a"]' if verb == "filter" else b'"NodeNameToMetaVictims":{"a":{"Pods":[]}}'
        assert world.controller is not None
        assert world.controller.extender is not None
        with pytest.raises(BadCall, match="not what kube-scheduler sends"):
            await world.controller.extender.answer(verb, b'{"Pod":' + sent + b"," + nodes + b"}")
        assert world.controller.extender.entries == 0

    play(scenario)


@pytest.mark.parametrize("field", ["PodName", "PodNamespace"])
@pytest.mark.parametrize("name", ["", "..", "p/../q", "p?watch=1", "p\n", "P", "-p", "p" * 254])
def test_a_bind_of_a_pod_that_can_have_no_such_name_is_refused(field: str, name: str) -> None:
    """The API server is not asked about it: it would be asked for something else."""
    asked = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "a"}
    assert wire.bind(orjson.dumps(asked)).pod_name == "p"
    with pytest.raises(BadCall):
        wire.bind(orjson.dumps({**asked, field: name}))
