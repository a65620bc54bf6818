"""Tells people how far an allocation is: the driver's latest sentence, in the claims' conditions, now and then."""

import asyncio
from collections.abc import Sequence

import structlog

from parley.kube.client import ApiError, OutcomeUnknown
from parley.sdk.standalone import conditions
from parley.sdk.standalone.jobs import Part
from parley.sdk.standalone.records import Gone, StandaloneRecords

SECONDS = 5.0
"""Between two writes of the same claim."""

log = structlog.get_logger(__name__)


class Progress:
    """Of one allocation. `tell` is the driver's `Request.progress`."""

    def __init__(self, records: StandaloneRecords, parts: Sequence[Part]) -> None:
        self._records = records
        self._parts = parts
        self._text = ""
        self._news = asyncio.Event()

    def tell(self, text: str) -> None:
        """So far it is. Of several sentences within a short time the last one is written."""
        self._text = text
        self._news.set()

    async def report(self) -> None:
        """Write what is told until cancelled. A write that fails is tried again with the next one."""
        while True:
            await self._news.wait()
            self._news.clear()
            for part in self._parts:
                await self._write(part, self._text)
            await asyncio.sleep(SECONDS)

    async def _write(self, part: Part, text: str) -> None:
        try:
            await self._records.tell(part, conditions.IN_PROGRESS, text, in_progress=True)
        except Gone:
            pass  # whoever allocates finds out as well
        except (ApiError, OutcomeUnknown) as error:
            log.info("progress not written", claim="/".join(part.key), error=str(error))
            self._news.set()
