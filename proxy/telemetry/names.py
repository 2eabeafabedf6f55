"""The attributes of a stream in the words of the GenAI conventions, and what was renamed between their versions."""

from collections.abc import Mapping
from typing import Any, Final

from wiretape.events.core.json_text import as_text
from wiretape.events.core.lifecycle import State
from wiretape.events.dialects import DIALECTS
from wiretape.events.folds.summary import StreamSummary

__all__ = ["RENAMED", "address_of", "operation_attributes"]

#: By the value of `otel_genai`: the names of 1.41.0 that are others there. Nothing is written under an empty name.
RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "1.41": {},
    "latest": {
        "gen_ai.usage.cache_creation.input_tokens": "gen_ai.usage.cache_write.input_tokens",
        "finish_reason": "",  # of a message; `gen_ai.response.finish_reasons` has it
    },
}
#: Providers by the end of their host's name; any other speaks the API of the first or of the second.
_PROVIDERS: Final = (
    *(("openai.com", "openai"), ("anthropic.com", "anthropic"), ("azure.com", "azure.ai.openai")),
    *(("aiplatform.googleapis.com", "gcp.vertex_ai"), ("googleapis.com", "gcp.gemini"), ("x.ai", "x_ai")),
    *(("amazonaws.com", "aws.bedrock"), ("mistral.ai", "mistral_ai"), ("deepseek.com", "deepseek")),
    *(("groq.com", "groq"), ("cohere.com", "cohere"), ("perplexity.ai", "perplexity")),
)


def address_of(upstream: Any) -> dict[str, Any]:
    """Return address and port of an upstream by its name: host, port unless it is that of TLS, and path."""
    netloc = as_text(upstream).partition("/")[0]
    host, _, port = netloc.rpartition(":")
    named = port.isdecimal()
    return {"server.address": (host if named else netloc).strip("[]"), "server.port": int(port) if named else 443}


def operation_attributes(summary: StreamSummary, stream: str, *, repairs: int, silence_us: int) -> dict[str, Any]:
    """Return what is known of a whole stream, under the names of 1.41.0; unknown values are empty."""
    wire, facts, opening, attempts = summary.wire, summary.facts, summary.opening, summary.attempts
    end, dialect = dict[str, Any]() if summary.end is None else summary.end.keys, summary.dialect
    upstream, ending = attempts[-1] if attempts else {}, end.get("ending") or summary.ending or ""
    spoken, streams, n = upstream.get("dialect") or dialect, facts.get("stream") is True, facts.get("n")
    place, known = address_of(upstream.get("upstream")), dict[str, Any]()
    if dialect:
        api, host = "anthropic" if spoken == "messages" else "openai", place["server.address"]
        first_us = summary.first_content_us if streams and attempts else None
        known = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": next((name for end, name in _PROVIDERS if host.endswith(end)), api),
            "gen_ai.conversation.id": opening.get("session"),
            "gen_ai.request.model": facts.get("model"),
            "gen_ai.request.stream": streams,
            "gen_ai.request.choice.count": n if type(n) is int and n != 1 else None,
            "gen_ai.response.id": wire.id,
            "gen_ai.response.model": wire.model,
            # The word of the conventions for a finish reason that never came.
            "gen_ai.response.finish_reasons": [wire.choices[each].finish or "error" for each in sorted(wire.choices)],
            "gen_ai.response.time_to_first_chunk": first_us and (first_us - attempts[0]["at_us"]) / 1e6,
            "wiretape.dialect": dialect,
            "wiretape.upstream.dialect": spoken if spoken != dialect else None,
        }
    if wire.usage and spoken in DIALECTS:
        read, written, cached, cache_write, reasoning = DIALECTS[spoken].counts(wire.usage)
        known |= {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written}
        known |= {"gen_ai.usage.cache_read.input_tokens": cached, "gen_ai.usage.reasoning.output_tokens": reasoning}
        known |= {"gen_ai.usage.cache_creation.input_tokens": cache_write}
    lost = [call for call in wire.all_calls() if call.state in (State.DROPPED, State.MALFORMED)]
    known |= {**(place if upstream else {}), "error.type": "" if ending == "completed" else ending}
    known |= {"wiretape.stream.id": stream, "wiretape.route": opening.get("route"), "wiretape.ending": ending}
    known |= {"wiretape.cause": end.get("cause"), "wiretape.flags": end.get("flags"), "wiretape.repairs": repairs}
    known |= {"wiretape.run.id": opening.get("run"), "wiretape.attempts": len(attempts)}
    return known | {"wiretape.dropped_tools": len(lost), "wiretape.longest_silence": silence_us / 1e6}
