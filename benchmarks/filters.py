"""How long the extender takes to answer, over HTTP on loopback, as its scheduler sees it: filter and prioritize.

The pods exist in the questions only, and the questions come one after the other, as those of a scheduler do.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import cycle, islice
from typing import Any

import aiohttp
import msgspec
import orjson

from benchmarks import objects
from benchmarks.latency import percentile
from benchmarks.objects import DEVICE, GPUS_PER_NODE, NEVER, Ask
from benchmarks.schedulers import EXTENDER
from benchmarks.stage import ALWAYS, Stage
from parley.api.resources import BUILTIN_TEMPLATES, TEMPLATES

NAME = "extender-filter"
SIZES = (500, 5_000)

_CALLS = 400
_WARM = 20
_NAMESPACE = "filters"
_MANY = 10**9


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the output: milliseconds from the question to the whole answer, by what was asked."""

    workload: str
    nodes: int
    calls: int
    p50_ms: dict[str, float]
    p99_ms: dict[str, float]


def cases(nodes: list[str]) -> Mapping[str, Iterator[tuple[str, bytes]]]:
    """What is asked, again and again: a verb and its body.

    A pod with one claim by itself (it is asked about again, so that its answer takes the place of the one before),
    with four, or as one of eight that take turns and so hold what the others were told; one that no node will do
    for, asked about for the first time, or again; and one without claims.
    """

    def ask(*names: str, asks: list[Ask], verb: str = "filter") -> Iterator[tuple[str, bytes]]:
        return cycle([(verb, question(name, asks, nodes)) for name in names])

    eight = [f"of-eight-{number}" for number in range(8)]
    return {
        "plain": ask("plain", asks=[]),
        "claims1": ask("one", asks=[DEVICE]),
        "claims4": ask("four", asks=[DEVICE] * 4),
        "beside7": ask(*eight, asks=[DEVICE]),
        "refused": (("filter", question(f"never-{number}", [NEVER], nodes)) for number in range(_MANY)),
        "refused-again": ask("never", asks=[NEVER]),
        "prioritize": ask("of-eight-0", asks=[DEVICE], verb="prioritize"),
    }


def question(name: str, asks: list[Ask], nodes: list[str]) -> bytes:
    """An ExtenderArgs about a pod of that name and UID."""
    pod: dict[str, Any] = {**objects.pod(0, asks, EXTENDER)}
    pod["metadata"] = {"name": name, "namespace": _NAMESPACE, "uid": name}
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes})


async def measure(stage: Stage, nodes: int, *, first: bool) -> Result:
    """Ask in a cluster that is made that large."""
    with stage.running_first(first):
        await stage.grow_to(nodes, GPUS_PER_NODE)
    await stage.use(EXTENDER, ALWAYS)
    if not await stage.api.has_namespace(_NAMESPACE):
        await stage.api.create_namespace(_NAMESPACE)
        for ask in (DEVICE, NEVER):
            await stage.api.request("POST", TEMPLATES.path(_NAMESPACE), objects.template(ask))
    await stage.until(partial(stage.api.has, BUILTIN_TEMPLATES, _NAMESPACE, 2), "the templates have mirrors")
    await stage.at_rest()
    with stage.running_first(first):
        taken = {case: await _taken(stage, asked) for case, asked in cases(stage.nodes).items()}
    return Result(
        workload=f"{NAME}-{nodes}nodes",
        nodes=nodes,
        calls=_CALLS,
        p50_ms={case: percentile(times, 0.5) for case, times in taken.items()},
        p99_ms={case: percentile(times, 0.99) for case, times in taken.items()},
    )


async def _taken(stage: Stage, asked: Iterator[tuple[str, bytes]]) -> list[float]:
    """Milliseconds of each call, in rising order; the first ones do not count."""
    times = []
    async with aiohttp.ClientSession(f"http://{stage.extender}") as session:
        for verb, body in islice(asked, _WARM + _CALLS):
            started = time.perf_counter()
            async with session.post(f"/{verb}", data=body) as answer:
                await answer.read()
                answer.raise_for_status()
            times.append(round(1000 * (time.perf_counter() - started), 3))
    return sorted(times[_WARM:])
