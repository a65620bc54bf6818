"""Checks of claims from templates: why one is not generated yet, or can't be negotiated once it exists. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parley.api import reasons
from parley.api.builtin import BuiltinClaim, BuiltinTemplate, Pod
from parley.api.models import ResourceClaim, ResourceClaimTemplate, ResourceClass
from parley.control.claims.checks import Check
from parley.control.claims.messages import class_not_found, not_deallocated, refused, taken, too_large
from parley.control.claims.podclaims import Problem
from parley.control.holding import Holding, Phase
from parley.control.objects.class_request import ClassRequest, parameters_too_large, unreadable
from parley.control.objects.mirror import is_template_mirror, owned_by
from parley.control.objects.standin import being_deallocated, stands_for
from parley.sdk.checks import parameters_unreadable

LOST_SECONDS = 10.0
"""Seconds for which a claim in a pod's status may be missing: the watch of claims may be behind that of pods."""


@dataclass(frozen=True, slots=True)
class UngeneratedClaim:
    """The facts about a pod's claim `entry` that Kubernetes has not generated from its template yet. `lost` is the
    name of one that it did generate, by the pod's status, and that does not exist; "" if there is none."""

    pod: Pod
    template: ResourceClaimTemplate
    mirror: BuiltinTemplate | None
    refusal: str
    entry: str
    lost: str = ""

    @property
    def path(self) -> str:
        """The template's name in messages, NAMESPACE/NAME."""
        return f"{self.template.metadata.namespace}/{self.template.metadata.name}"

    def blocked(self, code: str, message: str, *, transient: bool = False) -> Problem:
        """A problem that a change of the template may end."""
        meta = self.template.metadata
        return Problem(code, message, (("template", meta.namespace, meta.name),), transient=transient)


def template_name_taken(facts: UngeneratedClaim) -> Problem | None:
    """The built-in template with the template's name was not made by Parley."""
    meta = facts.template.metadata
    if facts.mirror is None or owned_by(facts.mirror, meta.uid) or is_template_mirror(facts.mirror):
        return None
    return facts.blocked(reasons.NAME_TAKEN, taken("ResourceClaimTemplate", meta.namespace, meta.name))


def template_oversized(facts: UngeneratedClaim) -> Problem | None:
    """The template's parameters don't fit into a built-in template."""
    size = parameters_too_large(facts.template.spec.spec)
    return facts.blocked(reasons.PARAMETERS_INVALID, too_large(f"template {facts.path}", size)) if size else None


def template_refused(facts: UngeneratedClaim) -> Problem | None:
    """The API server refused the built-in template."""
    meta = facts.template.metadata
    if facts.mirror is not None or not facts.refusal:
        return None
    message = refused("ResourceClaimTemplate", meta.namespace, meta.name, facts.refusal)
    return facts.blocked(reasons.WRITE_REFUSED, message)


def generated_lost(facts: UngeneratedClaim) -> Problem | None:
    """Somebody deleted the generated claim, unless our watch of claims is behind. A running pod goes on."""
    if not facts.lost:
        return None
    pod = facts.pod.metadata
    message = (
        f"claim {pod.namespace}/{facts.lost}, which Kubernetes generated for {facts.entry!r} from template "
        f"{facts.path}, was deleted, and is recreated when the pod changes: recreate the pod, or change it "
        f"(kubectl annotate pod {pod.name} -n {pod.namespace} example.com/changed=1)"
    )
    problem = facts.blocked(reasons.CLAIM_NOT_FOUND, message, transient=True)
    return replace(problem, reported_after=0.0 if facts.pod.status.phase == "Running" else LOST_SECONDS)


def not_generated(facts: UngeneratedClaim) -> Problem:
    """Nothing is wrong, but Kubernetes has not generated the claim yet."""
    message = f"the claim for {facts.entry!r} is being created from template {facts.path}"
    return facts.blocked(reasons.CLAIM_NOT_FOUND, message, transient=True)


UNGENERATED: Sequence[Check[UngeneratedClaim]] = (
    template_name_taken,
    template_oversized,
    template_refused,
    generated_lost,
    not_generated,
)
"""Checks of a claim that is not generated yet. The last one always finds a problem."""


@dataclass(frozen=True, slots=True)
class GeneratedClaim:
    """The facts about the claim that Kubernetes generated for a pod's `entry`: can it be negotiated now?

    `former` is the holding of the claim's name, perhaps of an earlier claim. `embedded` is set if a driver in this
    process is to allocate it, which needs no stand-in.
    """

    pod: Pod
    entry: str
    mirror: BuiltinClaim
    class_request: ClassRequest | None
    class_: ResourceClass | None
    stand_in: ResourceClaim | None
    holding: Holding | None
    former: Holding | None
    embedded: bool = False

    @property
    def path(self) -> str:
        """The claim's name in messages, NAMESPACE/NAME."""
        return f"{self.mirror.metadata.namespace}/{self.mirror.metadata.name}"

    @property
    def subject(self) -> str:
        """The object that the user wrote, in messages: the template, or else the claim."""
        return template_of(self.pod, self.entry) or f"claim {self.path}"

    def blocked(self, code: str, message: str) -> Problem:
        """A problem that a change of the claim may end."""
        meta = self.mirror.metadata
        return Problem(code, message, (("claim", meta.namespace, meta.name),))


def generated_deleted(facts: GeneratedClaim) -> Problem | None:
    """The claim is being deleted while its pod is not bound, and Kubernetes will generate another one."""
    if not facts.mirror.metadata.deletion_timestamp or facts.pod.spec.node_name:
        return None
    message = f"the claim for {facts.entry!r} was deleted and is being recreated"
    return Problem(reasons.CLAIM_NOT_FOUND, message, (), transient=True)


def generated_releasing(facts: GeneratedClaim) -> Problem | None:
    """The holding of the claim's name is being released, or the stand-in that it needs is being deallocated."""
    stand_in = facts.stand_in
    if facts.former is not None and facts.former.phase is Phase.ENDING:
        message = not_deallocated(f"claim {facts.path}", facts.former.driver)
        return facts.blocked(reasons.DRIVER_FAILED, message)
    is_releasing = facts.former is not None and not facts.former.joinable
    is_deallocating = stand_in is not None and being_deallocated(stand_in) and not facts.embedded
    if not is_releasing and not (facts.holding is None and is_deallocating):
        return None
    return Problem(reasons.CLAIM_NOT_FOUND, f"claim {facts.path} is being released", (), transient=True)


def generated_unreadable(facts: GeneratedClaim) -> Problem | None:
    """The claim's parameters can't be decoded."""
    why = unreadable(facts.mirror) if facts.class_request is None else ""
    if not why:
        return None
    return facts.blocked(reasons.PARAMETERS_INVALID, parameters_unreadable(facts.subject, why))


def stand_in_taken(facts: GeneratedClaim) -> Problem | None:
    """The Parley claim with the claim's name was not made for it. An embedded driver's allocation needs none."""
    if facts.stand_in is None or (facts.holding is not None and not facts.holding.standalone):
        return None
    if stands_for(facts.stand_in, facts.pod.metadata.uid, facts.entry, facts.class_request):
        return None
    message = (
        f"a parley.dev ResourceClaim {facts.path} exists that Parley did not create, and Parley needs the "
        "name for what the driver allocates: delete it"
    )
    return facts.blocked(reasons.NAME_TAKEN, message)


def not_from_a_template(facts: GeneratedClaim) -> Problem | None:
    """The claim names Parley's DeviceClass, but no ResourceClass."""
    if facts.class_request is not None:
        return None
    message = (
        f"claim {facts.path} names Parley's DeviceClass but was not created by Parley: "
        "create it from a parley.dev ResourceClaimTemplate"
    )
    return facts.blocked(reasons.NAME_TAKEN, message)


def generated_class_missing(facts: GeneratedClaim) -> Problem | None:
    """The claim's class does not exist. A claim that is allocated does not need it."""
    if facts.class_request is None or facts.class_ is not None or facts.holding is not None:
        return None
    name = facts.class_request.class_name
    return Problem(reasons.CLASS_NOT_FOUND, class_not_found(name, facts.subject), (("class", name),))


GENERATED: Sequence[Check[GeneratedClaim]] = (
    generated_deleted,
    generated_releasing,
    generated_unreadable,
    stand_in_taken,
    not_from_a_template,
    generated_class_missing,
)
"""Checks that must pass before a generated claim can be negotiated."""


def template_of(pod: Pod, entry: str) -> str:
    """The template that the pod names for the claim, in messages; "" if it names none."""
    templates = {it.name: it.resource_claim_template_name for it in pod.spec.resource_claims}
    name = templates.get(entry)
    return f"template {pod.metadata.namespace}/{name}" if name else ""
