"""What outside judges say of an emitted stream: order, published types, the helpers of SDKs, and a plain reader."""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.laws.said import CARD, Said, payloads, said
from tests.support.corpus import Stream
from wiretape.events.core.json_text import as_object, is_list, is_object
from wiretape.events.dialects import DIALECTS

from .emitted import Emitted, crossing_of, request_of
from .helpers import Answer, Held, read_in_python, said_by
from .openai_python import read
from .order import CHECKERS, frames_of
from .said import differences as read_differences
from .said import truth
from .schemas import SCHEMAS, Unfit

__all__ = ["all_helper_faults", "allowed", "chat_faults", "faults", "refused"]

#: The helpers of openai take a response that is not complete for an error.
_INCOMPLETE: Final = ("length", "content_filter")
_WARNING: Final = "⚠"
#: Ends a last frame that the upstream left without its blank line.
_LAST: Final = b"\n\n"


def faults(made: Emitted) -> list[str]:
    """Return everything that is wrong with a stream, judged without Node."""
    found = said(payloads(made.sent), made.client)
    wrong = [f"order: {each}" for each in CHECKERS[made.client](made.sent)]
    for publisher in SCHEMAS.get(made.client, {}):
        wrong += [f"{publisher}: {each}" for each in sorted(refused(made, publisher) - allowed(made, publisher))]
    wrong += _ending_faults(made, found)
    if not made.error_due:
        wrong += [f"plain reader: {each}" for each in _differences(made, _answer(found))]
    if made.client != "chat":
        wrong += all_helper_faults(made, read_in_python(made.client, made.sent))
    return wrong


# -- types ------------------------------------------------------------------------------------------------------------


def refused(made: Emitted, publisher: str) -> Unfit:
    """Return what one publisher's types refuse in what was sent."""
    return frozenset(_refused(made.sent, made.client, publisher))


def allowed(made: Emitted, publisher: str) -> Unfit:
    """Return what the types refuse in the upstream's own frames, where those pass."""
    same = made.upstream == made.client
    return frozenset(_refused(made.captured + _LAST, made.client, publisher)) if same else frozenset()


def _refused(body: bytes, dialect: str, publisher: str) -> Iterator[str]:
    for _, value in frames_of(body):
        if value.get("type") not in ("keepalive", "ping"):
            yield from _judged(json.dumps(value), dialect, publisher)


@functools.lru_cache(maxsize=200_000)
def _judged(payload: str, dialect: str, publisher: str) -> Unfit:
    """Return what a type says of one frame; cuts of one stream share most of theirs."""
    return SCHEMAS[dialect][publisher](json.loads(payload))


# -- meaning ----------------------------------------------------------------------------------------------------------


def _ending_faults(made: Emitted, found: Said) -> list[str]:
    """Return what is wrong with the one ending, and with what was said of calls before it."""
    wrong: list[str] = []
    due = (0, 1) if made.error_due and not made.warned else (1, 0)
    if (found.done, len(found.errors)) != due or found.behind:
        wrong.append(f"closed by {found.done} ends and {len(found.errors)} errors, with {found.behind} frames after it")
    runnable = {call_id for call_id, _, _ in made.answer.calls}
    if made.client != "chat" and found.runnable != runnable:
        wrong.append(f"handed over {found.handed}, and {sorted(runnable)} may run")
    if made.settings.get("tool_events") is not False and found.unannounced:
        wrong.append(f"no lifecycle frame before the last frame of {found.unannounced}")
    return wrong


def all_helper_faults(made: Emitted, helpers: Mapping[str, Held]) -> list[str]:
    """Return what each helper raised or holds that is not so; the last one knows most members."""
    wrong = [f"{name}: {each}" for name, held in helpers.items() for each in helper_faults(made, held)]
    name, held = list(helpers.items())[-1]
    return wrong + [f"whole against {name}: {each}" for each in whole_faults(made, held)]


def helper_faults(made: Emitted, held: Held) -> list[str]:
    """Return what a helper of an SDK raised or holds that is not so."""
    cut = made.client == "responses" and (made.warned or made.finish in _INCOMPLETE)
    if held.final is None:
        return [] if made.error_due or cut else [f"it raised {held.error}"]
    if made.error_due and not made.warned:
        failed = held.final.get("status") == "failed"
        return [] if failed else [f"it raised nothing, although {made.error_due} is due"]
    return [] if made.warned else _differences(made, said_by(made.client, held.final))


def _answer(found: Said) -> Answer:
    """Return what the plain reader holds."""
    calls = tuple((call_id, found.names.get((0, call_id), ""), text) for (_, call_id), text in found.calls.items())
    text, reasoning, refusal = (found.texts.get((0, kind), "") for kind in ("text", "reasoning", "refusal"))
    return Answer(text, reasoning, refusal, calls, None)


def _differences(made: Emitted, theirs: Answer) -> list[str]:
    """Return where another reading of what was sent differs from ours."""
    ours, cut = made.answer, made.finish in _INCOMPLETE
    wrong: list[str] = []
    for name in ("text", "reasoning", "refusal"):
        one, two = getattr(ours, name), getattr(theirs, name)
        if name == "text" and cut and _WARNING in two:
            two = two.partition(_WARNING)[0].rstrip("\n")
        if one != two and not (name == "refusal" and made.client == "messages"):
            wrong.append(f"{name}: ours {one!r:.80}, theirs {two!r:.80}")
    runnable = {call_id for call_id, _, _ in ours.calls}
    if _calls(ours) != [call for call in _calls(theirs) if call[0] in runnable or not cut]:
        wrong.append(f"calls: ours {ours.calls!r:.160}, theirs {theirs.calls!r:.160}")
    if any(
        two not in (0, one) for one, two in zip(ours.usage or (), theirs.usage or (), strict=False)
    ):  # zeros say nothing
        wrong.append(f"usage: ours {ours.usage}, theirs {theirs.usage}")
    return wrong


def _calls(answer: Answer) -> list[tuple[str, str, Any]]:
    return [(call_id, name, _parsed(arguments)) for call_id, name, arguments in answer.calls]


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


# -- whole objects ----------------------------------------------------------------------------------------------------

#: What the helpers add of their own.
_ADDED: Final = frozenset({"parsed", "parsed_arguments", "parsed_output", "output_parsed", "output_text"})


def whole_faults(made: Emitted, held: Held) -> list[str]:
    """Return what a helper accumulates and `Dialect.whole` lacks or has otherwise; it may keep members besides."""
    if held.final is None or made.error_due or made.finish in _INCOMPLETE:
        return []
    ours = DIALECTS[made.client].whole([value for event, value in frames_of(made.sent) if event != CARD])
    return list(_unlike(_plain(ours), _plain(held.final), ""))


def _plain(value: Any) -> Any:
    """Return a value without what the helpers add, and without nulls, which they add too."""
    if is_object(value):
        kept = {key: each for key, each in value.items() if each is not None and not _is_added(key, each)}
        return {key.removesuffix("_"): _plain(each) for key, each in kept.items()}
    return [_plain(each) for each in value] if is_list(value) else value


def _is_added(key: str, value: Any) -> bool:
    return key in _ADDED and not isinstance(value, dict)


def _unlike(ours: Any, theirs: Any, place: str) -> Iterator[str]:
    if is_object(ours) and is_object(theirs):
        for key in theirs:
            yield from _unlike(ours.get(key), theirs[key], f"{place}.{key}")
    elif is_list(ours) and is_list(theirs) and len(ours) == len(theirs):
        for one, two in zip(ours, theirs, strict=True):
            yield from _unlike(one, two, place)
    elif ours != theirs:
        yield f"{place}: ours {ours!r:.80}, theirs {theirs!r:.80}"


# -- chat -------------------------------------------------------------------------------------------------------------


def chat_faults(stream: Stream, upstream: str) -> list[str]:
    """Return where openai for Python and our fold differ on a stream that was crossed to chat."""
    crossing = crossing_of(json.dumps(request_of("chat", [])), "chat", upstream)
    due = truth(stream.body, usage=True, upstream_dialect=upstream, crossing=crossing)
    found = read_differences(read(due.sent), due)
    return [each for each in found if not (each.startswith("usage") and not any(_numbers(due.usage)))]


def _numbers(usage: Any) -> Iterator[int]:
    for value in as_object(usage).values():
        yield from _numbers(value) if isinstance(value, dict) else iter([value] if isinstance(value, int) else [])
