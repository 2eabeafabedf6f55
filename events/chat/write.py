"""Write chat completions frames: those that came, and the frames that we add to a stream.

All that we add is chunk-shaped with an empty delta, because no client honours the SSE event name on a chat stream and
each parses every `data` (clients.md 1); an error is `{"error": ...}`, which every one of them raises or shows.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import ABSENT, is_list, is_object
from ..core.lifecycle import State
from ..core.limits import NAME_CHARS_MAX, PREVIEW_BYTES_MAX
from ..core.model import ToolResultSeen
from ..core.settings import Facts
from ..emission.cards import emoji_of
from ..emission.dialect import Context, Held, Split, Step
from ..emission.frames import Edit, Out, Styles
from ..folds.wire import SIBLING, Call, counts_tokens
from .chunk import CALL_KEYS, DONE, PROGRESS_EVENT, chunk, envelope, says_content

__all__ = ["NOTE", "WARNING", "ChatWriter", "error_frame", "preview", "warning"]

#: How a warning begins, by finish reason or ending. A stall and a cut read differently, because the cure differs.
_OPENINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "length": "Output limit reached",
        "content_filter": "Content filter stopped the answer",
        "stalled": "Stream stalled",
        "truncated": "Connection dropped",
        "reset": "Connection dropped",
        "upstream_error": "The provider failed",
        "limit": "Size limit reached",
        "client_gone": "The client left",
        "shutdown": "The proxy was shut down",
        "crashed": "The proxy crashed",
    }
)
_ENDED: Final = "Stream ended early"

#: The texts of `warning`, anywhere in a text, and nothing else: no sentence that only begins and ends so. Each
#: part ends where it first can (`?>`) and no name has the sign in it, so a long line is read once.
_CAUSE: Final = f"(?:{'|'.join(sorted((*_OPENINGS.values(), _ENDED)))})"
_NAMES: Final = "[^\r\n⚠]+?"
#: What may be wrong with a call, in the order of a warning.
_CUT: Final = "{} {} cut short"
_WRONG: Final = (
    "the arguments of {} are not valid JSON",
    "a call has no name",
    "a part of {} could not be read",
    "the call of {} came after the finish",
)
_BESIDE: Final = "so {} {} not completed either"
_FAULTS: Final = (_CUT, *_WRONG, _BESIDE)
#: How a warning ends. No tool is said not to have run: a client that has half a call may run it all the same.
_UNKNOWN: Final = "Not completed; no result seen."
_ANY: Final = f"(?>{'|'.join(_WRONG).format(_NAMES, _NAMES, _NAMES)})"
#: Emitter versions before 3 said "not run either" and "Nothing was executed".
WARNING: Final = (
    f"⚠ (?:{_CAUSE}: the answer is incomplete\\.|(?:{_CAUSE} mid tool-call: (?>{_CUT.format(_NAMES, '(?:was|were)')})"
    f"|Malformed tool call: {_ANY})(?:, {_ANY})*"
    f"(?:, (?>so {_NAMES} (?:was|were) not (?:completed|run) either))?\\. "
    f"(?:{_UNKNOWN[:-1]}|(?:Nothing was|None of these was) executed)\\.)"
)
#: What hermes-agent writes when it asks its model again, and its last words when it gives up, as a client keeps them.
NOTE: Final = (
    r"⚠ (?:Connection dropped mid tool-call; reconnecting(?:…|\.\.\.)"
    r"|Stream stalled mid tool-call \([^()\r\n]{1,4000}\); the action was not executed\."
    r"(?: Ask me to retry if you want to continue\.)?)"
)


class ChatWriter:
    """Writes the frames of one emitted stream: those that came, and ours in the stream's own envelope."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._styles = Styles()
        #: What our chunks repeat until the stream's first frame contains it.
        self._ours = envelope(f"chatcmpl-{context.stream_id}", context.facts.model, context.created)
        self._roles: set[int] = set()
        #: The usage to send at the end.
        self._usage: Out | None = None
        #: The client has usage, or the chunk with it is on its way.
        self._counted = False
        self._texted = False

    # -- frames that came ---------------------------------------------------------------------------------------------

    def write(self, step: Step) -> Out | None:
        """Return the frame of a step; a chunk that says nothing but usage waits for the end, where one is enough."""
        out = step.out
        if out is None or out.value is None:
            return out
        value = out.value
        self._ours |= {key: value[key] for key in self._ours if value.get(key)}
        if step.choices:
            self._roles.update(step.choices)
            self._texted = self._texted or any(choice["delta"].get("content") for choice in value["choices"])
        counts, choices = value.get("usage"), value["choices"]
        if choices and not (counts and is_object(counts)):
            return out
        if any(any(one["delta"].values()) or one["finish_reason"] for one in choices):
            self._send_usage_once(out, counts)
            return out
        if not (choices or self._context.facts.usage):
            out.withhold("usage_not_asked", self._context.ledger)
        elif self._counted or (self._usage is not None and counts != self._context.live.usage):
            out.withhold("usage_repeated", self._context.ledger)
        else:
            self._keep_usage(out)
        return None

    def _send_usage_once(self, out: Out, counts: dict[str, Any]) -> None:
        """Leave usage on a chunk that says more, if it is the first and the answer is whole; else keep it for the end.

        Some clients add up what they get, and some believe only the last chunk (Q66 to Q70).
        """
        live, facts = self._context.live, self._context.facts
        calls = any(key in one["delta"] for one in out.value["choices"] for key in CALL_KEYS)  # more may follow
        whole = live.finished and len(live.choices) >= (facts.choices or 1) and not calls
        if not (self._counted or counts_tokens(counts)):
            return
        if whole and self._usage is None and not self._counted:
            self._counted = True
            return
        out.edit([Edit("usage_repeated" if self._counted else "usage_apart", (), "usage", ABSENT)])
        if not self._counted and (self._usage is None or counts == live.usage):
            frame = chunk(self._ours, out.value["choices"][0]["index"], {})
            frame |= {"choices": [], "usage": counts} if facts.usage else {"usage": counts}
            self._keep_usage(Out(out.n, frame, repair="usage_apart"))

    def _keep_usage(self, usage: Out) -> None:
        if self._usage is not None and self._usage.repair != "usage_apart":
            self._usage.withhold("usage_repeated", self._context.ledger)
        self._usage = usage

    def split(self, out: Out) -> Split:
        """Divide a chunk: calls of choices without a finish wait, those of choices with a lost call never go out."""
        edits: list[Edit] = []
        waiting: dict[int, dict[str, Any]] = {}
        delivers = False
        choices = out.value["choices"]
        for place, choice in enumerate(choices):
            index, delta = choice["index"], choice["delta"]
            state = self._context.live.choice(index)
            lost = any(call.state is not State.RUNNING for call in state.calls.values())
            going_on = index in self._context.live.unfinished
            keys = ("tool_calls", "function_call") if going_on or lost else ()
            calls = {key: delta[key] for key in keys if key in delta}
            edits += [Edit("held_call", ("choices", place, "delta"), key, ABSENT) for key in calls]
            rest = {key: part for key, part in delta.items() if key not in calls}
            delivers = delivers or says_content(rest) or bool(choice.get("finish_reason"))
            if calls and going_on:
                held = waiting.setdefault(index, {})
                for key, part in calls.items():  # two entries of one chunk may be of one choice (Q27)
                    held[key] = [*held[key], *part] if key in held and is_list(part) else part
        first = choices[0]
        silent = not delivers and not out.value.get("usage") and "role" not in first["delta"]
        if waiting and silent and len(choices) == 1:
            return Split(None, [Held(first["index"], None, out)], delivers=False)
        later = [
            Held(index, None, Out(out.n, chunk(self._ours, index, calls), repair="held_call"))
            for index, calls in waiting.items()
        ]
        out.edit(edits)
        return Split(out, later, delivers)

    def withhold_finish(self, out: Out, choices: set[int]) -> None:
        given = enumerate(out.value["choices"])
        places = [place for place, one in given if one["index"] in choices and one.get("finish_reason")]
        out.edit([Edit("malformed_claim", ("choices", place), "finish_reason", None) for place in places])

    def encode(self, out: Out) -> bytes:
        return out.encode(self._styles, self._context.ledger)

    # -- frames of ours -----------------------------------------------------------------------------------------------

    def call_card(self, n: int, call: Call, status: str) -> Out:
        reason, shown = call.reason if status == "dropped" else "", preview(call.arguments)
        return self._card(n, call.choice, call.name, call.id, status, label=call.label, input=shown, reason=reason)

    def result_card(self, n: int, choice: int, result: ToolResultSeen) -> Out:
        status, output = "failed" if result.failed else "completed", preview(result.output)
        return self._card(n, choice, result.name, result.id, status, output=output, duration_ms=result.duration_ms)

    def _card(self, n: int, choice: int, tool: str, call_id: str, status: str, label: str = "", **more: Any) -> Out:
        said = {"tool": tool[:NAME_CHARS_MAX], "toolCallId": call_id, "status": status}
        more = {"label": label, "emoji": emoji_of(tool) if self._context.settings.emoji else "", **more}
        present = {key: value for key, value in more.items() if value is not None and value != ""}
        return Out(n, {**chunk(self._ours, choice, {}), **said, **present}, repair="lifecycle", event=PROGRESS_EVENT)

    def introduce(self, out: Out) -> list[Out]:
        """Return frames with the roles of a chunk, which loses them: frames of ours go out before it.

        LangChain.js takes the kind of message from the first delta of its choice (clients.md 1).
        """
        begun = [(place, one) for place, one in enumerate(out.value["choices"]) if "role" in one["delta"]]
        roles = [chunk(self._ours, one["index"], {"role": one["delta"]["role"]}) for _, one in begun]
        out.edit([Edit("role_apart", ("choices", place, "delta"), "role", ABSENT) for place, _ in begun])
        return [Out(out.n, role, repair="role_apart") for role in roles]

    def warning(self, n: int, code: str, lost: Sequence[Call]) -> list[Out]:
        text = ("\n\n" if self._texted else "") + warning(code, lost, self._context.facts)
        return [self._chunk(n, "warning_text", lost[0].choice, {"content": text})]

    def tail(self) -> list[Out]:
        """Return the chunk with the usage, once."""
        usage, self._usage = self._usage, None
        return [] if usage is None else [usage]

    def done(self, n: int) -> Out:
        return Out(n, raw=DONE, repair="done_supplied")

    def close(self, n: int, code: str, lost: Sequence[Call], finished: set[int]) -> list[Out]:
        """Return a finish of `length` and a `[DONE]`, or an error frame.

        The usage comes after a finish of ours. It is an error in every mode if more came of a call that was handed
        over: nothing else keeps a client from running it.
        """
        live, late = self._context.live, self._context.live.late_calls
        if self._context.settings.on_partial == "warn" and not late:
            choices = sorted((live.choices.keys() or {0}) - finished)
            finishes = [self._chunk(n, "warn_finish", index, {}, "length") for index in choices]
            return [*finishes, *self.tail(), Out(n, raw=DONE, repair="warn_done")]
        facts = self._context.facts
        text = warning(code, lost, facts) if lost or not late else ""
        if late:
            names = _names(late, facts)
            said = f"⚠ Malformed tool call: arguments of {names} came after its finish, as if there were none."
            text = f"{said} {text}".rstrip()
        return [*self.tail(), Out(n, error_frame(code, text, [*late, *lost], facts), repair="error_frame")]

    def _chunk(self, n: int, repair: str, index: int, delta: dict[str, Any], finish: str | None = None) -> Out:
        role = {} if index in self._roles else {"role": "assistant"}
        self._roles.add(index)
        return Out(n, chunk(self._ours, index, role | delta, finish), repair=repair)


def preview(text: str) -> str:
    """Return as much of a text as a lifecycle frame may show."""
    encoded = text[:PREVIEW_BYTES_MAX].encode("utf-8", "replace")
    if len(text) <= PREVIEW_BYTES_MAX and len(encoded) <= PREVIEW_BYTES_MAX:
        return text
    return encoded[:PREVIEW_BYTES_MAX].decode("utf-8", "ignore")


def warning(code: str, calls: Sequence[Call], facts: Facts) -> str:
    """Return what happened, to which tools, and what is known of them."""
    opening, said = _OPENINGS.get(code, _ENDED), list[str]()
    if not calls:
        return f"⚠ {opening}: the answer is incomplete."
    for text in _FAULTS:
        if some := [call for call in calls if _fault(call) == text]:
            said.append(text.format(_names(some, facts), "was" if len(some) == 1 else "were"))
    what = f"{opening} mid tool-call" if any(_fault(call) == _CUT for call in calls) else "Malformed tool call"
    return f"⚠ {what}: {', '.join(said)}. {_UNKNOWN}"


def _fault(call: Call) -> str:
    if call.state is not State.MALFORMED:
        return _BESIDE if call.reason == SIBLING else _CUT
    bad, unnamed, torn, late = _WRONG
    return late if call.late else torn if call.damaged else bad if call.name else unnamed


def _names(calls: Sequence[Call], facts: Facts) -> str:
    """Return the names; those of internal tools are the upstream's own business."""
    names = ("an internal tool" if facts.internal(call.name) else _named(call) for call in calls)
    return ", ".join(name or "a tool without a name" for name in names)


def _named(call: Call) -> str:
    """Return as much of a name as a card shows, in one line: a warning in a history is found by its line."""
    return " ".join(call.name[:NAME_CHARS_MAX].splitlines())


def error_frame(code: str, message: str, calls: Sequence[Call], facts: Facts) -> dict[str, Any]:
    """Return the payload that ends a stream which must not be taken for whole."""
    shown = (call for call in calls if (call.id or call.name) and not facts.internal(call.name))
    dropped = [{"id": call.id, "name": _named(call)} for call in shown]
    kind = code if code == "malformed_call" else "stream_truncated"
    return {"error": {"message": message, "type": kind, "code": code, "dropped_tools": dropped}}
