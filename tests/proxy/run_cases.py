"""Runs through the whole proxy in memory: upstreams of one turn, and what clients send and read."""

from collections.abc import Mapping
from typing import Any, Final

from tests.support.house import DONE, House, Peer, call, finish, post, text, usage
from tests.support.http import Answer, Client
from wiretape.events.core.json_text import parse

RUN: Final[Mapping[str, Any]] = {"input": "hi", "model": "m"}
MINE, THEIRS = "Authorization: Bearer mine", "Authorization: Bearer theirs"


def says(*texts: str, **how: Any) -> Peer:
    """Return an upstream that answers with these pieces of text."""
    return Peer(*map(text, texts), finish(), usage(), DONE, **how)


def calls_tool(**how: Any) -> Peer:
    """Return an upstream whose model calls a tool."""
    return Peer(text("Let me look."), call('{"at":1}', "look"), finish("tool_calls"), usage(), DONE, **how)


def slow(count: int = 10) -> Peer:
    """Return an upstream that says a word each second."""
    return says(*(f"{number} " for number in range(count)), every_s=1)


async def start(home: House, *headers: str, path: str = "/v1/runs", **body: Any) -> str:
    """Start a run and return its id."""
    answered = await home.ask({**RUN, **body}, *headers, path=path)
    assert answered.status == 202, answered.body
    assert parse(answered.body)["status"] == "started"
    return str(parse(answered.body)["run_id"])


async def get(home: House, path: str, *headers: str, method: str = "GET") -> Answer:
    return await home.ask(b"", *headers, path=f"/v1/runs{path}", method=method)


async def state(home: House, run: str) -> Any:
    answered = await get(home, f"/{run}")
    assert answered.status == 200, answered.body
    return parse(answered.body)


async def events(home: House, run: str, *headers: str, query: str = "", ended: str = "chunked") -> list[Any]:
    answered = await get(home, f"/{run}/events{query}", *headers)
    assert (answered.status, answered.ended) == (200, ended)
    return events_in(answered.body)


def events_in(body: bytes) -> list[Any]:
    """Return the events of a whole number of frames; their ids are their sequence, without a gap."""
    assert body.endswith(b"\n\n") or not body
    found: list[Any] = []
    for block in body.split(b"\n\n")[:-1]:
        if block.startswith(b":"):
            assert block == b": keepalive"
            continue
        name, data = block.split(b"\n")
        found.append(parse(data.removeprefix(b"data: ")))
        assert name == b"id: %d" % found[-1]["sequence"]
    numbers = [event["sequence"] for event in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    return found


def names(found: list[Any]) -> list[str]:
    return [event["event"] for event in found]


def error(answered: Answer) -> tuple[int, str | None, str | None]:
    """Return status, code and param of an error."""
    value = parse(answered.body)["error"]
    return answered.status, value["code"], value["param"]


async def outputs(home: House, run: str, *given: Any, **more: str) -> Answer:
    made = [{"call_id": call_id, "output": output} for call_id, output in more.items()]
    return await home.ask({"tool_outputs": [*given, *made]}, path=f"/v1/runs/{run}/tool_outputs")


async def viewer(home: House, run: str, *headers: str, capacity: int | None = None) -> Client:
    """Connect a viewer, which has not read anything yet."""
    client = await home.connect(capacity=capacity)
    await client.send(post(b"", *headers, path=f"/v1/runs/{run}/events", method="GET"))
    return client
