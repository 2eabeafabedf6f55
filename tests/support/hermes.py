"""An upstream that has runs itself, in memory: hermes-agent's endpoints over one of its own event streams

    agent = Hermes("approve")
    async with house(agent, route={"runs": "relay", "hermes": True}) as home:
        ...
        assert agent.asked("POST /v1/runs/{id}/approval") == [{"choice": "once"}]

The event streams below fixtures/runs were recorded from hermes-agent 0.19.0. As there, the events of a run go to one
reader only, and are gone with it. A stream waits where it asks for an approval, and where its run was stopped.
"""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio
import trio.testing

from tests.proxy.scripted import Reset, chunk, request_of
from tests.support.house import HEAD
from wiretape.events.core.json_text import dumps, parse

RUNS: Final = Path(__file__).parents[2] / "fixtures/runs"
#: The id in the recorded streams.
UPSTREAM_ID: Final = "run_" + 32 * "0"


class Asked(NamedTuple):
    """One request that the agent got."""

    line: str
    headers: dict[str, str]
    body: Any
    at: float


class Hermes:
    """The agent. One instance plays every connection."""

    def __init__(
        self,
        recorded: str = "text",
        *,
        every_s: float = 0.1,
        start_s: float = 0.0,
        cut_after: float = inf,
        status: Sequence[Any] = (),
        refuses: bool = False,
    ) -> None:
        """`cut_after` that many events their connection is reset; `status` are the answers to the questions after it,
        the last one again and again: a status, or the number of an error, or 0 for a reset. `refuses`: it cannot stop.
        """
        self.requests: list[Asked] = []
        self.events = (RUNS / f"hermes-{recorded}.sse").read_bytes()
        #: The answer to the start of a run.
        self.start: tuple[int, Any] = (202, {"run_id": UPSTREAM_ID, "status": "started"})
        #: It answers no approval and no stop.
        self.mute = False
        self.approved = trio.Event()
        self.stopped = trio.Event()
        #: The events have had their one reader.
        self.read = False
        self._every_s = every_s
        self._start_s = start_s
        self._refuses = refuses
        self._cut_after = cut_after
        self._status = list(status)

    def asked(self, line: str) -> list[Any]:
        """Return the bodies of all requests for this method and path, `{id}` being that of the run."""
        return [each.body for each in self.requests if each.line == line.replace("{id}", UPSTREAM_ID)]

    async def __call__(self, stream: trio.abc.Stream) -> None:
        """Play one connection."""
        while data := await request_of(stream):
            head, _, body = data.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            asked = Asked(first.rpartition(" ")[0], headers, parse(body) if body else None, trio.current_time())
            self.requests.append(asked)
            if asked.line == "POST /v1/runs":
                await trio.sleep(self._start_s)
            if asked.line.endswith("/events") and not self.read:
                await self._play(stream)
            elif self.mute and asked.line.endswith(("/approval", "/stop")):
                await stream.receive_some()
            else:
                await stream.send_all(_json(*self._answer(asked)))

    async def _play(self, stream: trio.abc.Stream) -> None:
        self.read = True
        await stream.send_all(HEAD)
        for at, block in enumerate(self.events.split(b"\n\n")[:-1]):
            if at >= self._cut_after:
                raise Reset
            if b'"run.cancelled"' in block:
                await self.stopped.wait()
            await trio.sleep(self._every_s)
            middle = block.find(b"run.") + 4  # inside the name of a closing event
            for part in (block[:middle], block[middle:] + b"\n\n"):
                await stream.send_all(chunk(part))
                await trio.testing.wait_all_tasks_blocked()
            if b'"approval.request"' in block and b"approval.responded" in self.events:
                await self._wait_silently(stream)
        await stream.send_all(b"0\r\n\r\n")

    async def _wait_silently(self, stream: trio.abc.Stream) -> None:
        """Wait for the approval as the agent does: a comment each 30 s."""
        while not self.approved.is_set():
            with trio.move_on_after(30):
                await self.approved.wait()
                return
            await stream.send_all(chunk(b": keepalive\n\n"))

    def _answer(self, asked: Asked) -> tuple[int, Any]:
        method, _, path = asked.line.partition(" ")
        if asked.line == "POST /v1/runs":
            return self.start
        if method == "GET" and path == f"/v1/runs/{UPSTREAM_ID}" and self._status:
            status = self._status.pop(0) if len(self._status) > 1 else self._status[0]
            if status == 0:
                raise Reset
            return (status, _error("Run not found", "run_not_found")) if type(status) is int else (200, status)
        if path.endswith("/approval"):
            if self.approved.is_set():
                return 409, _error(f"Run has no pending approval: {UPSTREAM_ID}", "approval_not_pending")
            self.approved.set()
            said = {"object": "hermes.run.approval_response", "run_id": UPSTREAM_ID, "choice": "once", "resolved": 1}
            return 200, said
        if path.endswith("/stop") and self._refuses:
            return 500, _error("Out of order", "internal")
        if path.endswith("/stop"):
            self.stopped.set()
            return 200, {"run_id": UPSTREAM_ID, "status": "stopping"}
        return 404, _error(f"Run not found: {UPSTREAM_ID}", "run_not_found")


def status(state: str, **more: Any) -> dict[str, Any]:
    """Return what the agent says of a run."""
    times = {"created_at": 1_700_000_000.0, "updated_at": 1_700_000_009.0}
    return {"object": "hermes.run", "run_id": UPSTREAM_ID, "status": state, **times, **more}


def _error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _json(code: int, value: Any) -> bytes:
    body = dumps(value)
    return b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (code, len(body), body)
