"""How far an allocation is, as the driver reports it: written into the claims' conditions every few seconds."""

import asyncio
from collections.abc import Sequence

import structlog

from parley.kube.client import ApiError, OutcomeUnknown
from parley.sdk.standalone.operations import ClaimRef
from parley.sdk.standalone.records import Gone, StandaloneRecords

SECONDS = 5.0
"""Between two writes of the same claim."""

log = structlog.get_logger(__name__)


class Progress:
    """Of one allocation. `report` is the driver's `Request.progress`."""

    def __init__(self, records: StandaloneRecords, refs: Sequence[ClaimRef]) -> None:
        self._records = records
        self._refs = refs
        self._text = ""
        self._changed = asyncio.Event()

    def report(self, text: str) -> None:
        """What the condition is to say. Of several texts within a short time the last one is written."""
        self._text = text
        self._changed.set()

    async def run(self) -> None:
        """Write what is reported until cancelled. A write that fails is tried again with the next one."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            for ref in self._refs:
                await self._write(ref, self._text)
            await asyncio.sleep(SECONDS)

    async def _write(self, ref: ClaimRef, text: str) -> None:
        try:
            await self._records.set_progress(ref, text)
        except Gone:
            pass  # whoever allocates finds out as well
        except (ApiError, OutcomeUnknown) as error:
            log.info("progress not written", claim="/".join(ref.key), error=str(error))
            self._changed.set()
