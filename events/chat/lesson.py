"""From one plain chunk to all that look like it: the edges around its piece of text, proved by reading another one"""

from typing import Any, Final

from ..core.json_text import as_object, dumps, parse
from ..tape.familiar import Familiar

__all__ = ["learn"]

_PROBE: Final = '\\probe"'


def learn(payload: bytes, value: Any) -> Familiar | None:
    """`value` is `payload` read, and plain; None where the edges cannot be told.

    A chunk that counts tokens is left out: whoever keeps the last count wants to see each of them.
    """
    delta: dict[str, Any] = value["choices"][0]["delta"]
    texts = [key for key, text in delta.items() if text]
    if len(texts) != 1 or as_object(value.get("usage")):
        return None
    key, text = texts[0], dumps(delta[texts[0]])
    at = payload.find(text)
    if at < 0 or payload.find(text, at + 1) >= 0:
        return None
    before, behind = payload[: at + 1], payload[at + len(text) - 1 :]
    said, delta[key] = delta[key], _PROBE
    proved = parse(before + dumps(_PROBE)[1:-1] + behind) == value
    delta[key] = said
    return Familiar(before, behind) if proved else None
