"""Write chat completions frames: those that came, and the frames that we add to a stream.

All that we add is chunk-shaped with an empty delta, because no client honours the SSE event name on a chat stream and
each parses every `data` (clients.md 1); an error is `{"error": ...}`, which every one of them raises or shows.
"""

from collections.abc import Sequence
from typing import Any

from ..core.json_text import ABSENT, is_list, is_object
from ..core.lifecycle import State
from ..emission.dialect import Context, Held, Split, Step, Writer
from ..emission.frames import Edit, Out, Styles
from ..emission.words import KEEPALIVE, PROGRESS_EVENT, failure, warning
from ..folds.wire import Call, counts_tokens
from .chunk import CALL_KEYS, DONE, chunk, envelope, says_content

__all__ = ["ChatWriter"]


class ChatWriter(Writer):
    """Writes the frames of one emitted stream: those that came, and ours in the stream's own envelope."""

    terminator = DONE

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
        if not (choices or self._context.facts.usage) and self._context.facts.stream:
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

    def card(self, n: int, choice: int, said: dict[str, Any]) -> Out:
        return Out(n, {**chunk(self._ours, choice, {}), **said}, repair="lifecycle", event=PROGRESS_EVENT)

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

    def keepalive(self, n: int) -> Out:
        return Out(n, raw=KEEPALIVE)

    def tail(self) -> list[Out]:
        """Return the chunk with the usage, once."""
        usage, self._usage = self._usage, None
        return [] if usage is None else [usage]

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
        error = failure(code, lost, late, self._context.facts)
        failed = {"message": error["message"], "type": error["code"], **error, "code": code}
        return [*self.tail(), Out(n, {"error": failed}, repair="error_frame")]

    def _chunk(self, n: int, repair: str, index: int, delta: dict[str, Any], finish: str | None = None) -> Out:
        role = {} if index in self._roles else {"role": "assistant"}
        self._roles.add(index)
        return Out(n, chunk(self._ours, index, role | delta, finish), repair=repair)
