"""Where traces go: from the settings, or from the variables that all of OpenTelemetry reads."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import unquote

import httpx

from ..http1 import Header
from .model import Config, ConfigError

__all__ = ["RESOURCE", "Collector", "collector_of"]

#: What the spans are about, unless variables say more.
RESOURCE: Final = {"service.name": "wiretape"}
_OTLP: Final = "OTEL_EXPORTER_OTLP_"


class Collector(NamedTuple):
    """A collector, and in which form it gets spans."""

    url: httpx.URL
    headers: tuple[Header, ...] = ()
    is_json: bool = False
    resource: Mapping[str, str] = RESOURCE
    vocabulary: str = "1.41"
    content: bool = False


def collector_of(config: Config, environ: Mapping[str, str], endpoint: str | None = None) -> Collector | None:
    """Return the collector that is named, by `endpoint` if that is given; raise `ConfigError` if it cannot be used."""
    base, exact = endpoint or config.otel_endpoint, environ.get(_OTLP + "TRACES_ENDPOINT")
    base = base or (None if exact else environ.get(_OTLP + "ENDPOINT"))
    if not (base or exact) or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    url, protocol = httpx.URL(), environ.get(_OTLP + "PROTOCOL")
    with suppress(httpx.InvalidURL):
        url = httpx.URL(f"{base.rstrip('/')}/v1/traces" if base else exact or "")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("otel_endpoint: must be a URL with http:// or https:// and a host")
    if protocol not in (None, "http/protobuf", "http/json"):
        raise ConfigError("OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf or http/json")
    headers = [(name.encode(), value.encode()) for name, value in _pairs(environ.get(_OTLP + "HEADERS", "")).items()]
    resource = {**RESOURCE, **_pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))}
    resource["service.name"] = environ.get("OTEL_SERVICE_NAME") or resource["service.name"]
    newest = "gen_ai_latest_experimental" in environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "")
    version = config.otel_genai or ("latest" if newest else "1.41")
    return Collector(url, tuple(headers), protocol == "http/json", resource, version, config.otel_content)


def _pairs(given: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in given.split(",") if "=" in pair)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
