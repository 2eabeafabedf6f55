"""A route that is declared to be hermes-agent, through the whole proxy: what reaches it, and what its client gets"""

import json
from typing import Any, Final

import pytest
from trio.testing import MockClock

from tests.support.house import ASKED, DONE, HEAD, Peer, answer, finish, house, role, text
from wiretape.events.emit import Summariser
from wiretape.proxy.api.streams import summary_json

AGENT: Final[dict[str, Any]] = {"hermes": True}
SESSION: Final = HEAD.replace(b"\r\n\r\n", b"\r\nX-Hermes-Session-Id: api-1\r\nX-Hermes-Session-Key: k\r\n\r\n")
RUNNING: Final = b'event: hermes.tool.progress\ndata: {"tool": "terminal", "toolCallId": "c", "status": "running"}\n\n'
COMPLETED: Final = (
    b'event: hermes.tool.progress\ndata: {"tool": "terminal", "toolCallId": "c", "status": "completed"}\n\n'
)
INCOMPLETE: Final = b'{"error":{"message":"no answer","type":"server_error","code":"agent_incomplete"}}'


def statuses(body: bytes) -> list[tuple[str, str]]:
    payloads = [block.partition(b"data: ")[2] for block in body.split(b"\n\n") if block.startswith(b"event:")]
    return [(value["toolCallId"], value["status"]) for value in map(json.loads, payloads)]


async def test_agent_tool_is_reported(autojump_clock: MockClock) -> None:
    async with house(Peer(role(), RUNNING, COMPLETED, text("18"), finish(), DONE), route=AGENT) as home:
        answered = await home.ask()
        assert statuses(answered.body) == [("c", "running"), ("c", "completed")]
        assert await home.ending() == ("completed", [])
        tape = await home.tape()
        assert tape[0].keys["settings"]["hermes"] is True
        (tool,) = summary_json(home.streams[0], Summariser().feed(*tape))["tools"]
        assert (tool["id"], tool["state"], tool["run_by"]) == ("c", "completed", "upstream")


@pytest.mark.parametrize("name", ["X-Hermes-Tool-Progress", "X-Wiretape-Tool-Events"])
async def test_client_can_switch_agent_events_off(name: str, autojump_clock: MockClock) -> None:
    async with house(peer := Peer(role(), RUNNING, text("18"), finish(), DONE), route=AGENT) as home:
        assert statuses((await home.ask(ASKED, f"{name}: off")).body) == []
        assert (b"x-hermes-tool-progress: off" in peer.requests[0].lower()) is name.startswith("X-Hermes")


async def test_session_headers_pass_both_ways(autojump_clock: MockClock) -> None:
    given = ("X-Hermes-Session-Id: api-1", "X-Hermes-Session-Key: k", "Idempotency-Key: once")
    async with house(peer := Peer(role(), text("18"), finish(), DONE, head=SESSION), route=AGENT) as home:
        answered = await home.ask(ASKED, *given)
        assert all(line.lower().encode() in peer.requests[0].lower() for line in given)
        assert answered.header(b"x-hermes-session-id") == b"api-1"
        assert answered.header(b"x-hermes-session-key") == b"k"


@pytest.mark.parametrize(("route", "ending"), [(AGENT, "completed"), ({}, "stalled")], ids=["hermes", "elsewhere"])
async def test_agent_keepalives_reset_the_stall_timer(
    route: dict[str, Any], ending: str, autojump_clock: MockClock
) -> None:
    silence = [b": keepalive\n\n"] * 20
    script = Peer(role(), text("Well. "), *silence, text("18"), finish(), DONE, every_s=30)
    async with house(script, route={**route, "idle_s": 300.0}) as home:
        await home.ask()
        assert (await home.ending())[0] == ending


async def test_agent_run_is_not_repeated_after_tools_ran(autojump_clock: MockClock) -> None:
    async with house(Peer(role(), RUNNING, end="fin"), route=AGENT) as home:
        answered = await home.ask()
        assert (answered.status, statuses(answered.body)) == (200, [("c", "running"), ("c", "dropped")])
        assert b'"error"' in answered.body
        assert (await home.kinds()).count("attempt") == 1


@pytest.mark.parametrize(
    ("headers", "attempts"), [(("X-Hermes-Completed: false", "X-Hermes-Partial: true"), 1), ((), 3)]
)
async def test_agent_error_response_passes(headers: tuple[str, ...], attempts: int, autojump_clock: MockClock) -> None:
    async with house(answer(502, INCOMPLETE, *headers), route=AGENT) as home:
        answered = await home.ask({**ASKED, "stream": False})
        assert (answered.status, answered.body) == (502, INCOMPLETE)
        assert (await home.kinds()).count("attempt") == attempts
        for line in headers:
            name, _, value = line.encode().partition(b": ")
            assert answered.header(name.lower()) == value
