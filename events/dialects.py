"""The dialects by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from .chat.dialect import Chat
from .chat.places import ChatPlaces
from .core.places import Places
from .messages.dialect import Messages
from .messages.places import MessagesPlaces
from .responses.dialect import Responses
from .responses.places import ResponsesPlaces

__all__ = ["CHAT", "DIALECTS", "MESSAGES", "PLACES", "RESPONSES", "spoken"]

CHAT: Final = Chat()
RESPONSES: Final = Responses()
MESSAGES: Final = Messages()
DIALECTS: Final[Mapping[str, Chat | Responses | Messages]] = MappingProxyType(
    {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
)
#: The parts of their frames and the words of their protocols, for code that looks into stored bytes.
PLACES: Final[Mapping[str, Places]] = MappingProxyType(
    {"chat": ChatPlaces(), "responses": ResponsesPlaces(), "messages": MessagesPlaces()}
)


def spoken(name: Any) -> str:
    """Return the dialect that the keys of a record name; empty for any other value."""
    return name if isinstance(name, str) and name in DIALECTS else ""
