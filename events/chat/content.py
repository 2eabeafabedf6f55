"""Choices of one stream: one role, one finish, a delta that is an object, reasoning under one name."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from ..core import limits
from ..core.json_text import Path, is_list, is_object
from ..core.model import Event, ForeignFrame
from ..emission.dialect import Context
from .chunk import CALL_KEYS, Draft, chunk
from .tool_calls import Calls

__all__ = ["Choices", "Retold", "Think"]

#: Finishes, and other dialects' words for them; any other word is not a finish but a failure (Q44).
_FINISHES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{word: word for word in ("stop", "length", "tool_calls", "content_filter", "function_call")},
        **dict.fromkeys(("complete", "end_turn", "eos", "eos_token", "stop_sequence"), "stop"),
        **dict.fromkeys(("max_output_tokens", "max_tokens", "model_context_window_exceeded", "model_length"), "length"),
        **dict.fromkeys(("tool_call", "tool_use"), "tool_calls"),
        **dict.fromkeys(
            ("blocklist", "prohibited_content", "recitation", "refusal", "safety", "sensitive"), "content_filter"
        ),
    }
)
_REASONING_NAMES: Final = ("reasoning_content", "reasoning", "reasoning_text")
_REASONING: Final = frozenset(_REASONING_NAMES)
_TEXTS: Final = ("content", "refusal", *_REASONING_NAMES)
#: The part of a chunk that is about a call.
_CALL: Final = re.compile(rb'"tool_calls"\s*:\s*\[\s*\{|"function_call"\s*:\s*\{')
_OPENING: Final = "<think>"
_CLOSING: Final = "</think>"
#: The character that replaces bytes that are not UTF-8.
_REPLACED: Final = "\ufffd"
#: An index beyond it is junk: no upstream gives as many answers.
_INDEX_MAX: Final = 2**31 - 1
_PARTS_DEPTH_MAX: Final = 4
#: The words of hermes-agent, each a delta of its own, when its model's stream broke inside a call and it asks again
#: (0.19.0, `agent/chat_completion_helpers.py`).
_RETRIES: Final = re.compile(r"\s*⚠ (?:Connection dropped mid tool-call; reconnecting|Stream stalled mid tool-call \()")


class Think:
    """A splitter of text into thought and answer; a tail that may be half a tag is held.

    Only the block at the very head is a thought: later text may mention such tags.
    """

    def __init__(self) -> None:
        #: All further text is the answer.
        self.over = False
        self._inside = False
        self._held: str = ""

    def feed(self, text: str, *, last: bool = False) -> tuple[str, str]:
        """Return the thought and the answer in this piece; with the `last` one, what is held is not a tag."""
        if self.over:
            return "", text
        text, self._held = self._held + text, ""
        if not self._inside:
            head = text.lstrip()
            if not head.startswith(_OPENING):
                if not last and _OPENING.startswith(head) and len(text) <= limits.THINK_HEAD_CHARS_MAX:
                    self._held = text
                    return "", ""
                self.over = True
                return "", text
            self._inside, text = True, head[len(_OPENING) :]
        thought, closing, answer = text.partition(_CLOSING)
        self.over = last or bool(closing)
        if not self.over:
            half_tag = next((size for size in range(len(_CLOSING) - 1, 0, -1) if text.endswith(_CLOSING[:size])), 0)
            kept = len(text) - half_tag
            thought, self._held = text[:kept], text[kept:]
        return thought, answer


class Retold:
    """A detector of text that begins again, because the agent asked its model again (clients.md 4)."""

    def __init__(self) -> None:
        self.turn()

    def turn(self) -> None:
        """Start a new answer: a tool has run in between."""
        self._text = ""
        #: The places where the text may have begun again.
        self._places: list[int] = []

    def says_again(self, piece: str) -> bool:
        """Return whether all text of the turn has come again with this piece, or the agent announces that."""
        if _RETRIES.match(piece):
            self.turn()
            return True
        begins = len(self._text)
        if begins > limits.RETOLD_CHARS_MAX or not piece:
            return False
        self._text += piece if begins else piece.lstrip("\n")
        places = [*self._places, begins] if begins >= limits.RETOLD_CHARS_MIN else []
        same = [at for at in places if self._text.startswith(piece[: 2 * at - begins], begins - at)]
        self._places = same[: limits.RETOLD_PLACES_MAX]
        again = next((at for at in self._places if len(self._text) >= 2 * at), 0)
        if again:
            self._text = self._text[again:]
            self._places = []
        return bool(again)


@dataclass(slots=True, eq=False)
class _Choice:
    number: int
    calls: Calls
    think: Think | None
    finish: str = ""
    #: Entries of each list in the delta that have no index: the last number given out and the type it was given to.
    entries: dict[str, tuple[int, Any]] = field(default_factory=dict[str, tuple[int, Any]])
    #: The text of the chunk under repair.
    said: str = ""
    #: All text so far, where content repeats it (Q61).
    text: str = ""
    #: Content comes as lists of parts (Q79), the last of which was a thought.
    thinking: bool = False
    #: Thoughts come under their own name (Q77).
    structured: bool = False


class Choices:
    """The choices of one attempt; `repair` takes its chunks in order."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._thought_name = "reasoning" if context.settings.reasoning == "reasoning" else "reasoning_content"
        self._other_names = [name for name in _REASONING_NAMES if name != self._thought_name]
        #: A finish that is not a word, such as a number of Gemini's enum, may have meant a cut.
        self.unclear = False
        self._ids: set[str] = set()
        self._choices: dict[int, _Choice] = {}
        self._merged: set[int] = set()
        #: A frame that was about calls could not be read, and may have been all that came of one.
        self._call_lost = False

    @property
    def started(self) -> bool:
        return bool(self._choices)

    @property
    def unfinished(self) -> list[int]:
        return [number for number, choice in self._choices.items() if not choice.finish]

    def damaged(self, n: int, payload: bytes) -> list[Event]:
        """Damage every open call, because these bytes may have been a chunk about any of them."""
        if b"{" not in payload and b"}" not in payload:  # words, which some upstreams send as keepalives
            return []
        self._call_lost = self._call_lost or _CALL.search(payload) is not None
        return [event for one in self._choices.values() for event in one.calls.damage(one.calls.open, n)]

    def garbled(self, draft: Draft) -> None:
        """Damage the calls of a chunk in which bytes that are not UTF-8 were replaced."""
        torn = {call for call, entry in draft.touched.items() if _REPLACED in f"{entry.id}{entry.name}{entry.text}"}
        for choice in self._choices.values():
            draft.events += choice.calls.damage([call for call in choice.calls.all if call in torn], draft.n)

    def repair(self, draft: Draft) -> None:
        """Make every choice of the chunk canonical."""
        for place, choice in enumerate(draft.value["choices"]):
            if is_object(choice):
                self._choice(draft, ("choices", place), choice, place)
            else:
                draft.drop("choice_not_object", ("choices",), place)

    def held(self, head: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield chunks with what was held as half a tag, since no more text comes."""
        for choice in self._choices.values():
            if choice.think and (parts := self._parts_delta(choice, *choice.think.feed("", last=True))):
                yield chunk(head, choice.number, parts)

    # -- one choice ---------------------------------------------------------------------------------------------------

    def _choice(self, draft: Draft, path: Path, given: dict[str, Any], place: int) -> None:
        index, delta = given.get("index"), given.get("delta")
        number = index if type(index) is int and 0 <= index <= _INDEX_MAX else place
        merged = number in self._merged or (number not in self._choices and self._is_part_of_first(number, delta))
        if merged:
            self._merged.add(number)
            number = 0
        if index != number or type(index) is not int:
            draft.set("choice_index", path, "index", number)
        choice = self._choices.get(number)
        first = choice is None
        if choice is None:
            calls = Calls(number, self._context, self._ids)
            choice = self._choices[number] = _Choice(number, calls, Think() if self._context.settings.think else None)
        choice.said = ""
        missed: list[Any] = []
        if is_object(given.get("message")):  # Q59: cumulative, and some read it as the whole answer
            draft.drop("message_beside", path, "message")
            said = given["message"].get("tool_calls")
            if is_list(said) and given.get("finish_reason") and not (choice.finish or choice.calls.legacy.name):
                missed = said
        if is_object(delta):
            role = delta.get("role")
            if not first and "role" in delta:
                draft.drop("role_repeated", (*path, "delta"), "role")
            elif first and (not isinstance(role, str) or not role):
                draft.set("role_missing", (*path, "delta"), "role", "assistant")
            self._delta(draft, (*path, "delta"), delta, choice)
        else:  # Q47
            draft.set("delta_missing", path, "delta", {"role": "assistant"} if first else {})
        if missed:
            choice.calls.missed(draft, missed)
        if given.get("logprobs") is not None and not is_object(given["logprobs"]):
            draft.set("logprobs_not_object", path, "logprobs", None)  # Q85: a number, from Together
        self._finish(draft, path, given, choice, merged=merged)
        if choice.think is not None:
            self._split_thought(draft, (*path, "delta"), choice, choice.think)
        if first or choice.finish or (choice.think is not None and not choice.think.over):
            draft.unique = True

    def _is_part_of_first(self, number: int, delta: Any) -> bool:
        """Return whether the calls of the one answer that was requested come as a choice of their own (Q27)."""
        first = self._choices.get(0)
        if self._context.facts.choices != 1 or number == 0 or first is None or first.finish or first.calls.known:
            return False
        return is_object(delta) and bool(delta.get("tool_calls")) and not delta.get("content")

    def _delta(self, draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        calls = False
        for key, part in delta.items():
            if part and not isinstance(part, str):
                draft.unique = True
            if part is None:
                if key in CALL_KEYS:
                    draft.drop("null_member", path, key)
            elif key in CALL_KEYS:
                calls = draft.unique = True
            elif key == "content":
                self._content(draft, path, part, delta, choice)
            elif is_list(part) and key != "role":
                self._number_entries(draft, (*path, key), part, choice)
        if not _REASONING.isdisjoint(delta):
            self._reasoning(draft, path, delta, choice)
        if calls:
            (choice.calls.late if choice.finish else choice.calls.repair)(draft, path, delta)
        if choice.finish and any(delta.get(key) for key in _TEXTS):
            draft.flags.append("late_delta")  # delivered: text after a finish is still text
            draft.events.append(ForeignFrame(n=draft.n, why="late_delta"))

    def _reasoning(self, draft: Draft, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        """Send reasoning under one name (Q73, Q74), and only once if several names have the same text."""
        thought = delta.get(self._thought_name)
        said = [name for name in _REASONING_NAMES if delta.get(name) and isinstance(delta[name], str)]
        if said:
            choice.structured = True
        if len(said) > 1:  # which may be equal next time
            draft.unique = True
        for other in () if self._context.settings.reasoning == "as_is" else self._other_names:
            named_otherwise = delta.get(other)
            if thought is None and isinstance(named_otherwise, str):
                thought = named_otherwise
                draft.set("reasoning_name", path, self._thought_name, thought)
                draft.drop("reasoning_name", path, other)
            elif isinstance(named_otherwise, str) and thought == named_otherwise:
                draft.drop("reasoning_twice", path, other)

    def _content(self, draft: Draft, path: Path, content: Any, delta: dict[str, Any], choice: _Choice) -> None:
        if is_list(content) or is_object(content):
            self._flatten(draft, path, delta, choice)
        elif not isinstance(content, str):
            draft.quote("content_not_text", path, "content")  # Q56
        elif choice.thinking and not content:
            draft.drop("content_empty", path, "content")  # Q80: it would end the thought
        else:
            choice.thinking = False
            choice.said = content
            if content and self._context.settings.cumulative:
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

    def _split_thought(self, draft: Draft, path: Path, choice: _Choice, think: Think) -> None:
        """Move thoughts from the content to the reasoning; half a tag waits for the next chunk (Q78)."""
        thought, answer = think.feed(choice.said, last=bool(choice.finish))
        if not choice.said:
            if parts := self._parts_delta(choice, thought, answer):
                draft.before.append(draft.ours("think", choice.number, parts))
        elif answer != choice.said:
            draft.set("think", path, "content", answer)
            if thought and not choice.structured:
                draft.set("think", path, self._thought_name, thought)
                for name in self._other_names:
                    draft.drop("think", path, name)

    def _parts_delta(self, choice: _Choice, thought: str, answer: str) -> dict[str, Any]:
        """Return the delta of a frame of ours, without a thought that came under its own name too (Q77)."""
        parts = {self._thought_name: "" if choice.structured else thought, "content": answer}
        return {name: text for name, text in parts.items() if text}

    def _number_entries(self, draft: Draft, path: Path, entries: list[Any], choice: _Choice) -> None:
        """Give list entries the `index` by which SDKs merge them; without it they raise (Q75, Q86).

        Pieces of one reasoning detail follow each other under one type; every annotation is a new one.
        """
        key = str(path[-1])
        if key not in choice.entries and len(choice.entries) >= limits.LISTS_OF_A_DELTA_MAX:
            return
        for place, entry in enumerate(entries):
            if not is_object(entry):
                continue
            number, kind = choice.entries.get(key, (-1, None))
            given = entry.get("index")
            if type(given) is int:
                number = max(number, given)
            else:
                if key != "reasoning_details" or entry.get("type") != kind or place:
                    number += 1
                draft.set("entry_index", (*path, place), "index", number)
            choice.entries[key] = (number, entry.get("type"))

    # -- its finish ---------------------------------------------------------------------------------------------------

    def _finish(self, draft: Draft, path: Path, given: dict[str, Any], choice: _Choice, *, merged: bool) -> None:
        came = given.get("finish_reason")
        reason = given.get("finishReason") if came is None else came  # Q36
        word, repair = None, "finish_word"
        if not isinstance(reason, str) or reason in ("", "null"):  # Q33 to Q35
            self.unclear = self.unclear or bool(reason)
            repair = "finish_empty" if "finish_reason" in given else "finish_missing"
        elif choice.finish and not choice.calls.open:
            repair = "finish_repeated"  # Q38
        else:
            word = _FINISHES.get(reason.lower())
            if word is None:  # Q44
                repair, draft.failure = "finish_failure", reason
            elif word == "stop" and self._merged and not merged and choice.number == 0:  # Q27: the calls have their own
                word, repair = None, "finish_of_part"
        if word is not None:
            if word == "stop" and (choice.calls.announced or choice.calls.legacy.name):  # Q32
                repair, word = "finish_stop_with_calls", "tool_calls" if choice.calls.announced else "function_call"
            draft.finished = True
            choice.calls.close(draft, word, lost=self._call_lost)
            again, choice.finish = choice.finish, choice.finish or word
            if again or draft.after:  # calls after the finish that the client gets, or calls that precede it
                draft.after.append(draft.ours("finish_apart", choice.number, {}, word))
                word, repair = None, "finish_repeated" if again else "finish_apart"
        if word != came or "finish_reason" not in given:
            draft.set(repair, path, "finish_reason", word)


def _collect(content: Any, texts: list[str], thoughts: list[str], depth: int) -> None:
    """Add the texts of a content part or a list of them to `texts`, those of thoughts to `thoughts`."""
    if isinstance(content, str):
        texts.append(content)
    elif depth and is_list(content):
        for part in content:
            _collect(part, texts, thoughts, depth - 1)
    elif depth and is_object(content):
        into = thoughts if "thinking" in content else texts
        _collect(content.get("thinking", content.get("text")), into, into, depth - 1)
