"""The JSON of one stream's summary, as the API and `wiretape show` print it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wiretape.events.core.json_text import as_list
from wiretape.events.core.lifecycle import State
from wiretape.events.emit import Summariser
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.folds.wire import UPSTREAM_CALL
from wiretape.events.tape.tape import Damage

from ..store.catalogue_row import NO_FATES, Fate

__all__ = ["summary_json"]

_UNKNOWN: Final = Fate(State.RUNNING)


def summary_json(
    stream: str,
    summarised: Summariser,
    *,
    whole: bool = False,
    damage: Sequence[Damage] = (),
    fates: Mapping[str, Fate] = NO_FATES,
) -> dict[str, Any]:
    """Return everything known of a stream; with `whole`, the texts themselves and not only their lengths."""
    summary, end = summarised.summary, summarised.summary.end
    return {
        "id": stream,
        "created": summary.opening.get("created"),
        "route": summary.opening.get("route"),
        "dialect": summary.opening.get("dialect"),
        "profile": summary.opening.get("profile"),
        "model": summary.facts.get("model") or summary.message.model or None,
        "live": end is None,
        "status": summary.status,
        "ending": summary.ending,
        "flags": summary.flags,
        "cause": None if end is None else end.keys.get("cause"),
        "answer": None if end is None else end.keys.get("answer"),
        "attempts": summary.attempts,
        "timing": {
            "first_frame_us": summary.first_frame_us,
            "first_content_us": summary.first_content_us,
            "last_content_us": summary.last_content_us,
            "longest_silence_us": summary.longest_silence_us,
            "longest_pause_us": summary.longest_pause_us,
            "duration_us": summary.t,
        },
        "usage": summary.wire.usage,
        "message": {"id": summary.message.id, "answers": list(_answers(summary, whole))} if summary.chat else None,
        "tools": list(_tools(summary, whole, fates)) if summary.chat else [],
        "results": as_list(summary.results.get("results")),
        "history": summary.history,
        "warnings": [
            {"code": code, "calls": [{"id": call, "name": name} for call, name in calls]}
            for code, calls in summary.warnings
        ],
        "repairs": summarised.repairs,
        "received": summary.received,
        "records": summary.records,
        "damage": [{"at": at, "reason": reason} for at, reason in damage],
    }


def _answers(summary: StreamSummary, whole: bool) -> Iterator[dict[str, Any]]:
    message = summary.message
    for index, choice in sorted(message.choices.items()):
        texts = {"text": message.text(index), "reasoning": message.reasoning(index), "refusal": message.refusal(index)}
        lengths = {f"{name}_chars": len(text) for name, text in texts.items()}
        yield {"index": index, "finish": choice.finish or None, **lengths, **(texts if whole else {})}


def _tools(summary: StreamSummary, whole: bool, fates: Mapping[str, Fate]) -> Iterator[dict[str, Any]]:
    moves: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for n, choice, number, state in summary.moves:
        moves.setdefault((choice, number), []).append({"n": n, "state": state.value})
    for call in summary.wire.all_calls():
        arguments = call.arguments
        by_upstream = call.number <= UPSTREAM_CALL
        handed_over = call.state is State.RUNNING and not by_upstream
        fate = fates.get(call.id, _UNKNOWN) if handed_over else _UNKNOWN
        yield {
            "id": call.id,
            "name": call.name,
            "choice": call.choice,
            "run_by": "upstream" if by_upstream else "client",
            "state": (call.state if fate.state is State.RUNNING else fate.state).value,
            "reason": call.reason or None,
            "answered_by": fate.answered_by or None,
            "duration_ms": fate.duration_ms,
            "moves": moves.get((call.choice, call.number), []),
            "arguments_chars": len(arguments),
            **({"arguments": arguments} if whole else {}),
        }
