"""Parses the parameters of claims and classes, inline or in referenced objects, with their driver's models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parley.api.models import ParametersReference
from parley.negotiation.preference import Prefer
from parley.sdk.checks import BadParameters, ParameterModels
from parley.sdk.driver import Driver
from parley.sdk.referenced import InvalidParametersObject, ParametersUnavailable, References, object_of
from parley.sdk.values import ClaimRequest


@dataclass(frozen=True, slots=True)
class RawClaim:
    """A pending claim before its parameters are parsed. `subject` is its name in messages, if not the claim's own.

    `reference` names the object that has the claim's parameters, `class_reference` that of its class; `prefer` is
    the class's field, None if unset: then the default depends on whether the driver reports the room left.
    """

    name: str
    uid: str
    namespace: str
    claim: str
    class_name: str
    parameters: Mapping[str, Any] | None
    class_parameters: Mapping[str, Any] | None
    subject: str = ""
    reference: ParametersReference | None = None
    class_reference: ParametersReference | None = None
    prefer: Prefer | None = None
    generated: bool = False


class ParameterReader:
    """Parses the parameters of one driver's claims and classes. Objects that have some must have been read at the
    time `since` (the event loop's clock) or later."""

    def __init__(self, driver: Driver[Any, Any], references: References) -> None:
        self._references = references
        self._kinds = driver.parameter_kinds
        self._claim_models = ParameterModels(driver.parameters, driver.parameter_versions)
        self._class_models = ParameterModels(driver.class_parameters, driver.class_parameter_versions)

    def claim(self, raw: RawClaim, since: float) -> ClaimRequest[Any, Any]:
        """The claim with typed parameters. Raises BadParameters, with claim or class, field and value;
        ParametersUnavailable."""
        for_class = self.class_(raw.class_name, raw.class_parameters, raw.class_reference, since)
        subject = raw.subject or f"claim {raw.namespace}/{raw.claim}"
        if raw.reference is None:
            parameters = self._claim_models.parse(raw.parameters, subject)
        else:
            parameters = self._referenced(self._claim_models, raw.reference, raw.namespace, subject, since)
        return ClaimRequest(raw.name, raw.uid, raw.claim, raw.class_name, parameters, for_class, raw.generated)

    def class_(
        self,
        class_name: str,
        parameters: Mapping[str, Any] | None,
        reference: ParametersReference | None,
        since: float,
    ) -> Any:
        """The typed parameters of a class. Raises BadParameters and ParametersUnavailable."""
        if reference is None:
            return self._class_models.parse(parameters, f"class {class_name}")
        return self._referenced(self._class_models, reference, "", f"class {class_name}", since)

    def _referenced(
        self, models: ParameterModels, reference: ParametersReference, payer: str, whose: str, since: float
    ) -> Any:
        """The typed parameters in the object that a class, or a claim in the namespace `payer`, refers to."""
        try:
            wanted = object_of(reference, payer, self._kinds)
        except InvalidParametersObject as error:
            raise BadParameters(f"parametersRef of {whose}: {error}") from None
        try:
            raw = self._references.get(wanted, since)
        except ParametersUnavailable as error:
            raise error.about(whose) from None
        try:
            return models.parse(raw, f"{whose}, in {wanted}", private=True)
        except BadParameters as error:
            self._references.reread_later(wanted)
            raise BadParameters(str(error), wanted.topic) from None
