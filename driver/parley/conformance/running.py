"""Runs checks one after the other, each in its own namespace, which is deleted before the next."""

from collections.abc import AsyncIterator, Sequence

from parley.conformance.results import Check, CheckOutcome, CheckResult, NotApplicable, Unmet
from parley.conformance.stage import Scene, Stage
from parley.conformance.subject import Subject
from parley.kube.client import AlreadyExists, Client, Conflict, Invalid, NotFound

PREFIX = "conformance-"
"""The prefix of the names of namespaces and classes."""

_TAMPERED = (NotFound, Conflict, Invalid)
"""The errors that the kit gets if an object of the check was deleted or changed by others."""


async def prepare(client: Client, subject: Subject) -> None:
    """Create the objects that the driver reads besides the class: nodes, published devices."""
    for manifest in subject.others:
        try:
            await client.create(manifest.resource, manifest.body, manifest.namespace)
        except AlreadyExists:
            pass


async def run(scene: Scene, checks: Sequence[Check], skipped: Sequence[str] = ()) -> AsyncIterator[CheckResult]:
    """Yields each result as soon as it is known. After a failed check the driver is restarted."""
    failed: list[Check] = []
    for check in checks:
        result = _skip_result(check, failed, skipped) or await _run_check(scene, check)
        yield result
        if result.outcome is CheckOutcome.FAILED:
            failed.append(check)
            await _restart_driver(scene)


def _skip_result(check: Check, failed: Sequence[Check], skipped: Sequence[str]) -> CheckResult | None:
    """The result of a check that is skipped; None if it has to run."""
    if check.name in skipped:
        return CheckResult(check, CheckOutcome.SKIPPED, why="left out by --skip")
    basis = [one.name for one in failed if one.basic or one.name in check.needs]
    return CheckResult(check, CheckOutcome.SKIPPED, why=f"needs {basis[0]}, which failed") if basis else None


async def _restart_driver(scene: Scene) -> None:
    if scene.driver is not None:
        await scene.driver.kill()
        await scene.driver.start()


async def _run_check(scene: Scene, check: Check) -> CheckResult:
    if check.restarts and scene.driver is None:
        return CheckResult(check, CheckOutcome.SKIPPED, why="needs --start, to kill the driver and start it again")
    stage = Stage(scene, f"{PREFIX}{check.name}{scene.suffix}")
    await stage.open()
    try:
        await check.play(stage)
    except _TAMPERED as error:
        expected = "what the kit made to be there, and to change as the controller changes it"
        return CheckResult(check, CheckOutcome.FAILED, f"namespace {stage.name}", expected, str(error))
    except NotApplicable as reason:
        return CheckResult(check, CheckOutcome.SKIPPED, why=str(reason))
    except Unmet as unmet:
        return CheckResult(check, CheckOutcome.FAILED, unmet.about, unmet.expected, unmet.seen)
    finally:
        await stage.close()
    return CheckResult(check, CheckOutcome.PASSED)
