"""The attached disk: an asynchronous driver against a real array over HTTP whose clock is the test's."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from examples.attached import attached_driver
from examples.attached.attached_driver import AttachedDriver, Disk, Fabric, Refused
from tests.unit.examples.conftest import NODES, SECONDS, Service

from parley.api.meta import ObjectMeta
from parley.api.models import ResourceClass
from parley.sdk import Allocation, Answer, ClaimRequest, Held, PermanentError, PodReference, Request
from parley.sdk.allocation_checks import check_allocations
from parley.sdk.checks import BadParameters, check_answers, parse_parameters
from parley.simulate.manifests import read

ROOT = Path(__file__).parents[3]


def class_of(service: Service) -> ResourceClass:
    return ResourceClass(
        metadata=ObjectMeta(name="disks"), driver_name=AttachedDriver.name, parameters={"fabric": service.url}
    )


def started(service: Service) -> AttachedDriver:
    """A driver that knows its classes and nothing else."""
    driver = AttachedDriver(interval=0.001)
    assert driver.observe(None, class_of(service))
    return driver


def asked(
    service: Service, pod: str, *sizes: int, progress: Callable[[str], None] = lambda _: None
) -> Request[Disk, Fabric]:
    claims = tuple(
        ClaimRequest(
            f"disk-{i}", f"{pod}-{i}", f"{pod}-disk-{i}", "disks", Disk(size=size), Fabric(fabric=service.url)
        )
        for i, size in enumerate(sizes)
    )
    return Request(PodReference("team", pod, f"uid-of-{pod}"), claims, progress)


def at_each_look(service: Service, seconds: float, words: list[str]) -> Callable[[str], None]:
    """Collects what is told about progress; so many seconds pass with each."""

    def progress(told: str) -> None:
        words.append(told)
        service.now += seconds

    return progress


def quickly(service: Service) -> Callable[[str], None]:
    return at_each_look(service, SECONDS, [])


async def answer(driver: AttachedDriver, request: Request[Disk, Fabric], *nodes: str) -> Answer:
    answers = await driver.consider(request, nodes or NODES)
    check_answers(driver.name, request, nodes or NODES, answers)
    return answers["disk-0"]


async def test_a_disk_is_attached_step_by_step_and_its_handle_tells_where_it_is(service: Service) -> None:
    words: list[str] = []
    request = asked(service, "p", 10, progress=at_each_look(service, 40.0, words))
    driver = started(service)
    allocations = await driver.allocate(request, "node-1")

    check_allocations(driver.name, request, allocations, "node-1")
    assert allocations == {"disk-0": Allocation(data={"fabric": service.url, "volume": "p-0"})}
    assert words == [f"attaching to node node-1: {percent} %" for percent in (0, 40, 80, 100)]
    assert await service.volumes() == {"p-0": "node-1"}


async def test_nodes_are_viable_where_the_fabric_reaches_and_the_array_has_room(service: Service) -> None:
    driver = started(service)
    far = await answer(driver, asked(service, "p", 10), "node-1", "node-9")
    assert far == Answer(("node-1",), ("node-2",), {"node-9": f"{service.url} cannot be reached from it"})
    full = await answer(driver, asked(service, "p", 30, 21))
    words = f"50 GiB free in {service.url}, 51 wanted"
    assert full == Answer((), (), {"node-1": words, "node-2": words})


async def test_viable_means_allocatable_until_the_array_is_full_and_giving_back_makes_room(
    service: Service,
) -> None:
    driver = started(service)
    given = list[Request[Disk, Fabric]]()
    while (await answer(driver, request := asked(service, f"p{len(given)}", 10, 5))).viable:
        given.append(asked(service, request.pod.name, 10, 5, progress=quickly(service)))
        await driver.allocate(given[-1], "node-2")
    assert len(given) == 3

    with pytest.raises(Refused, match="5 GiB free, 10 wanted"):
        await driver.allocate(asked(service, "late", 10, 5), "node-2")
    assert len(await service.volumes()) == 6
    for claim in [claim for request in given for claim in request.claims]:
        await driver.deallocate(claim.uid)
        await driver.deallocate(claim.uid)
    assert await service.volumes() == {}


async def test_an_attachment_that_fails_this_time_leaves_nothing_and_may_be_tried_again(service: Service) -> None:
    await service.ask("PUT", "/faults/node-1", {"message": "port is down"})
    request = asked(service, "p", 10, 10, progress=quickly(service))
    driver = started(service)
    with pytest.raises(Refused) as caught:
        await driver.allocate(request, "node-1")
    assert str(caught.value) == "attaching to node node-1 failed: port is down"
    assert await service.volumes() == {}

    await driver.allocate(request, "node-1")
    assert await service.volumes() == {"p-0": "node-1", "p-1": "node-1"}


@pytest.mark.parametrize(
    ("node", "size", "words"),
    [
        ("node-1", 10, "attaching to node node-1 failed: cable is gone"),
        ("node-9", 10, "the fabric does not reach node node-9"),
        ("node-2", 51, "51 GiB are more than the array has"),
    ],
)
async def test_what_will_never_do_is_told_as_permanent(service: Service, node: str, size: int, words: str) -> None:
    await service.ask("PUT", "/faults/node-1", {"message": "cable is gone", "permanent": True})
    for _ in range(2):
        with pytest.raises(PermanentError) as caught:
            await started(service).allocate(asked(service, "p", size, progress=quickly(service)), node)
        assert str(caught.value) == words
        assert await service.ask("GET", "/volumes") == []


async def begun(service: Service, driver: AttachedDriver, node: str) -> asyncio.Task[Mapping[str, Allocation]]:
    """An allocation that is under way and will not end by itself: no time passes."""
    looked = asyncio.Event()
    request = asked(service, "p", 10, progress=lambda _: looked.set())
    task = asyncio.create_task(driver.allocate(request, node))
    await looked.wait()
    return task


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_driver_that_is_started_again_goes_on_with_the_same_volume(service: Service) -> None:
    await cancelled(await begun(service, started(service), "node-1"))
    service.now += 0.7 * SECONDS

    words: list[str] = []
    request = asked(service, "p", 10, progress=at_each_look(service, SECONDS, words))
    await started(service).allocate(request, "node-1")
    assert words == ["attaching to node node-1: 70 %", "attaching to node node-1: 100 %"]
    assert await service.volumes() == {"p-0": "node-1"}


async def test_a_driver_that_is_started_again_and_told_of_another_node_begins_there_anew(service: Service) -> None:
    await cancelled(await begun(service, started(service), "node-1"))
    await started(service).allocate(asked(service, "p", 10, progress=quickly(service)), "node-2")
    assert await service.volumes() == {"p-0": "node-2"}


async def test_an_attachment_under_way_is_aborted_by_whoever_is_told_to(service: Service) -> None:
    for successor in (None, started(service)):
        driver = started(service)
        await cancelled(await begun(service, driver, "node-1"))
        await (successor or driver).deallocate("p-0")
        assert await service.volumes() == {}


async def test_a_disk_that_was_allocated_before_the_driver_was_started_is_given_back(service: Service) -> None:
    request = asked(service, "p", 10, progress=quickly(service))
    allocation = (await started(service).allocate(request, "node-1"))["disk-0"]

    successor = AttachedDriver()
    successor.restore(Held("p-0", "node-1", allocation.devices, allocation.data))
    await successor.deallocate("p-0")
    assert await service.volumes() == {}


async def test_an_array_that_is_started_again_knows_its_volumes_and_how_far_they_are(service: Service) -> None:
    words: list[str] = []
    looked, missed = asyncio.Event(), asyncio.Event()

    def progress(told: str) -> None:
        words.append(told)
        (missed if "does not answer" in told else looked).set()

    task = asyncio.create_task(started(service).allocate(asked(service, "p", 10, progress=progress), "node-1"))
    await looked.wait()
    await service.stop()
    await missed.wait()
    service.now += SECONDS
    await service.start()
    await task
    assert "the fabric does not answer; it is asked again" in words
    assert words[-1] == "attaching to node node-1: 100 %"


async def test_an_array_that_does_not_answer_is_no_answer(service: Service) -> None:
    await service.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await answer(started(service), asked(service, "p", 10))


async def test_faults_and_volumes_outlive_the_array_process(service: Service, tmp_path: Path) -> None:
    await service.ask("PUT", "/faults/node-2", {"message": "cable is gone", "permanent": True})
    await service.ask("PUT", "/volumes/one", {"sizeGiB": 1})
    await service.ask("PUT", "/volumes/one/attachment", {"node": "node-2"})
    before = await service.ask("GET", "/volumes")
    saved = json.loads((tmp_path / "fabric.json").read_text())
    await service.stop()
    await service.start()
    assert await service.ask("GET", "/volumes") == before
    assert saved["faults"] == {"node-2": {"message": "cable is gone", "permanent": True}}
    await service.ask("DELETE", "/faults/node-2")
    assert await service.ask("GET", "/") == {"capacityGiB": 50, "freeGiB": 49, "nodes": list(NODES)}


REFUSALS = [
    ("PUT", "/volumes/one", {"sizeGiB": 2}, "volume one has 1 GiB, not 2"),
    ("PUT", "/volumes/two", {"sizeGiB": "2"}, "sizeGiB='2' is not of type int"),
    ("GET", "/volumes/two", None, "there is no volume two"),
    ("PUT", "/volumes/two/attachment", {"node": "node-1"}, "there is no volume two"),
    ("PUT", "/volumes/one/attachment", {"node": "node-2"}, "volume one is attached to node-1: delete it first"),
]


@pytest.mark.parametrize(("method", "path", "body", "words"), REFUSALS, ids=[case[3] for case in REFUSALS])
async def test_the_array_says_why_not(service: Service, method: str, path: str, body: Any, words: str) -> None:
    for _ in range(2):
        await service.ask("PUT", "/volumes/one", {"sizeGiB": 1})
        await service.ask("PUT", "/volumes/one/attachment", {"node": "node-1"})
    assert (await service.ask(method, path, body))["error"] == words


def test_classes_of_other_drivers_are_none_of_its_business(service: Service) -> None:
    other = ResourceClass(metadata=ObjectMeta(name="gpu"), driver_name="device.parley.dev")
    assert not AttachedDriver().observe(None, other)


@pytest.mark.parametrize(
    ("schema", "raw", "message"),
    [
        (Disk, {}, "sizeGiB is missing (known parameters: sizeGiB)"),
        (
            Disk,
            {"sizeGiB": 0},
            "sizeGiB=0: input should be greater than or equal to 1 (known parameters: sizeGiB)",
        ),
        (Fabric, {"fabric": "array-1"}, None),
    ],
)
def test_bad_parameters_name_field_and_value(schema: Any, raw: dict[str, Any], message: str | None) -> None:
    with pytest.raises(BadParameters) as caught:
        parse_parameters(schema, raw, "claim team/disk")
    assert str(caught.value).startswith(f"parameters of claim team/disk: {message or 'fabric='}")


def test_the_manifests_are_valid_and_fit_the_driver() -> None:
    manifests = read([ROOT / "examples/attached/disks.yaml"])
    (class_,) = (m.body for m in manifests if m.resource.kind == "ResourceClass")
    (template,) = (m.body for m in manifests if m.resource.kind == "ResourceClaimTemplate")
    assert class_["driverName"] == attached_driver.AttachedDriver.name
    parse_parameters(Fabric, class_["parameters"], "class")
    parse_parameters(Disk, template["spec"]["spec"]["parameters"], "template")


async def test_the_array_runs_as_its_page_says(tmp_path: Path) -> None:
    page = (ROOT / "examples/attached/README.md").read_text()
    (line,) = re.findall(r"^\$ python (examples/attached/fabric.py .*)$", page, flags=re.MULTILINE)
    arguments = line.replace("9700", "0").replace("/tmp", str(tmp_path)).split()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    told = (await process.stdout.readline()).decode()
    process.terminate()
    await process.communicate()
    assert "Running on http://127.0.0.1:" in told
