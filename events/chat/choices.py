"""Choices of one stream: role once, one finish, a delta that is an object, reasoning under one name (catalogue 1.2-1.5)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..json_text import dumps, is_list, is_object
from ..settings import Facts, Settings
from ..splice import Action, Path
from .calls import Calls, Work

__all__ = ["CUT_FINISHES", "Choices"]

_KNOWN_FINISHES: Final = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
#: Other dialects' words for the same; anything else is not a finish but a failure (Q44).
_FINISH_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "end_turn": "stop",
        "eos": "stop",
        "eos_token": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_length": "length",
        "tool_use": "tool_calls",
        "safety": "content_filter",
    }
)
#: Ended by a limit or a filter: no call of the choice may be taken for whole.
CUT_FINISHES: Final = frozenset({"length", "content_filter"})


class _Choice:
    __slots__ = ("calls", "entries", "finish", "text")

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.finish = ""
        #: Index-less entries of each list in the delta: the last number given out and the type it was given to.
        self.entries: dict[str, tuple[int, Any]] = {}
        self.text = ""


class Choices:
    """`repair` every chunk of one attempt in order."""

    def __init__(self, facts: Facts, settings: Settings, stream_id: str, roles: set[int]) -> None:
        """`roles` are the choices whose role the client has; shared with the attempts before and after."""
        self._facts = facts
        self._settings = settings
        self._stream_id = stream_id
        self._roles = roles
        self._ids: set[str] = set()
        self._choices: dict[int, _Choice] = {}
        self._merged: set[int] = set()
        #: Choices that have their role and no finish.
        self.flowing: set[int] = set()

    @property
    def started(self) -> bool:
        """Whether any choice has come."""
        return bool(self._choices)

    def repair(self, work: Work) -> None:
        """Make every choice of the chunk canonical."""
        for place, choice in enumerate(work.value["choices"]):
            self._choice(work, ("choices", place), choice, place)

    def only_text(self, work: Work) -> bool:
        """Whether the chunk is a piece of text of one choice and changed nothing but itself."""
        if len(work.value["choices"]) != 1 or self._settings.cumulative:
            return False
        delta: Any = work.value["choices"][0].get("delta")
        parts = (delta.get(key) for key in ("tool_calls", "function_call")) if is_object(delta) else (delta,)
        return not (any(parts) or work.before or work.after or work.events or work.flags or work.failure)

    def _choice(self, work: Work, path: Path, given: dict[str, Any], place: int) -> None:
        index = given.get("index")
        number = index if type(index) is int else place
        if number in self._merged or (number not in self._choices and self._is_part_of_first(number, given)):
            self._merged.add(number)
            number = 0
        if index != number or type(index) is not int:
            work.op("choice_index", path, Action.SET, "index", dumps(number))
        choice = self._choices.get(number)
        if choice is None:
            calls = Calls(number, self._stream_id, self._facts.tools, self._ids)
            choice = self._choices[number] = _Choice(calls)
        delta = given.get("delta")
        if is_object(delta):
            self._role(work, (*path, "delta"), delta, number)
            self._delta(work, (*path, "delta"), delta, choice)
        else:  # Q47
            role = b"{}" if number in self._roles else b'{"role":"assistant"}'
            work.op("delta_missing", path, Action.SET, "delta", role)
        self._roles.add(number)
        self._finish(work, path, given, choice)
        (self.flowing.discard if choice.finish else self.flowing.add)(number)

    def _is_part_of_first(self, number: int, given: dict[str, Any]) -> bool:
        """Q27: one answer was asked for, and its calls come as a choice of their own, beside the text."""
        delta = given.get("delta")
        calls_alone = is_object(delta) and bool(delta.get("tool_calls")) and not delta.get("content")
        return self._facts.choices == 1 and number > 0 and 0 in self._choices and calls_alone

    def _role(self, work: Work, path: Path, delta: dict[str, Any], number: int) -> None:
        role = delta.get("role")
        if number in self._roles:
            if "role" in delta:
                work.op("role_repeated", path, Action.DROP, "role")
        elif not isinstance(role, str) or not role:
            work.op("role_missing", path, Action.SET, "role", b'"assistant"')

    def _delta(self, work: Work, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        for key in ("tool_calls", "function_call"):
            if key in delta and delta[key] is None:
                work.op("null_member", path, Action.DROP, key)
        self._reasoning(work, path, delta)
        self._content(work, path, delta, choice)
        for key, part in delta.items():
            if is_list(part) and key not in ("tool_calls", "content"):
                self._number_entries(work, (*path, key), part, choice)
        calls = delta.get("tool_calls")
        if is_list(calls) and not choice.finish:
            choice.calls.repair(work, (*path, "tool_calls"), calls)
        elif calls is not None:
            work.op("late_call" if choice.finish else "calls_not_list", path, Action.DROP, "tool_calls")
        if choice.finish and delta.get("content"):
            work.flags.append("late_delta")  # delivered: text after a finish is still text

    def _reasoning(self, work: Work, path: Path, delta: dict[str, Any]) -> None:
        """Q73, Q74: one name on the wire; both names with the same text: one stays."""
        wanted = self._settings.reasoning
        if wanted == "as_is":
            return
        other = "reasoning" if wanted == "reasoning_content" else "reasoning_content"
        if not isinstance(delta.get(other), str):
            return
        if delta.get(wanted) is None:
            if wanted in delta:
                work.op("reasoning_name", path, Action.DROP, wanted)
            work.op("reasoning_name", path, Action.RENAME, other, wanted.encode())
        elif delta[wanted] == delta[other]:
            work.op("reasoning_twice", path, Action.DROP, other)

    def _content(self, work: Work, path: Path, delta: dict[str, Any], choice: _Choice) -> None:
        content = delta.get("content")
        if is_list(content):
            self._flatten(work, path, delta, content)
        elif content is not None and not isinstance(content, str):
            work.op("content_not_text", path, Action.QUOTE, "content")  # Q56
        elif content and self._settings.cumulative:
            if content.startswith(choice.text):
                work.op("content_cumulative", path, Action.SET, "content", dumps(content[len(choice.text) :]))
            choice.text = content

    def _flatten(self, work: Work, path: Path, delta: dict[str, Any], parts: list[Any]) -> None:
        """Q79: thinking parts become reasoning, text parts the content."""
        thoughts: list[str] = []
        texts: list[str] = []
        for part in parts:
            _collect(part, texts, thoughts)
        work.op("content_list", path, Action.SET, "content", dumps("".join(texts)))
        name = "reasoning" if self._settings.reasoning == "reasoning" else "reasoning_content"
        if thoughts and not isinstance(delta.get(name), str):
            work.op("content_list", path, Action.SET, name, dumps("".join(thoughts)))

    def _number_entries(self, work: Work, path: Path, entries: list[Any], choice: _Choice) -> None:
        """The SDKs merge list entries by `index` and raise without one (Q75, Q86).

        Pieces of one reasoning detail follow each other under one type; every annotation is a new one.
        """
        key = str(path[-1])
        for place, entry in enumerate(entries):
            if not is_object(entry) or type(entry.get("index")) is int:
                continue
            number, kind = choice.entries.get(key, (-1, None))
            if key != "reasoning_details" or entry.get("type") != kind or place:
                number += 1
            choice.entries[key] = (number, entry.get("type"))
            work.op("entry_index", (*path, place), Action.SET, "index", dumps(number))

    def _finish(self, work: Work, path: Path, given: dict[str, Any], choice: _Choice) -> None:
        reason = given.get("finish_reason")
        if reason is None:
            reason = given.get("finishReason")  # Q36
        if not isinstance(reason, str) or reason in ("", "null"):  # Q33 to Q35
            if given.get("finish_reason", "") is not None:
                repair = "finish_empty" if "finish_reason" in given else "finish_missing"
                work.op(repair, path, Action.SET, "finish_reason", b"null")
            return
        if choice.finish:
            work.op("finish_repeated", path, Action.SET, "finish_reason", b"null")  # Q38
            return
        word = reason if reason in _KNOWN_FINISHES else _FINISH_WORDS.get(reason.lower(), reason.lower())
        if word not in _KNOWN_FINISHES:
            work.failure = reason
            work.op("finish_failure", path, Action.SET, "finish_reason", b"null")  # Q44
            return
        if word == "stop" and choice.calls.announced:  # Q32
            word = "tool_calls"
            work.op("finish_stop_with_calls", path, Action.SET, "finish_reason", dumps(word))
        elif word != given.get("finish_reason"):
            work.op("finish_word", path, Action.SET, "finish_reason", dumps(word))
        choice.finish = word
        if word not in CUT_FINISHES:
            choice.calls.close(work)


def _collect(part: Any, texts: list[str], thoughts: list[str]) -> None:
    """The texts of one content part, thinking apart."""
    if isinstance(part, str):
        texts.append(part)
    elif is_object(part):
        inner: Any = part.get("thinking", part.get("text"))
        into = thoughts if "thinking" in part else texts
        for piece in inner if is_list(inner) else [inner]:
            _collect(piece, into, into)
