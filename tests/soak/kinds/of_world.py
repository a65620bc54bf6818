"""Which classes, templates, named claims and kinds of pods a world has, by its plan."""

from collections.abc import Iterator, Mapping, Sequence

from tests.soak.actions.priorities import Preemption
from tests.soak.kinds import classes, pods
from tests.soak.kinds.claims import claim_kinds, is_on_demand
from tests.soak.kinds.classes import ON_DEMAND_TEMPLATES
from tests.soak.kinds.names import Json
from tests.soak.kinds.pods import POD_KINDS, PodKind
from tests.soak.plan import Plan


class Kinds:
    """What users and administrators of a world create. The course of the world depends on the order here."""

    def __init__(self, plan: Plan) -> None:
        self.classes = dict(plan.preemption.classes)
        """What each class says, by its name."""
        self.pods: dict[str, PodKind] = dict(POD_KINDS)
        if plan.kept_claims:
            self._add(classes.KEPT_CLAIMS_CLASS_KINDS, pods.KEPT_CLAIMS_POD_KINDS)
        if plan.views:
            self._add(classes.VIEW_CLASS_KINDS, pods.VIEW_POD_KINDS)
        if plan.room_yields:
            self._add(classes.YIELDING_CLASS_KINDS, pods.YIELDING_POD_KINDS)
        if plan.immediate_claims:
            self._add(classes.IMMEDIATE_CLASS_KINDS, pods.IMMEDIATE_POD_KINDS)
        if plan.on_demand:
            self._add(classes.ON_DEMAND_CLASS_KINDS, pods.ON_DEMAND_POD_KINDS)
        if plan.parameter_references:
            self._add(classes.PARAMETER_REFERENCE_CLASS_KINDS, pods.PARAMETER_REFERENCE_POD_KINDS)
        self.varied_classes = sorted(self.classes)
        """Those of the device driver, which administrators change in every way."""
        if plan.tokens:
            self._add(classes.TOKEN_CLASS_KINDS, pods.TOKEN_POD_KINDS)
        if plan.standalone:
            self._add(classes.STANDALONE_CLASS_KINDS, pods.STANDALONE_POD_KINDS)
        if plan.preemption is not Preemption.NONE:
            self._add({}, pods.PREEMPTION_POD_KINDS)
            self._add({}, pods.FULL_NODES_POD_KINDS if plan.full_nodes else {})
        self.claims = claim_kinds(self.classes)
        """Names of the named claims."""
        self.users_claims = [name for name in self.claims if not is_on_demand(name)]
        """Those of them that users create."""
        self.on_demand_templates = ON_DEMAND_TEMPLATES if plan.on_demand else {}
        """The templates from which Parley creates the others."""
        self.templates = [*classes.TEMPLATE_KINDS, *_more_templates(plan)]
        """Names of the templates of generated claims."""

    def _add(self, class_kinds: Mapping[str, Json], pod_kinds: Mapping[str, PodKind]) -> None:
        self.classes.update(class_kinds)
        self.pods.update(pod_kinds)


def _more_templates(plan: Plan) -> Iterator[str]:
    """Names of the templates that only some worlds have."""
    found: Sequence[tuple[bool, Mapping[str, tuple[str, Json]]]] = (
        (plan.preemption is not Preemption.NONE, classes.PREEMPTION_TEMPLATE_KINDS),
        (plan.views, classes.VIEW_TEMPLATE_KINDS),
        (plan.room_yields, classes.YIELDING_TEMPLATE_KINDS),
        (plan.parameter_references, classes.PARAMETER_REFERENCE_TEMPLATE_KINDS),
        (plan.tokens, classes.TOKEN_TEMPLATE_KINDS),
        (plan.standalone, classes.STANDALONE_TEMPLATE_KINDS),
    )
    for is_there, kinds in found:
        if is_there:
            yield from kinds
