"""A headless Chromium, driven by the protocol of its developer tools: pages, what they log and what they ask for.

Only what tests of the page need. The browser is Debian's; it has its own empty profile and talks to nobody else.
"""

import asyncio
import base64
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import orjson

_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
_LISTENING = "DevTools listening on "
_START_SECONDS = 120.0
_SECONDS = 60.0

Json = dict[str, Any]


class PageError(AssertionError):
    """What the browser refused, or what never came to be."""


class PageLeft(PageError):
    """The page was left for another one before it could answer."""


_LEFT = ("Inspected target navigated or closed", "Execution context was destroyed")


class Browser:
    """A running browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._pages: dict[str, Page] = {}

    async def listen(self) -> None:
        """Hand out answers and events until the browser ends."""
        async for message in self._socket:
            told = orjson.loads(message.data)
            if (answer := self._answers.pop(told.get("id", 0), None)) is not None:
                answer.set_result(told)
            elif (page := self._pages.get(told.get("sessionId", ""))) is not None:
                page.events.append((told["method"], told["params"]))

    async def call(self, method: str, session: str = "", **parameters: Any) -> Json:
        """The result of a command. Raises PageError if it is refused."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        command = {"id": number, "method": method, "params": parameters}
        await self._socket.send_str(
            orjson.dumps({**command, **({"sessionId": session} if session else {})}).decode()
        )
        async with asyncio.timeout(_SECONDS):
            told = await answer
        if "error" in told:
            message = told["error"]["message"]
            raise (PageLeft if message.startswith(_LEFT) else PageError)(f"{method}: {message}")
        result: Json = told["result"]
        return result

    @asynccontextmanager
    async def page(
        self, *, scheme: str = "light", scripts: bool = True, size: tuple[int, int] = (1280, 900)
    ) -> AsyncIterator["Page"]:
        """A page with nothing in it, in a context of its own; `scheme` is light or dark."""
        context = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            await page.call(f"{domain}.enable")
        await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        await page.resize(*size)
        try:
            yield page
        finally:
            del self._pages[attached["sessionId"]]
            await self.call("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """One tab. `events` are the events of its domains so far."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.events: list[tuple[str, Json]] = []

    async def call(self, method: str, **parameters: Any) -> Json:
        """The result of a command of this page."""
        return await self._browser.call(method, self._session, **parameters)

    async def open(self, url: str) -> None:
        """Go there, and return when it is shown."""
        await self.call("Page.navigate", url=url)
        await self.until(f"document.readyState === 'complete' && location.href === {orjson.dumps(url).decode()}")

    async def value(self, expression: str) -> Any:
        """What an expression gives in the page."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise PageError(f"{expression}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def until(self, expression: str, seconds: float = _SECONDS) -> None:
        """Return when the expression is true in the page, or in the one that comes after it.

        Raises PageError if it never is.
        """
        end = asyncio.get_running_loop().time() + seconds
        while not await self._holds(expression):
            if asyncio.get_running_loop().time() > end:
                raise PageError(f"never true: {expression}; the page: {await self.text()}")
            await asyncio.sleep(0.02)

    async def _holds(self, expression: str) -> bool:
        try:
            return bool(await self.value(expression))
        except PageLeft:
            return False

    async def text(self, selector: str = "body") -> str:
        """What a reader sees of the first such element."""
        return str(await self.value(f"document.querySelector({orjson.dumps(selector).decode()})?.innerText"))

    async def press(self, key: str, code: int) -> None:
        """A key, as somebody would."""
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = "\r" if key == "Enter" and kind == "char" else ""
            if kind != "char" or text:
                await self.call(
                    "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
                )

    async def resize(self, width: int, height: int) -> None:
        """The size of the window in pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def picture(self) -> bytes:
        """A PNG of what is to be seen now."""
        taken = await self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        return base64.b64decode(taken["data"])

    def complaints(self) -> list[str]:
        """What the page's scripts threw, and what the browser logged as an error or warning."""
        found = []
        for method, told in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(f"{told['entry']['text']} ({told['entry'].get('url')})")
            elif method == "Runtime.consoleAPICalled":
                found.append(str(told["args"]))
        return found

    def asked_for(self) -> Sequence[str]:
        """The addresses that the page asked for."""
        return [told["request"]["url"] for method, told in self.events if method == "Network.requestWillBeSent"]


@asynccontextmanager
async def browser(program: Path) -> AsyncIterator[Browser]:
    """A browser, which ends with the block."""
    async with AsyncExitStack() as stack:
        profile = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="parley-browser-", ignore_cleanup_errors=True)
        )
        flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        process = await asyncio.create_subprocess_exec(
            program, *flags, "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        stack.push_async_callback(_ended, process)
        assert process.stderr is not None
        async with asyncio.timeout(_START_SECONDS):
            address = await _address(process.stderr)
        draining = asyncio.create_task(_drain(process.stderr))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        socket = await stack.enter_async_context(session.ws_connect(address, max_msg_size=0))
        found = Browser(socket)
        listening = asyncio.create_task(found.listen())
        try:
            yield found
        finally:
            for task in (listening, draining):
                task.cancel()
            await asyncio.gather(listening, draining, return_exceptions=True)


async def _address(output: asyncio.StreamReader) -> str:
    said = []
    async for line in output:
        said.append(line.decode(errors="replace").strip())
        if said[-1].startswith(_LISTENING):
            return said[-1].removeprefix(_LISTENING)
    raise PageError(f"the browser ended at once: {' '.join(said[-5:])}")


async def _drain(output: asyncio.StreamReader) -> None:
    async for _ in output:
        pass


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(60):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
