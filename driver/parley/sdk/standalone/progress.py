"""Writes the progress of an allocation, as the driver reports it, into the claims' conditions."""

import asyncio
from collections.abc import Sequence

import structlog

from parley.kube.client import ApiError, OutcomeUnknown
from parley.sdk.standalone.operations import ClaimRef
from parley.sdk.standalone.records import Gone, StandaloneRecords

SECONDS = 5.0
"""The least time between two writes of the same claim."""

log = structlog.get_logger(__name__)


class Progress:
    """The progress of one allocation. `report` is the driver's `Request.progress`."""

    def __init__(self, records: StandaloneRecords, refs: Sequence[ClaimRef]) -> None:
        self._records = records
        self._refs = refs
        self._text = ""
        self._changed = asyncio.Event()

    def report(self, text: str) -> None:
        """Sets the text to write into the condition. Of several within a short time, the last one is written."""
        self._text = text
        self._changed.set()

    async def run(self) -> None:
        """Writes reported texts until cancelled. A failed write is tried again after `SECONDS`."""
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
            pass  # the allocation's own writes find this out, too
        except (ApiError, OutcomeUnknown) as error:
            log.info("progress not written", claim="/".join(ref.key), error=str(error))
            self._changed.set()
