"""What code that looks into stored bytes asks of a dialect: the parts of one frame, and the words of its protocol.

A `Reader` needs a whole stream and its state; a tool that cuts, renames or redacts has one frame or one request.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Protocol

__all__ = ["NO_NAMES", "CallPiece", "Part", "Path", "Places", "Words"]

#: What a frame may have: a piece of visible text, the reason why the model stopped, or the end of the protocol.
Part = Literal["text", "finish", "done"]
#: Names of members, from the top of a frame.
Path = tuple[str | int, ...]
NO_NAMES: Final[frozenset[str]] = frozenset()


class CallPiece(NamedTuple):
    """What a frame adds to the name and the arguments of one call."""

    #: The call's index in its answer, which may be any JSON.
    call: str
    name: str
    text: str
    #: Its position in the frame.
    choice: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Names of members, types and ids, by what a reader does with them."""

    #: The end of its path.
    path: str
    #: Lists of a request that hold the conversation, and what one element is called.
    conversation: Mapping[str, str]
    #: Members of a request in which a client describes its surroundings, such as today's date.
    surroundings: frozenset[str] = NO_NAMES
    #: Members of a request that name an answer which the provider keeps, and types of items that do.
    stored: frozenset[str] = NO_NAMES
    #: Members that name an answer, a message, an item or a call.
    ids: frozenset[str]
    #: How its ids begin.
    id_prefixes: tuple[str, ...]
    #: Members of a tool result that name its call.
    result_ids: tuple[str, ...]
    #: Roles and types of tool results, besides types that end in `_output`.
    results: frozenset[str] = NO_NAMES
    #: Members that only the provider can read, and that differ in every recording.
    proofs: frozenset[str] = NO_NAMES
    #: Types of parts whose `data` is such a member.
    sealed_types: frozenset[str] = NO_NAMES
    #: Members that tell apart the streams inside a stream.
    indexes: frozenset[str] = NO_NAMES
    #: Members that repeat in each frame and are not streamed.
    repeated: frozenset[str] = NO_NAMES
    #: Members with the reason why the model stopped.
    reasons: frozenset[str] = NO_NAMES
    #: Members besides `reasoning` that stream reasoning.
    reasoning: frozenset[str] = NO_NAMES
    #: By the kind of a frame that begins a text, and the path of its first piece: those of the frames that continue it.
    continued: Mapping[tuple[bytes, Path], tuple[bytes, Path]] = field(default_factory=lambda: MappingProxyType({}))


class Places(Protocol):
    """The parts of frames of one dialect. Nothing here raises on a frame of any shape."""

    words: Words

    #: Report whether a frame or a whole answer may be of this dialect.
    def known(self, value: Mapping[str, Any]) -> bool: ...

    #: Report whether a frame has this part.
    def has(self, part: Part, value: Mapping[str, Any], payload: bytes) -> bool: ...

    #: Yield the pieces of calls in a frame.
    def calls(self, value: Mapping[str, Any]) -> Iterator[CallPiece]: ...

    #: Return a frame with so many characters of one of its pieces and nothing after it.
    def shortened(self, value: Mapping[str, Any], piece: CallPiece, length: int) -> dict[str, Any]: ...

    def without_finish(self, value: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: ARG002 - by default everything
        """Return a frame without its finish; None if nothing else is left."""
        return None

    #: Return the event's name and the payload of an error, as providers send one after `number` frames.
    def error(self, message: str, number: int) -> tuple[str, dict[str, Any]]: ...
