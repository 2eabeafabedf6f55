"""A page in headless Chromium, driven through DevTools over a pipe: no driver, no port, no package.

async with browsing(url) as page:
    await page.until("document.title === 'done'")
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any, Final

import trio

#: Debian's name and others'.
CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-quic", "--remote-debugging-pipe"),
)
#: Chromium reads commands from descriptor 3 and writes answers to descriptor 4.
_WITH_PIPES: Final = 'commands=$1 answers=$2; shift 2; exec "$@" 3<&"$commands" 4>&"$answers"'


class Page:
    """One page. Each command waits for its answer; events are dropped."""

    def __init__(self, commands: trio.abc.SendStream, answers: trio.abc.ReceiveStream) -> None:
        self._commands = commands
        self._answers = answers
        self._rest = b""
        self._id = 0
        self._session: dict[str, str] = {}

    async def open(self, url: str) -> None:
        """Open the page in a new tab."""
        target = await self._send("Target.createTarget", url="about:blank")
        self._session = await self._send("Target.attachToTarget", flatten=True, **target)
        await self._send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def read(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, or that of its promise."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answered = await self._send("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in answered, answered
        return answered["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until an expression is true: it is looked at again whenever the document changes."""
        await self.read(
            f"new Promise((go) => {{ const look = () => ({condition}) && go(true); look() || new MutationObserver(look)"
            ".observe(document, { subtree: true, childList: true, attributes: true, characterData: true });"
            " addEventListener('load', look); })"
        )

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        command = {"id": self._id, "method": method, "params": params, **self._session}
        await self._commands.send_all(json.dumps(command).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                data = await self._answers.receive_some()
                assert data, "Chromium has ended"
                self._rest += data
            line, _, self._rest = self._rest.partition(b"\0")
            answered = json.loads(line)
            if answered.get("id") == self._id:
                assert "error" not in answered, answered
                return dict(answered["result"])


@asynccontextmanager
async def browsing(url: str) -> AsyncGenerator[Page]:
    """Start Chromium with an empty profile, open a page, and end the browser."""
    assert CHROMIUM is not None, "a test that needs Chromium is skipped without it"
    from_us, commands = os.pipe()
    answers, to_us = os.pipe()
    # Beyond 4, so that no pipe is in the way of another.
    theirs = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (from_us, to_us)]
    os.close(from_us)
    os.close(to_us)
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            "bash",
            "-c",
            _WITH_PIPES,
            "bash",
            *map(str, theirs),
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={profile}",
        ]
        process = await trio.lowlevel.open_process(
            command, pass_fds=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for each in theirs:
            os.close(each)
        async with trio.lowlevel.FdStream(commands) as sending, trio.lowlevel.FdStream(answers) as receiving:
            page = Page(sending, receiving)
            try:
                await page.open(url)
                yield page
            finally:
                with trio.CancelScope(shield=True):
                    os.killpg(process.pid, signal.SIGKILL)  # its helpers too
                    await process.wait()
