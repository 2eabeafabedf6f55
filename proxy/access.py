"""Who may ask what: Host, Origin, method, credential and place of a request, before anything of its body is read"""

from collections.abc import Iterable

from .answers import Answer
from .config import Config
from .exchange import Header
from .keys import Keys

__all__ = ["content_type_refusal", "refusal"]


def refusal(
    config: Config, keys: Keys, method: str, raw_path: bytes, query: bytes, headers: Iterable[Header]
) -> Answer | None:
    """The answer to a request that goes no further; None lets it pass."""
    raise NotImplementedError


def content_type_refusal(headers: Iterable[Header]) -> Answer | None:
    """The 415 for a chat request that is not JSON: what a page may send without asking is not JSON (C11)."""
    raise NotImplementedError
