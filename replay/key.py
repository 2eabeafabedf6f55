"""What a request asks for, whatever is incidental in it: the canonical form by which recorder and matcher know it

One function for both sides, because two that differ by one field never match.
"""

import hashlib
import re
from typing import Any, Final

from wiretape.events.json_text import ABSENT, dumps, is_list, is_object, parse

__all__ = ["canonical", "key_of"]

#: Hex digits of a key: 64 bits, since a file holds a few hundred requests.
_KEY_CHARS: Final = 16
#: What stands before the version of an API: a route of the proxy, or the name of a test.
_PREFIX: Final = re.compile(r"^.*?(?=/v\d+[a-z0-9]*(?:/|$))")


def key_of(method: str, path: str, body: bytes) -> str:
    """The key."""
    return hashlib.sha256(dumps(canonical(method, path, body))).hexdigest()[:_KEY_CHARS]


def canonical(method: str, path: str, body: bytes) -> dict[str, Any]:
    """What the key is a hash of."""
    path, _, query = path.partition("?")
    value = parse(body) if body else None
    said = {"sha256": hashlib.sha256(body).hexdigest()} if value is ABSENT else _sorted(value)
    return {"method": method, "path": _PREFIX.sub("", path), "query": sorted(query.split("&")), "body": said}


def _sorted(value: Any) -> Any:
    if is_object(value):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if is_list(value):
        return [_sorted(each) for each in value]
    return value
