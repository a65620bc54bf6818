"""The way in for schedulers takes calls about as many nodes as a cluster may have."""

import io
from collections.abc import Sequence

import aiohttp
import pytest

from parley.scheduler.extender.server import LARGEST_CALL, serving


class Measuring:
    """An extender that says how large a call is."""

    verbs: Sequence[str] = ("filter",)

    async def answer(self, verb: str, body: bytes) -> bytes:
        return b"%d" % len(body)


@pytest.mark.parametrize(("size", "status"), [(LARGEST_CALL, 200), (LARGEST_CALL + 1, 413)])
async def test_a_call_may_be_as_large_as_is_said(size: int, status: int) -> None:
    async with serving(Measuring, "127.0.0.1", 0) as port, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/filter"
        async with session.post(url, data=io.BytesIO(bytes(size))) as answer:
            assert answer.status == status
            assert status != 200 or await answer.read() == b"%d" % size
