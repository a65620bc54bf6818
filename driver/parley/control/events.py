"""Events on pods and templates: one for each phase that an object is in, not one for each attempt."""

from collections import OrderedDict
from typing import Any

import structlog

from parley.api.names import GROUP
from parley.api.resources import EVENTS
from parley.control.clock import Clock, rfc3339_micro
from parley.kube.client import ApiError, Client, OutcomeUnknown

_REMEMBERED = 10_000
_NOTE_LIMIT = 1024

log = structlog.get_logger(__name__)


class Recorder:
    """Writes events; an event that cannot be written is logged and forgotten, nothing depends on it."""

    def __init__(self, client: Client, clock: Clock, instance: str) -> None:
        self._client = client
        self._clock = clock
        self._instance = instance
        self._last: OrderedDict[str, tuple[str, str]] = OrderedDict()

    async def warn(
        self, kind: str, api_version: str, namespace: str, name: str, uid: str, code: str, note: str
    ) -> None:
        """Say once that the object is in a phase that needs attention, and again when the words change."""
        if self._last.get(uid) == (code, note):
            return
        self._last[uid] = (code, note)
        self._last.move_to_end(uid)
        if len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)
        regarding = {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name, "uid": uid}
        await self._write(namespace, name, code, note, regarding)

    async def _write(self, namespace: str, name: str, code: str, note: str, regarding: dict[str, Any]) -> None:
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name[:200]}-", "namespace": namespace},
            "eventTime": rfc3339_micro(self._clock()),
            "reportingController": f"{GROUP}/controller",
            "reportingInstance": self._instance,
            "action": "Negotiating",
            "reason": code,
            "note": note[:_NOTE_LIMIT],
            "type": "Warning",
            "regarding": regarding,
        }
        try:
            await self._client.create(EVENTS, body, namespace)
        except (ApiError, OutcomeUnknown) as error:
            log.warning("event not written", object=f"{namespace}/{name}", reason=code, error=str(error))

    def forget(self, uid: str) -> None:
        """The object is gone, or its phase is over."""
        self._last.pop(uid, None)
