"""Choices of one stream: one role, one finish, a delta that is an object, reasoning under one name."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import as_object, is_list, is_object
from ..core.lifecycle import CUT_FINISHES
from ..core.limits import LISTS_OF_A_DELTA_MAX, THINK_HEAD_CHARS_MAX
from ..core.model import Event, ForeignFrame, ToolCallDamaged
from ..core.settings import Facts, Settings
from ..emission.edits import Path
from .draft import Draft
from .read import LEGACY_CALL
from .tool_calls import Calls
from .write import Envelope, chunk

__all__ = ["Choices", "Think"]

_KNOWN_FINISHES: Final = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
#: Other dialects' words for the same; anything else is not a finish but a failure (Q44).
_FINISH_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "complete": "stop",
        "end_turn": "stop",
        "eos": "stop",
        "eos_token": "stop",
        "stop_sequence": "stop",
        "max_output_tokens": "length",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "model_length": "length",
        "tool_call": "tool_calls",
        "tool_use": "tool_calls",
        "blocklist": "content_filter",
        "prohibited_content": "content_filter",
        "recitation": "content_filter",
        "refusal": "content_filter",
        "safety": "content_filter",
        "sensitive": "content_filter",
    }
)
_REASONING_NAMES: Final = ("reasoning_content", "reasoning")
_TEXTS: Final = ("content", "refusal", *_REASONING_NAMES)
#: Members of a delta with repairs of their own; an edit inside of one that is dropped would leave no JSON.
_REPAIRED: Final = frozenset({"content", "function_call", "role", "tool_calls"})
_OPENING: Final = "<think>"
_CLOSING: Final = "</think>"
_CALLS: Final = frozenset({"tool_calls", "function_call"})
#: Where a chunk says something of a call.
_CALL: Final = re.compile(rb'"tool_calls"\s*:\s*\[\s*\{|"function_call"\s*:\s*\{')
#: The character that replaces bytes that are not UTF-8.
_REPLACED: Final = "\ufffd"
#: An index beyond it is junk: no upstream gives as many answers.
_INDEX_MAX: Final = 2**31 - 1
_PARTS_DEPTH_MAX: Final = 4


class Think:
    """`feed` the text of one choice piece by piece; a tail that may be half a tag is held until `release`.

    Only the block at the very head is a thought: later text may mention such tags.
    """

    __slots__ = ("_held", "_inside", "over")

    def __init__(self) -> None:
        #: All further text is the answer.
        self.over = False
        self._inside = False
        self._held: str = ""

    def feed(self, text: str) -> tuple[str, str]:
        """Return the thought and the answer in this piece."""
        if self.over:
            return "", text
        text = self._held + text
        self._held = ""
        if not self._inside:
            head = text.lstrip()
            if head.startswith(_OPENING):
                self._inside = True
                text = head[len(_OPENING) :]
            elif _OPENING.startswith(head) and len(text) <= THINK_HEAD_CHARS_MAX:
                self._held = text
                return "", ""
            else:
                self.over = True
                return "", text
        thought, closing, answer = text.partition(_CLOSING)
        if closing:
            self.over = True
            return thought, answer
        kept = len(text) - _half_tag(text)
        self._held = text[kept:]
        return text[:kept], ""

    def release(self) -> tuple[str, str]:
        """Return what was held: no more text comes, so it was not a tag."""
        held = self._held
        self._held = ""
        self.over = True
        return (held, "") if self._inside else ("", held)


def _half_tag(text: str) -> int:
    """Return how many characters at the end may be the beginning of the closing tag."""
    return next((size for size in range(len(_CLOSING) - 1, 0, -1) if text.endswith(_CLOSING[:size])), 0)


class _Choice:
    # fmt: off
    __slots__ = (
        "calls", "entries", "finish", "legacy_arguments", "legacy_damaged", "legacy_name", "legacy_supplied", "number",
        "said", "structured", "text", "think", "thinking",
    )
    # fmt: on

    def __init__(self, number: int, calls: Calls, think: Think | None) -> None:
        self.number = number
        self.calls = calls
        self.finish = ""
        #: Index-less entries of each list in the delta: the last number given out and the type it was given to.
        self.entries: dict[str, tuple[int, Any]] = {}
        #: The text of the chunk under repair.
        self.said = ""
        #: All text so far, where content repeats it (Q61).
        self.text = ""
        #: Content comes as lists of parts (Q79), the last of which was a thought.
        self.thinking = False
        #: Thoughts come under their own name (Q77).
        self.structured = False
        self.think = think
        #: The legacy `function_call` of this choice, and whether any of its arguments has come (Q29).
        self.legacy_name = ""
        self.legacy_arguments = False
        #: A part of that call could not be read; it had no arguments, and they became `{}`.
        self.legacy_damaged = self.legacy_supplied = False

    def damage_legacy(self, n: int) -> list[Event]:
        """As `Calls.damage`."""
        if not self.legacy_name or self.legacy_damaged:
            return []
        self.legacy_damaged = True
        return [ToolCallDamaged(n=n, choice=self.number, call=LEGACY_CALL)]


class Choices:
    """`repair` every chunk of one attempt in order."""

    def __init__(self, facts: Facts, settings: Settings, stream_id: str) -> None:
        self._facts = facts
        self._settings = settings
        self._stream_id = stream_id
        #: Choices whose role the client has.
        self._roles: set[int] = set()
        self._ids: set[str] = set()
        self._choices: dict[int, _Choice] = {}
        self._merged: set[int] = set()
        #: A frame that spoke of calls could not be read, and may have been all that was said of one.
        self._call_lost = False

    @property
    def started(self) -> bool:
        """Whether any choice has come."""
        return bool(self._choices)

    @property
    def unfinished(self) -> list[int]:
        """Choices without a finish."""
        return [number for number, choice in self._choices.items() if not choice.finish]

    def damaged(self, n: int, payload: bytes) -> list[Event]:
        """Damage every open call, because these bytes may have been a chunk about any of them."""
        if b"{" not in payload and b"}" not in payload:  # words, by which some say that they are still there
            return []
        self._call_lost = self._call_lost or _CALL.search(payload) is not None
        events: list[Event] = []
        for choice in self._choices.values():
            if not choice.finish:
                events += [*choice.calls.damage(choice.calls.known, n), *choice.damage_legacy(n)]
        return events

    def garbled(self, draft: Draft) -> None:
        """Damage the calls of a chunk in which bytes that are not UTF-8 were replaced."""
        torn = [call for call, entry in draft.touched.items() if _REPLACED in f"{entry.id}{entry.name}{entry.text}"]
        for choice in self._choices.values():
            draft.events += choice.calls.damage([call for call in choice.calls.known if call in torn], draft.n)
        for given in filter(is_object, draft.value["choices"]):
            index = given.get("index")
            legacy = self._choices.get(index if type(index) is int else 0)
            said = as_object(as_object(given.get("delta")).get("function_call")).get("arguments")
            if legacy is not None and isinstance(said, str) and _REPLACED in said:
                draft.events += legacy.damage_legacy(draft.n)

    def repair(self, draft: Draft) -> None:
        """Make every choice of the chunk canonical."""
        for place, choice in enumerate(draft.value["choices"]):
            if is_object(choice):
                self._choice(draft, ("choices", place), choice, place)
            else:
                draft.omit("choice_not_object", ("choices",), place)

    def plain(self, draft: Draft) -> bool:
        """Return whether the chunk is a piece of text of an open choice, and any other text would do the same."""
        if len(draft.value["choices"]) != 1 or draft.changed or draft.events or draft.finished or draft.first:
            return False
        (given,) = draft.value["choices"]
        index: Any = given.get("index") if is_object(given) else None
        choice = self._choices.get(index) if type(index) is int else None
        if choice is None or choice.finish or (choice.think is not None and not choice.think.over):
            return False
        delta = given.get("delta")
        return is_object(delta) and all(
            isinstance(part, str) or (not part and key not in _CALLS) for key, part in delta.items()
        )

    def held(self, envelope: Envelope) -> list[dict[str, Any]]:
        """Return chunks with what was held as half a tag, since no more text comes."""
        split = [(choice, choice.think.release()) for choice in self._choices.values() if choice.think is not None]
        deltas = [(choice.number, self._parts_delta(choice, *parts)) for choice, parts in split]
        return [chunk(envelope, number, delta) for number, delta in deltas if delta]

    def _choice(self, draft: Draft, path: Path, given: dict[str, Any], place: int) -> None:
        index = given.get("index")
        number = index if type(index) is int and 0 <= index <= _INDEX_MAX else place
        merged = number in self._merged or (number not in self._choices and self._is_part_of_first(number, given))
        if merged:
            self._merged.add(number)
            number = 0
        if index != number or type(index) is not int:
            draft.set("choice_index", path, "index", number)
        choice = self._choices.get(number)
        if choice is None:
            calls = Calls(number, self._stream_id, self._facts.tools, self._ids)
            choice = self._choices[number] = _Choice(number, calls, Think() if self._settings.think else None)
        choice.said = ""
        delta = given.get("delta")
        missed: list[Any] = []
        if is_object(given.get("message")):  # Q59: cumulative, and some read it as the whole answer
            draft.drop("message_beside", path, "message")
            said = given["message"].get("tool_calls")
            if is_list(said) and given.get("finish_reason") and not (choice.finish or choice.legacy_name):
                missed = said
        if is_object(delta):
            self._role(draft, (*path, "delta"), delta, number)
            self._delta(draft, (*path, "delta"), delta, choice)
        else:  # Q47
            draft.set("delta_missing", path, "delta", {} if number in self._roles else {"role": "assistant"})
        draft.first = draft.first or number not in self._roles
        self._roles.add(number)
        choice.calls.missed(draft, missed)
        self._finish(draft, path, given, choice, merged=merged)
        if choice.think is not None:
            self._split_thought(draft, (*path, "delta"), delta if is_object(delta) else {}, choice)

    def _is_part_of_first(self, number: int, given: dict[str, Any]) -> bool:
        """Return whether the calls of the one answer that was requested come as a choice of their own (Q27)."""
        first = self._choices.get(0)
        if self._facts.choices != 1 or number == 0 or first is None or first.finish or first.calls.known:
            return False
        delta = given.get("delta")
        return is_object(delta) and bool(delta.get("tool_calls")) and not delta.get("content")

    def _role(self, draft: Draft, path: Path, delta: dict[str, Any], number: int) -> None:
        role = delta.get("role")
        if number in self._roles:
            if "role" in delta:
                draft.drop("role_repeated", path, "role")
        elif not isinstance(role, str) or not role:
            draft.set("role_missing", path, "role", "assistant")

    def _delta(self, draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        for key in ("tool_calls", "function_call"):
            if key in delta and delta[key] is None:
                draft.drop("null_member", path, key)
        self._reasoning(draft, path, delta, choice)
        self._content(draft, path, delta, choice)
        for key, part in delta.items():
            if is_list(part) and key not in _REPAIRED:
                self._number_entries(draft, (*path, key), part, choice)
        calls = delta.get("tool_calls")
        if is_list(calls) and not choice.finish:
            choice.calls.repair(draft, (*path, "tool_calls"), calls)
        elif calls is not None:
            draft.drop("late_call" if choice.finish else "calls_not_list", path, "tool_calls")
            if choice.finish:
                draft.events.append(ForeignFrame(n=draft.n, why="late_call"))
                draft.events += choice.calls.late(draft, calls) if is_list(calls) else ()
            else:
                choice.calls.lost = True
        if is_object(delta.get("function_call")) and (choice.calls.announced or calls) and not choice.legacy_name:
            # llama-cpp-python says each call under both names; the newer one counts.
            draft.drop("legacy_call_twin", path, "function_call")
        elif "function_call" in delta:
            self._legacy_call(draft, path, delta["function_call"], choice)
        if choice.finish and any(delta.get(key) for key in _TEXTS):
            draft.flags.append("late_delta")  # delivered: text after a finish is still text
            draft.events.append(ForeignFrame(n=draft.n, why="late_delta"))

    def _reasoning(self, draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        """Send reasoning under one name (Q73, Q74); of the same text under both names, once."""
        wanted = self._settings.reasoning
        name, other = _REASONING_NAMES if wanted != "reasoning" else reversed(_REASONING_NAMES)
        if any(isinstance(delta.get(key), str) and delta[key] for key in (name, other)):
            choice.structured = True
        if wanted == "as_is" or not isinstance(delta.get(other), str):
            return
        if delta.get(name) is None:
            if name in delta:
                draft.drop("reasoning_name", path, name)
            draft.drop("reasoning_name", path, other)
            draft.set("reasoning_name", path, name, delta[other])
        elif delta[name] == delta[other]:
            draft.drop("reasoning_twice", path, other)

    def _content(self, draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        content = delta.get("content")
        if is_list(content) or is_object(content):
            self._flatten(draft, path, delta, choice)
        elif isinstance(content, str):
            self._text(draft, path, content, choice)
        elif content is not None:
            draft.quote("content_not_text", path, "content")  # Q56

    def _text(self, draft: Draft, path: Path, content: str, choice: _Choice) -> None:
        if choice.thinking and not content:
            draft.drop("content_empty", path, "content")  # Q80: it would end the thought
            return
        choice.thinking = False
        choice.said = content
        if content and self._settings.cumulative:
            if choice.text and content.startswith(choice.text):
                choice.said = content[len(choice.text) :]
                draft.set("content_cumulative", path, "content", choice.said)  # Q61
            choice.text = content

    def _flatten(self, draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        """Turn thinking parts into reasoning and text parts into content (Q79)."""
        thoughts: list[str] = []
        texts: list[str] = []
        _collect(delta["content"], texts, thoughts, _PARTS_DEPTH_MAX)
        text, thought = "".join(texts), "".join(thoughts)
        choice.thinking = not text and (bool(thought) or choice.thinking)
        if choice.thinking:
            draft.drop("content_list", path, "content")
        else:
            draft.set("content_list", path, "content", text)
        if thought and not any(isinstance(delta.get(name), str) for name in _REASONING_NAMES):
            draft.set("content_list", path, self._thought_name, thought)

    @property
    def _thought_name(self) -> str:
        return "reasoning" if self._settings.reasoning == "reasoning" else "reasoning_content"

    def _split_thought(self, draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        """Move thoughts from the content to the reasoning; half a tag waits for the next chunk (Q78)."""
        assert choice.think is not None
        thought, answer = choice.think.feed(choice.said)
        if choice.finish:
            thought, answer = (a + b for a, b in zip((thought, answer), choice.think.release(), strict=True))
        if not choice.said:
            if parts := self._parts_delta(choice, thought, answer):
                draft.before.append(("think", chunk(draft.envelope, choice.number, parts)))
        elif answer != choice.said:
            draft.set("think", path, "content", answer)
            if thought and not choice.structured:
                for name in _REASONING_NAMES:
                    if name in delta:
                        draft.drop("think", path, name)
                draft.set("think", path, self._thought_name, thought)

    def _parts_delta(self, choice: _Choice, thought: str, answer: str) -> dict[str, str]:
        """Return the delta of a frame of our own; a thought that came under its own name too is left out (Q77)."""
        parts = {self._thought_name: "" if choice.structured else thought, "content": answer}
        return {name: text for name, text in parts.items() if text}

    def _number_entries(self, draft: Draft, path: Path, entries: list[Any], choice: _Choice) -> None:
        """Return the SDKs merge list entries by `index` and raise without one (Q75, Q86).

        Pieces of one reasoning detail follow each other under one type; every annotation is a new one.
        """
        key = str(path[-1])
        if key not in choice.entries and len(choice.entries) >= LISTS_OF_A_DELTA_MAX:
            return
        for place, entry in enumerate(entries):
            if not is_object(entry):
                continue
            number, kind = choice.entries.get(key, (-1, None))
            given = entry.get("index")
            if type(given) is int:
                choice.entries[key] = (max(number, given), entry.get("type"))
                continue
            if key != "reasoning_details" or entry.get("type") != kind or place:
                number += 1
            choice.entries[key] = (number, entry.get("type"))
            draft.set("entry_index", (*path, place), "index", number)

    def _legacy_call(self, draft: Draft, path: Path, call: Any, choice: _Choice) -> None:
        """Pass a legacy call under its old name; its arguments must be text all the same (Q29)."""
        if not is_object(call) or choice.finish:
            if call is not None:
                draft.drop("late_call" if choice.finish else "calls_not_list", path, "function_call")
            if choice.finish:
                draft.events.append(ForeignFrame(n=draft.n, why="late_call"))
                if choice.legacy_supplied and as_object(call).get("arguments"):
                    draft.events += choice.damage_legacy(draft.n)
            return
        if not choice.legacy_name and not any(call.get(key) for key in ("name", "arguments")):
            draft.drop("legacy_call_empty", path, "function_call")  # held, it would go out as a call
            return
        if "name" in call and choice.legacy_name:
            draft.drop("name_repeated", (*path, "function_call"), "name")  # Q15
        name = call.get("name")
        choice.legacy_name = choice.legacy_name or (name if isinstance(name, str) else "")
        arguments = call.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            draft.quote("arguments_not_text", (*path, "function_call"), "arguments")
        choice.legacy_arguments = choice.legacy_arguments or arguments not in (None, "")

    def _finish(self, draft: Draft, path: Path, given: dict[str, Any], choice: _Choice, *, merged: bool) -> None:
        reason = given.get("finish_reason")
        if reason is None:
            reason = given.get("finishReason")  # Q36
        if not isinstance(reason, str) or reason in ("", "null"):  # Q33 to Q35
            if given.get("finish_reason", "") is not None:
                repair = "finish_empty" if "finish_reason" in given else "finish_missing"
                draft.set(repair, path, "finish_reason", None)
            return
        if choice.finish:
            if given.get("finish_reason", "") is not None:
                draft.set("finish_repeated", path, "finish_reason", None)  # Q38
            return
        word = reason if reason in _KNOWN_FINISHES else _FINISH_WORDS.get(reason.lower(), reason.lower())
        if word not in _KNOWN_FINISHES:
            draft.failure = reason
            draft.set("finish_failure", path, "finish_reason", None)  # Q44
        elif word == "stop" and self._merged and not merged and choice.number == 0:
            draft.set("finish_of_part", path, "finish_reason", None)  # Q27: the calls have their own
        else:
            self._finished(draft, path, given, choice, word)

    def _finished(self, draft: Draft, path: Path, given: dict[str, Any], choice: _Choice, word: str) -> None:
        repair = "finish_word"
        if word == "stop" and (choice.calls.announced or choice.legacy_name):  # Q32
            repair, word = "finish_stop_with_calls", "tool_calls" if choice.calls.announced else "function_call"
        choice.finish = word
        draft.finished = True
        if word not in CUT_FINISHES:
            choice.calls.close(draft)
            lost = self._call_lost or (choice.calls.lost and word != "stop")
            if lost and not choice.calls.known and not choice.legacy_name:
                draft.events.append(ToolCallDamaged(n=draft.n, choice=choice.number, call=0))
            if choice.legacy_name and not choice.legacy_arguments and choice.calls.announced:
                draft.events += choice.damage_legacy(draft.n)  # the same call under its newer name, perhaps
            elif choice.legacy_name and not choice.legacy_arguments and not choice.legacy_damaged:  # Q25
                choice.legacy_supplied = True
                self._legacy_arguments(draft, path, as_object(given.get("delta")), choice)
        if draft.after:
            draft.set("finish_apart", path, "finish_reason", None)  # after the calls that follow
            draft.after.append(("finish_apart", chunk(draft.envelope, choice.number, {}, word)))
        elif word != given.get("finish_reason"):
            draft.set(repair, path, "finish_reason", word)

    @staticmethod
    def _legacy_arguments(draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        if is_object(delta.get("function_call")):
            draft.set("arguments_empty", (*path, "delta", "function_call"), "arguments", "{}")
        else:
            call = {"function_call": {"arguments": "{}"}}
            draft.before.append(("arguments_empty", chunk(draft.envelope, choice.number, call)))


def _collect(content: Any, texts: list[str], thoughts: list[str], depth: int) -> None:
    """Return the texts of a content part or a list of them, thinking apart."""
    if isinstance(content, str):
        texts.append(content)
    elif depth and is_list(content):
        for part in content:
            _collect(part, texts, thoughts, depth - 1)
    elif depth and is_object(content):
        into = thoughts if "thinking" in content else texts
        _collect(content.get("thinking", content.get("text")), into, into, depth - 1)
