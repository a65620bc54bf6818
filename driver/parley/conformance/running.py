"""Runs checks one after the other, each in a namespace of its own that is gone when the next begins."""

from collections.abc import AsyncIterator, Sequence

from parley.conformance.results import Check, CheckOutcome, CheckResult, NotApplicable, Unmet
from parley.conformance.stage import Scene, Stage
from parley.conformance.subject import Subject
from parley.kube.client import AlreadyExists, Client, Conflict, Invalid, NotFound

PREFIX = "conformance-"
"""Of the names of namespaces and classes."""

_DISTURBED = (NotFound, Conflict, Invalid)
"""What the API server tells the kit when somebody removed or changed an object of the check."""


async def prepare(client: Client, subject: Subject) -> None:
    """Create what the driver reads besides the class: nodes, published devices."""
    for manifest in subject.others:
        try:
            await client.create(manifest.resource, manifest.body, manifest.namespace)
        except AlreadyExists:
            pass


async def run(scene: Scene, checks: Sequence[Check], skipped: Sequence[str] = ()) -> AsyncIterator[CheckResult]:
    """The results, each as soon as it is known. A driver that failed begins the next check anew."""
    failed: list[Check] = []
    for check in checks:
        result = _left_out(check, failed, skipped) or await _checked(scene, check)
        yield result
        if result.outcome is CheckOutcome.FAILED:
            failed.append(check)
            await _restarted(scene)


def _left_out(check: Check, failed: Sequence[Check], skipped: Sequence[str]) -> CheckResult | None:
    """The result of a check that is not made, None if it is made."""
    if check.name in skipped:
        return CheckResult(check, CheckOutcome.SKIPPED, why="left out by --skip")
    basis = [one.name for one in failed if one.basic or one.name in check.needs]
    return CheckResult(check, CheckOutcome.SKIPPED, why=f"needs {basis[0]}, which failed") if basis else None


async def _restarted(scene: Scene) -> None:
    if scene.driver is not None:
        await scene.driver.kill()
        await scene.driver.start()


async def _checked(scene: Scene, check: Check) -> CheckResult:
    if check.restarts and scene.driver is None:
        return CheckResult(check, CheckOutcome.SKIPPED, why="needs --start, to kill the driver and start it again")
    stage = Stage(scene, f"{PREFIX}{check.name}{scene.suffix}")
    await stage.open()
    try:
        await check.play(stage)
    except _DISTURBED as error:
        expected = "what the kit made to be there, and to change as the controller changes it"
        return CheckResult(check, CheckOutcome.FAILED, f"namespace {stage.name}", expected, str(error))
    except NotApplicable as reason:
        return CheckResult(check, CheckOutcome.SKIPPED, why=str(reason))
    except Unmet as unmet:
        return CheckResult(check, CheckOutcome.FAILED, unmet.about, unmet.expected, unmet.seen)
    finally:
        await stage.close()
    return CheckResult(check, CheckOutcome.PASSED)
