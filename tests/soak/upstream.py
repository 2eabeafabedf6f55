"""An upstream that does what the request's model names: all that providers do, well and badly."""

import json
import random
from collections.abc import Callable
from typing import Final

import trio

from wiretape.replay.playback.script import EVENT_STREAM, Fault, Request, Script, Step, json_answer
from wiretape.replay.playback.server import Upstream

_DONE: Final = b"data: [DONE]\n\n"
_CHUNKED: Final = (b"Transfer-Encoding", b"chunked")

#: Longer than the idle limit of the routes; and shorter, but longer than a keepalive.
_STALL_S: Final = 6.0
_PAUSE_S: Final = 2.5


def _delta(finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-soak", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "soak"}
    return b"data: %b\n\n" % json.dumps({**head, "choices": [choice]}, ensure_ascii=False).encode()


_END: Final = Step(0, _delta("stop") + _DONE)
_CALL: Final = '{"path": "notes.txt", "text": "one two three four five"}'
_SILENCE: Final = Step(_STALL_S, Fault.CUT)


def _texts(chance: random.Random, count: int, gap_s: float = 0.02) -> list[Step]:
    """Return pieces of text at a pace."""
    return [Step(gap_s * chance.random() * 2, _delta(content=f" word{n}")) for n in range(count)]


def _call(chance: random.Random, arguments: str) -> list[Step]:
    """Return a tool call in pieces."""
    function = {"name": "write_file", "arguments": ""}
    calls = [{"index": 0, "id": "call_soak", "type": "function", "function": function}]
    steps = [Step(0, _delta(tool_calls=calls))]
    for at in range(0, len(arguments), 9):
        piece = _delta(tool_calls=[{"index": 0, "function": {"arguments": arguments[at : at + 9]}}])
        steps.append(Step(0.01 * chance.random(), piece))
    return steps


def _text(chance: random.Random, _: bool) -> Script:
    return Script(steps=[Step(0, _delta(role="assistant", content="")), *_texts(chance, chance.randrange(5, 60)), _END])


def _tool(chance: random.Random, _: bool) -> Script:
    head, end = _delta(role="assistant"), _delta("tool_calls") + _DONE
    return Script(steps=[Step(0, head), *_call(chance, _CALL), Step(0, end)])


def _large(*_: object) -> Script:
    """Return more than any socket holds, as fast as possible, so that a slow client falls behind."""
    words = [b"".join(_delta(content=f" word{n}.{m}") for m in range(50)) for n in range(60)]
    return Script(steps=[*(Step(0, each) for each in words), _END])


def _reset(chance: random.Random, _: bool) -> Script:
    """Return a response that is reset inside an HTTP chunk."""
    texts = [
        Step(step.delay_s, b"%x\r\n%b\r\n" % (len(step.what), step.what))
        for step in _texts(chance, chance.randrange(0, 20))
        if isinstance(step.what, bytes)
    ]
    half = b"ff\r\n" + _delta(content=" half")[: chance.randrange(1, 60)]
    steps = [*texts, Step(0, half), Step(0.02, Fault.RESET)]
    return Script(headers=[*EVENT_STREAM, _CHUNKED], steps=steps, closes=True)


def _close(chance: random.Random, _: bool) -> Script:
    return Script(steps=[Step(0, _delta(content=f" word{n}")) for n in range(chance.randrange(1, 20))], closes=True)


def _pause(chance: random.Random, _: bool) -> Script:
    return Script(steps=[*_texts(chance, 3), Step(_PAUSE_S, _delta(content=" later")), *_texts(chance, 2), _END])


def _error(status: int) -> Script:
    body = b'{"error":{"message":"soak","type":"server_error","code":null}}'
    answer = json_answer(body, status)
    return Script(status=status, headers=[*answer.headers, (b"Retry-After", b"0")], steps=answer.steps)


def _error_frame(chance: random.Random, _: bool) -> Script:
    error = b'data: {"error":{"message":"overloaded","type":"server_error","code":503}}\n\n'
    return Script(steps=[*_texts(chance, chance.randrange(0, 10)), Step(0, error)])


def _bytes(*_: object) -> Script:
    """Return one byte a chunk: chunks, frames and words are cut everywhere."""
    body = b"".join([_delta(role="assistant", content="å"), _delta(content=" word"), _delta("stop"), _DONE])
    return Script(steps=[Step(0, body[at : at + 1]) for at in range(len(body))])


def _garbage(*_: object) -> Script:
    page = b"<html>oh</html>"
    headers = [(b"Content-Type", b"text/html"), (b"Content-Length", b"%d" % len(page))]
    return Script(headers=headers, steps=[Step(0, page)])


#: How often each kind is requested, and its script; the flag says whether the same request was made before.
_KINDS: Final[dict[str, tuple[int, Callable[[random.Random, bool], Script]]]] = {
    "text": (30, _text),
    "tool": (14, _tool),
    "large": (4, _large),
    "reset": (6, _reset),
    "resetcall": (4, lambda chance, _: Script(steps=[*_call(chance, _CALL[:25]), Step(0, Fault.RESET)])),
    "nodone": (5, lambda chance, _: Script(steps=_texts(chance, chance.randrange(1, 20)))),
    "close": (4, _close),
    "pause": (4, _pause),
    "stall": (2, lambda chance, _: Script(steps=[*_texts(chance, 3), _SILENCE])),
    "silent": (1, lambda _chance, _again: Script(unanswered=Fault.CUT, head_delay_s=_STALL_S)),
    "error": (3, lambda _chance, _again: _error(500)),
    "once": (4, lambda chance, again: _text(chance, again) if again else _error(503)),
    "toomany": (4, lambda chance, again: _tool(chance, again) if again else _error(429)),
    "refused": (2, lambda _chance, _again: _error(400)),
    "slow": (3, lambda chance, _: Script(steps=[*_texts(chance, 20, 0.2), _END])),
    "frame": (4, _error_frame),
    "comments": (2, lambda _chance, _again: Script(steps=[Step(0.1, b": processing\n\n")] * 5)),
    "bytes": (3, _bytes),
    "garbage": (1, _garbage),
}
#: Each kind of stream, and how often it is requested.
KINDS: Final = {kind: weight for kind, (weight, _) in _KINDS.items()}


class SoakUpstream:
    """The upstream of the soak; `open` counts its connections."""

    def __init__(self, seed: int) -> None:
        self.open = 0
        self._seed = seed
        #: Models that were requested: each name is used for one request, and again for its next attempts.
        self._seen: set[str] = set()
        self._upstream = Upstream(self._choose)

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; report the port."""
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1_024)
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            task_status.started(listener.socket.getsockname()[1])

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.open += 1
        try:
            await self._upstream.serve(stream)
        finally:
            self.open -= 1

    def _choose(self, request: Request) -> Script:
        asked = json.loads(request.body)
        model: str = asked["model"]
        again = model in self._seen
        self._seen.add(model)
        self._upstream.seen.clear()
        if asked.get("stream"):
            return _KINDS[model.split("-")[1]][1](random.Random(f"{self._seed} {model}"), again)  # noqa: S311
        message = {"role": "assistant", "content": f"whole {model}"}
        answer = {"id": "chatcmpl-soak", "object": "chat.completion", "created": 1, "model": "soak"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json_answer(json.dumps({**answer, "choices": [choice]}).encode())
