"""An opaque string that carries what another dialect's upstream wants back, in a member that clients return unchanged.

Clients return `signature` (Messages) and `encrypted_content` (Responses) word for word. Where client and upstream speak
different dialects, the proofs of the upstream travel in these members: `wt1.` and URL-safe base64 of JSON. An envelope
is opened when it comes back and is never sent to an upstream.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..core.json_text import as_list, as_object, dumps, is_list, parse
from ..core.limits import ENVELOPE_BYTES_MAX

__all__ = ["Envelope", "Proofs", "is_envelope", "may_hold", "opened", "seal"]

#: Kind and value of each proof, as in `core.model.Proof`.
Proofs = Sequence[tuple[str, Any]]

_PREFIX: Final = "wt1."
#: Of any version: what a later one wrote is no proof of a vendor either.
_ANY: Final = re.compile(r"wt[0-9]+\.")
_IN_BODY: Final = re.compile(rb'"wt[0-9]+\.')


class Envelope(NamedTuple):
    """The proofs of one thought, and of calls after it, whose dialect has no place for them."""

    proofs: tuple[tuple[str, Any], ...] = ()
    #: By the id of the call, as the client knows it.
    calls: Mapping[str, tuple[tuple[str, Any], ...]] = MappingProxyType({})


def seal(proofs: Proofs, calls: Mapping[str, Proofs] | None = None) -> str | None:
    """Return the envelope of these proofs, or None if they are too long to carry."""
    value: dict[str, Any] = {"p": [list(proof) for proof in proofs]}
    if calls:
        value["c"] = {call: [list(proof) for proof in given] for call, given in calls.items()}
    sealed = _PREFIX + base64.urlsafe_b64encode(dumps(value)).decode()
    return sealed if len(sealed) <= ENVELOPE_BYTES_MAX else None


def is_envelope(text: Any) -> bool:
    """Return whether a signature or an encrypted content is ours, of any version, whole or damaged."""
    return isinstance(text, str) and _ANY.match(text) is not None


def _proofs(given: Any) -> tuple[tuple[str, Any], ...]:
    pairs = [pair for pair in as_list(given) if is_list(pair) and len(pair) == 2]
    return tuple((kind, value) for kind, value in pairs if isinstance(kind, str))


def may_hold(body: bytes) -> bool:
    """Return whether the JSON of a request may have an envelope in it."""
    return _IN_BODY.search(body) is not None


def opened(kind: str, given: Any) -> Envelope:
    """Return the proofs in a member that clients return: those of an envelope, or the vendor's own one of this kind.

    An envelope has none if it is damaged, too long, or of a version that is unknown here.
    """
    if not is_envelope(given):
        return Envelope(((kind, given),) if isinstance(given, str) and given else ())
    if not given.startswith(_PREFIX) or len(given) > ENVELOPE_BYTES_MAX:
        return Envelope()
    try:
        value = as_object(parse(base64.b64decode(given[len(_PREFIX) :], altchars=b"-_", validate=True)))
    except (binascii.Error, ValueError):
        return Envelope()
    return Envelope(_proofs(value.get("p")), {call: _proofs(of) for call, of in as_object(value.get("c")).items()})
