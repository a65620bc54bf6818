"""How a driver writes, and what it leaves alone."""

from parley.api.resources import CLAIMS, POD_SCHEDULINGS
from parley.conformance.results import Check, NotApplicable, Unmet
from parley.conformance.stage import FOREIGN, Allocated, Stage, viable_nodes
from parley.kube.transport import APPLY_PATCH

_CONDITION = {
    "type": "SomebodysOwn",
    "status": "True",
    "reason": "Noted",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


async def _sends_resource_version(stage: Stage) -> None:
    """Writes to claims are refused if the claim changed."""
    held = await stage.allocate()
    await stage.free(held)
    await stage.settle()
    for write in stage.traffic.writes_to(CLAIMS, stage.name, held.claim):
        if not ((write.call.body or {}).get("metadata") or {}).get("resourceVersion"):
            expected = "metadata.resourceVersion in every write, so that one that comes too late is refused"
            raise Unmet(stage.about(held.claim), expected, f"{write.call}: {write.call.body}")


async def _applies_answers(stage: Stage) -> None:
    """Answers are applied as the driver's, with force."""
    claim = await stage.claim()
    pod = await stage.ask(claim)
    await stage.answered(pod, claim)
    for write in stage.traffic.writes_to(POD_SCHEDULINGS, stage.name, pod):
        query = write.call.query
        own = query.get("fieldManager") == stage.subject.driver
        if write.call.content_type != APPLY_PATCH or not own or query.get("force") != "true":
            expected = f"server-side apply with fieldManager={stage.subject.driver} and force=true"
            raise Unmet(stage.question(pod), expected, f"{write.call.content_type} with {dict(query)}")


async def _names_the_uid(stage: Stage) -> None:
    """Answers name the UID of their PodScheduling."""
    claim = await stage.claim()
    pod = await stage.ask(claim)
    await stage.answered(pod, claim)
    for write in stage.traffic.writes_to(POD_SCHEDULINGS, stage.name, pod):
        if not ((write.call.body or {}).get("metadata") or {}).get("uid"):
            expected = "metadata.uid in the answer, so that a late one does not recreate the PodScheduling"
            raise Unmet(stage.question(pod), expected, f"metadata {(write.call.body or {}).get('metadata')}")


async def _keeps_conditions(stage: Stage) -> None:
    """Conditions of others stay in a claim."""
    claim = await stage.claim()
    await stage.write_claim(claim, {"status": {"conditions": [_CONDITION]}}, "status")
    pod = await stage.ask(claim)
    nodes = viable_nodes((await stage.answered(pod, claim))[claim])
    if not nodes:
        raise NotApplicable("no node is viable")
    await stage.set_question(pod, selectedNode=nodes[0])
    await stage.allocated(claim)
    await stage.free(Allocated(pod, claim))
    kept = (await stage.get_claim(claim))["status"].get("conditions") or []
    if _CONDITION not in kept:
        expected = f"condition {_CONDITION['type']} as it was: a merge patch replaces the whole list"
        raise Unmet(stage.about(claim), expected, f"conditions {[one.get('type') for one in kept]}")


async def _leaves_others_claims(stage: Stage) -> None:
    """Other drivers' claims are left alone."""
    await stage.use_class(driverName=FOREIGN)
    deleted = await stage.claim()
    names = [deleted, await stage.claim(allocationMode="Immediate"), await stage.claim()]
    await stage.write_claim(deleted, {"metadata": {"finalizers": [f"{FOREIGN}/deletion-protection"]}})
    await stage.delete_claim(deleted)
    pod = await stage.ask(foreign=[names[-1]])
    await stage.set_question(pod, selectedNode=stage.nodes[0])
    await stage.settle()
    await stage.write_claim(deleted, {"metadata": {"finalizers": None}})
    for name in names:
        if writes := stage.traffic.writes_to(CLAIMS, stage.name, name):
            expected = f"no write, as its class is of driver {FOREIGN}"
            raise Unmet(stage.about(name), expected, f"{writes[0].call}: {writes[0].call.body}")
    if writes := stage.traffic.writes_to(POD_SCHEDULINGS, stage.name, pod):
        expected = f"no write, as it asks driver {FOREIGN} only"
        raise Unmet(stage.question(pod), expected, f"{writes[0].call.body}")


CHECKS = (
    Check("answers-applied", "1. Answer", _applies_answers),
    Check("answers-with-uid", "1. Answer", _names_the_uid),
    Check("resource-version", "2. Allocate", _sends_resource_version),
    Check("conditions", "2. Allocate", _keeps_conditions),
    Check("others-claims", "3. Deallocate", _leaves_others_claims),
)
