"""What was asked and answered, in the JSON shapes of the conventions. Only with `otel_content`."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wiretape.events.core.errors import RequestError
from wiretape.events.core.json_text import ABSENT, dumps, parse
from wiretape.events.crossing.turns import Call, Media, Part, Refusal, Result, Text, Thought
from wiretape.events.dialects import DIALECTS
from wiretape.events.folds.summary import StreamSummary

__all__ = ["input_messages", "output_messages"]


def input_messages(dialect: str, body: Any) -> dict[str, str]:
    """Return the conversation in a request; nothing for one that only its own dialect can read."""
    try:
        asked = DIALECTS[dialect].read({} if body is ABSENT else body)
    except RequestError:
        return {}
    said: list[dict[str, Any]] = []
    for turn in (*asked.instructions, *asked.turns):
        for role, results in (("tool", True), (turn.role, False)):  # results are messages of their own
            parts = list(_parts(part for part in turn.parts if isinstance(part, Result) == results))
            said += [{"role": role, "parts": parts}] if parts else []
    return {"gen_ai.input.messages": dumps(said).decode()} if said else {}


def output_messages(summary: StreamSummary, renamed: Mapping[str, str]) -> dict[str, str]:
    """Return the answers."""
    messages: list[dict[str, Any]] = []
    for answer in summary.answers:
        said: list[Part] = [Thought(answer.reasoning), Text(answer.text), Refusal(answer.refusal)]
        calls = summary.wire.choices[answer.choice].calls.values()
        parts = [part for part in _parts(said) if part["content"]]
        parts += _parts(Call(id=call.id, name=call.name, arguments=call.arguments) for call in calls)
        message = {"role": "assistant", "parts": parts, "finish_reason": answer.finish or "error"}
        messages.append({name: value for name, value in message.items() if renamed.get(name, name)})
    return {"gen_ai.output.messages": dumps(messages).decode()} if messages else {}


def _parts(parts: Iterable[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        match part:
            case Text(text=text) | Refusal(text=text) | Thought(text=text):
                yield {"type": "reasoning" if isinstance(part, Thought) else "text", "content": text}
            case Call(id=call_id, name=name, arguments=written):
                value = parse(written.encode("utf-8", "replace"))
                arguments = written if value is ABSENT else value
                yield {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
            case Result(id=call_id, parts=inner):
                yield {"type": "tool_call_response", "id": call_id, "response": list(_parts(inner))}
            case Media(kind=kind, url=url) if url:
                yield {"type": "uri", "modality": kind, "uri": url}
            case Media(kind=kind, media_type=media_type, data=data):
                yield {"type": "blob", "modality": kind, "mime_type": media_type, "content": data}
