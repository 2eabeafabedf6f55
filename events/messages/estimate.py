"""A rough count of a request's tokens, for upstreams that do not count them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import dumps, is_list, is_object

__all__ = ["estimated_tokens"]

#: English and code have about four bytes to a token in all current tokenizers.
_BYTES_A_TOKEN: Final = 4
#: An image of the size that clients scale to (1,568 pixels), and a PDF of a few pages.
_MEDIA_TOKENS: Final[Mapping[str, int]] = MappingProxyType({"image": 1_600, "document": 6_000})
#: What a model reads of a request.
_READ: Final = ("system", "tools", "messages")


def estimated_tokens(body: dict[str, Any]) -> int:
    """Return how many tokens the system prompt, the tools and the messages take, about."""
    size, tokens = 0, 0
    waiting: list[Any] = [body[name] for name in _READ if name in body]
    while waiting:
        value = waiting.pop()
        if is_object(value):
            kind: Any = value.get("type")
            media = _MEDIA_TOKENS.get(kind, 0) if isinstance(kind, str) and "source" in value else 0
            tokens += media
            size += sum(len(name) + 1 for name in value)
            waiting += (part for name, part in value.items() if not (media and name == "source"))
        elif is_list(value):
            waiting += value
        else:
            size += len(value.encode("utf-8", "replace") if isinstance(value, str) else dumps(value)) + 1
    return tokens + -(-size // _BYTES_A_TOKEN)
