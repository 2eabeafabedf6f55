"""Which dialect an upstream speaks, and a request as it is sent in that dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import apply, as_object, dumps, locate, parse
from wiretape.events.crossing.cross import cross
from wiretape.events.crossing.request import Options
from wiretape.events.dialects import CHAT, DIALECTS, RESPONSES

from ..config.model import Route, Target
from ..config.urls import origin_of
from ..limits import LEARNED_MAX
from .stream_request import StreamRequest

__all__ = ["Learned", "Plan", "Sent", "crosses", "renamed", "sent"]

#: Hosts of the vendors, which refuse what they do not know, and of those the ones that take `max_completion_tokens`.
_OPENAI: Final = (".openai.com", ".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com")
_VENDORS: Final = (*_OPENAI, ".anthropic.com")


@dataclass(frozen=True, slots=True)
class Learned:
    """What upstreams were found not to be able to do, until this process ends."""

    #: Routes and models whose upstream refuses to stream.
    unstreamed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    #: Upstreams, and the dialects for which they have no path.
    foreign: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    #: Upstreams that refuse to be asked for usage.
    uncounted: set[str] = field(default_factory=set[str])
    #: Upstreams that count no tokens of a request.
    estimated: set[str] = field(default_factory=set[str])

    @staticmethod
    def note(known: set[Any], what: Any) -> None:
        """Remember something, unless the set is full."""
        if len(known) < LEARNED_MAX:
            known.add(what)

    def speaks(self, target: Target, dialect: str) -> str:
        """Return the dialect of the request to an upstream, for a client of a dialect."""
        match target.speaks:
            case "same":
                return dialect
            case "auto":
                return "chat" if (target.name, dialect) in self.foreign else dialect
            case word:
                return word


class Plan(NamedTuple):
    """How the next attempt asks."""

    target: Target
    #: The dialect of the upstream.
    dialect: str
    #: A whole answer instead of a stream.
    unstreamed: bool = False
    #: The request asks for usage.
    counted: bool = False


class Sent(NamedTuple):
    """A request as one attempt sends it; of a crossed one also what its `attempt` record holds."""

    body: bytes
    #: The upstream's name for the model, if it is another one.
    model: str = ""
    crossing: Mapping[str, Any] | None = None
    lost: Sequence[str] = ()


def crosses(route: Route, request_dialect: str, *, transparent: bool) -> bool:
    """Return whether requests of a dialect may be crossed on a route."""
    if not request_dialect or transparent:
        return False
    stays = ("same", request_dialect, "auto" if request_dialect == "chat" else "same")
    return any(target.speaks not in stays for target in route.targets)


def renamed(route: Route, model: str) -> str:
    """Return the upstream's name for a model; empty if it has no other."""
    name = next((name for pattern, name in route.models if fnmatchcase(model, pattern)), "")
    return "" if name == model else name


def sent(request: StreamRequest, plan: Plan) -> Sent:
    """Return a request of a dialect as it is sent by this plan. Raise `RequestError` if it cannot be crossed."""
    assert isinstance(request.body, bytes), "requests of a dialect are read whole"
    contents, body = request.contents, request.plain or request.body
    model = renamed(request.route, request.facts.model)
    crossing: Mapping[str, Any] | None = None
    lost: Sequence[str] = ()
    ours, asks_usage = DIALECTS[plan.dialect], contents.asks_usage
    if contents.cleaning:
        body = apply(body, contents.cleaning)
    if plan.dialect != request.dialect:
        value = as_object(parse(body))
        made = cross(
            RESPONSES.with_items(value, request.items) if request.items else value,
            theirs=DIALECTS[request.dialect],
            ours=ours,
            options=_options(request, plan.target),
        )
        crossing, lost, asks_usage = made.crossing, made.lost, ours.asks_usage(made.body)
        body = dumps(made.body)
    elif contents.sealed:
        body = ours.unsealed(body)
    if model:
        body = apply(body, locate(body, {("model",): dumps(model)}))
    if plan.counted:
        body = CHAT.with_usage(body, asks_usage)
    if plan.unstreamed:
        body = ours.unstreamed(body)
    return Sent(body, model, crossing, lost)


def _options(request: StreamRequest, target: Target) -> Options:
    route, host = request.route, "." + origin_of(target.url)[1]
    return Options(
        system_first=route.system == "first",
        max_tokens=route.max_tokens,
        max_tokens_max=route.max_tokens_max,
        cache_control=route.cache_control,
        chat_max_tokens_member="max_completion_tokens" if host.endswith(_OPENAI) else "max_tokens",
        vendor=host.endswith(_VENDORS),
        previous=request.earlier,
    )
