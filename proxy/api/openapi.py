"""The OpenAPI document of Wiretape's own endpoints: one table of them, and JSON Schemas of what they answer.

`/wiretape/openapi.json` serves it and `make docs` writes it to docs/reference. A test compares the table with the
routes of the code, and `make fuzz-api` every answer with its schema.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import SESSION_CHARS_MAX
from wiretape.events.core.model import Ending
from wiretape.events.core.settings import Profile
from wiretape.events.folds.run_events import RUN_EVENTS, event_schema, object_schema

from ..limits import RUNS_PAGE_MAX
from ..store.store import PAGE_MAX

__all__ = ["ENDPOINTS", "Endpoint", "document"]

_Schema = Mapping[str, Any]

_ABOUT: Final = (
    "Everything that Wiretape answers itself. All other requests below /v1 are relayed to the upstream, crossed into "
    "its dialect if it speaks another one than the client. HEAD works wherever GET does. The paths of another route "
    "than the default one begin with /<route>/v1."
)
_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SWITCH: Final = {"enum": ["1", "0", "true", "false"]}
_GIVEN: Final = {"type": ["string", "number", "object", "array", "boolean"]}
_SECONDS: Final = {"type": "number", "minimum": 0}
_JSON: Final = "application/json"
_SSE: Final = "text/event-stream"
_RUN_ID: Final = {"type": "string", "pattern": "^run_[0-9a-f]{32}$"}
_STATES: Final = (
    *("started", "running", "waiting_for_tools", "waiting_for_approval", "stopping"),
    *("completed", "failed", "cancelled"),
)


def _list(items: _Schema) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _maybe(schema: _Schema) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_TIMES: Final = ("first_frame_us", "first_content_us", "last_content_us")
_STREAM: Final = {
    "id": _TEXT,
    "created": _COUNT,
    "route": _TEXT,
    "dialect": _TEXT,
    "model": _maybe(_TEXT),
    "live": _FLAG,
    "ending": _maybe({"enum": [*get_args(Ending)]}),
    "flags": _list(_TEXT),
    **dict.fromkeys(("input_tokens", "output_tokens", *_TIMES[:2], "duration_us"), _maybe(_COUNT)),
    **dict.fromkeys(("created_us", "status", "silence_us", "turn"), _maybe(_COUNT)),
    **dict.fromkeys(("attempts", "lost", "repairs"), _COUNT),
    **dict.fromkeys(("path", "run"), _maybe(_TEXT)),
    "spark": _maybe(_list(_COUNT)),
    "tools": _list(object_schema({"name": _TEXT, "state": {"enum": [state.value for state in State]}})),
}
_SCHEMAS: Final[Mapping[str, _Schema]] = {
    "Error": object_schema(
        {
            "error": object_schema({"message": _TEXT, "type": _TEXT, "param?": _maybe(_TEXT), "code?": _maybe(_TEXT)}),
            "type?": {"const": "error"},
        }
    ),
    "Readiness": object_schema(
        {"ready": _FLAG, "reasons": _list({"enum": ["draining", "tape_not_writable", "data_folder_gone"]})}
    ),
    "Stream": object_schema(_STREAM),
    "Turn": object_schema({**_STREAM, "calls": _list({"type": "object"})}),
    "StreamSummary": object_schema(
        {
            "id": _TEXT,
            "created": _COUNT,
            "route": _TEXT,
            "dialect": _TEXT,
            "profile": _maybe(_TEXT),
            "model": _maybe(_TEXT),
            "live": _FLAG,
            "status": _maybe(_COUNT),
            "ending": _maybe({"enum": [*get_args(Ending)]}),
            "flags": _list(_TEXT),
            "cause": _maybe(_TEXT),
            "answer": _maybe({"enum": ["whole", "broken"]}),
            "error": _maybe(object_schema({"message": _TEXT, "code": _maybe(_TEXT)})),
            "attempts": _list(object_schema({"n": _COUNT, "at_us": _COUNT, "*": {}})),
            "timing": object_schema(
                {
                    **dict.fromkeys(_TIMES, _maybe(_COUNT)),
                    **dict.fromkeys(("longest_silence_us", "longest_pause_us", "duration_us"), _COUNT),
                }
            ),
            "usage": _maybe({"type": "object"}),
            "message": _maybe(object_schema({"id": _TEXT, "answers": _list(_ref("Answer"))})),
            "tools": _list(_ref("ToolCall")),
            "results": _list({"type": "object"}),
            "history": _list({"type": "object"}),
            "warnings": _list(
                object_schema({"code": _TEXT, "calls": _list(object_schema({"id": _TEXT, "name": _TEXT}))})
            ),
            "repairs": {"type": "object", "additionalProperties": _COUNT},
            "received": object_schema({"bytes": _COUNT, "frames": _COUNT, "sha256?": _TEXT}),
            "records": _COUNT,
            "damage": _list(object_schema({"at": _maybe(_COUNT), "reason": _TEXT})),
        }
    ),
    "Answer": object_schema(
        {
            "index": _COUNT,
            "finish": _maybe(_TEXT),
            **dict.fromkeys(("text_chars", "reasoning_chars", "refusal_chars"), _COUNT),
            **dict.fromkeys(("text?", "reasoning?", "refusal?"), _TEXT),
        }
    ),
    "ToolCall": object_schema(
        {
            "id": _TEXT,
            "name": _TEXT,
            "choice": _COUNT,
            "run_by": {"enum": ["upstream", "client"]},
            "state": {"enum": [*(state.value for state in State), "unknown"]},
            "reason": _maybe(_TEXT),
            "answered_by": _maybe(_TEXT),
            "duration_ms": _maybe({"type": "integer"}),
            "moves": _list(object_schema({"n": _COUNT, "state": {"enum": [state.value for state in State]}})),
            "arguments_chars": _COUNT,
            "arguments?": _TEXT,
        }
    ),
    "Message": object_schema({"role": _TEXT, "*": {}}),
    "RunRequest": object_schema(
        {
            "input": {"anyOf": [{"type": "string", "minLength": 1}, {**_list(_ref("Message")), "minItems": 1}]},
            "model?": _TEXT,
            "instructions?": _TEXT,
            "conversation_history?": _list(_ref("Message")),
            "tools?": _list(_ref("Tool")),
            "previous_response_id?": _TEXT,
            "session_id?": {"type": "string", "minLength": 1, "maxLength": SESSION_CHARS_MAX},
            "metadata?": {"type": "object"},
            "stream_tool_arguments?": _FLAG,
            "*": {},
        }
    ),
    "Tool": {
        "anyOf": [
            object_schema({"type": {"const": "function"}, "function": {"type": "object"}, "*": {}}),
            object_schema({"type": {"const": "function"}, "name": _TEXT, "*": {}}),
        ]
    },
    "ToolOutput": {
        "anyOf": [
            object_schema(
                {"call_id": _TEXT, "output": _GIVEN, "error?": _maybe({"type": ["boolean", "string"]}), "*": {}}
            ),
            object_schema({"call_id": _TEXT, "output?": {"type": "null"}, "error": _TEXT, "*": {}}),
        ]
    },
    "Run": object_schema(
        {
            "object": {"const": "hermes.run"},
            "run_id": _RUN_ID,
            "status": {"enum": [*_STATES]},
            "created_at": _SECONDS,
            "updated_at": _SECONDS,
            "session_id": _maybe(_TEXT),
            "model": _maybe(_TEXT),
            "last_event": _maybe({"enum": [*RUN_EVENTS]}),
            "last_sequence": _COUNT,
            "output?": _TEXT,
            "usage?": RUN_EVENTS["run.completed"]["usage?"],
            "error?": _TEXT,
            "pending_calls": RUN_EVENTS["run.waiting_for_tools"]["calls"],
            "metadata": {"type": "object"},
            "streams": _list(_TEXT),
        }
    ),
    **{event: event_schema(event) for event in RUN_EVENTS},
    "RunEvent": {"oneOf": [_ref(event) for event in RUN_EVENTS]},
}


class Endpoint(NamedTuple):
    """One operation. `answers` are the schemas of its successes by status; text for another media type than JSON."""

    method: str
    path: str
    summary: str
    answers: Mapping[int, _Schema | str]
    #: The statuses of its own errors, besides those of `_errors`.
    errors: tuple[int, ...] = ()
    #: Schemas by place and name, such as `query limit`.
    parameters: Mapping[str, _Schema] = {}
    body: _Schema | None = None
    #: The schema of what each event of an event stream holds.
    event: _Schema | None = None
    #: No key is needed.
    open: bool = False


_CURSOR: Final = {"type": "string", "pattern": r"^[0-9]{1,15}\.[A-Za-z0-9_-]{1,128}$"}

ENDPOINTS: Final = (
    Endpoint(
        "get",
        "/wiretape/healthz",
        "Report that the process responds.",
        {200: object_schema({"alive": _FLAG})},
        open=True,
    ),
    Endpoint(
        "get",
        "/wiretape/readyz",
        "Report whether new streams are accepted.",
        {200: _ref("Readiness"), 503: _ref("Readiness")},
        open=True,
    ),
    Endpoint("get", "/wiretape/metrics", "Return the metrics for Prometheus.", {200: "text/plain"}),
    Endpoint("get", "/wiretape/openapi.json", "Return this document.", {200: {"type": "object"}}),
    Endpoint(
        "get",
        "/wiretape/streams",
        "List your streams, the latest first; with `follow=1` as NDJSON, each row whenever it changes. "
        "Of several machines, `X-Wiretape-Partial` names what a page lacks: all of the `store`, or of a `search`.",
        {200: object_schema({"streams": _list(_ref("Stream")), "next": _maybe(_TEXT)})},
        parameters={
            "query model": _TEXT,
            "query route": _TEXT,
            "query ending": {"enum": [*get_args(Ending)]},
            "query live": _SWITCH,
            "query q": _TEXT,
            "query limit": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 100},
            "query before": _CURSOR,
        },
    ),
    Endpoint(
        "get",
        "/wiretape/streams/{stream}",
        "Summarise one stream from its tape.",
        {200: _ref("StreamSummary")},
        parameters={"query whole": _SWITCH},
    ),
    Endpoint(
        "get",
        "/wiretape/streams/{stream}/events",
        "Follow the frames of one stream, each with an id to resume after.",
        {200: _SSE},
        parameters={
            "query profile": {"enum": [*get_args(Profile)]},
            "query last_event_id": _TEXT,
            "header Last-Event-ID": _TEXT,
        },
    ),
    Endpoint("get", "/wiretape/streams/{stream}/tape", "Return the tape of one stream.", {200: "application/x-ndjson"}),
    Endpoint(
        "get",
        "/wiretape/streams/{stream}/inspect",
        "Follow the records of one stream, each with its events, what the client was sent, and repairs if wanted.",
        {200: "application/x-ndjson"},
        parameters={"query from": _COUNT, "query repairs": _SWITCH},
    ),
    Endpoint(
        "get",
        "/wiretape/streams/{stream}/conversation",
        "Return the streams that tool results link with this one, in order, each with its calls.",
        {200: object_schema({"streams": _list(_ref("Turn"))})},
    ),
    Endpoint(
        "get",
        "/wiretape/diff",
        "Compare two streams by what they said and called, and how they ended.",
        {200: object_schema({"a": _maybe(_ref("Stream")), "b": _maybe(_ref("Stream")), "equal": _FLAG, "*": {}})},
        errors=(404, 413, 501),
        parameters={"query a": _TEXT, "query b": _TEXT},
    ),
    Endpoint(
        "get",
        "/wiretape/explain",
        "Return what endings, causes and repairs mean.",
        {200: object_schema({name: {"type": "object"} for name in ("endings", "causes", "followed", "repairs")})},
    ),
    Endpoint("get", "/wiretape/ui/", "Return the inspector's page.", {200: "text/html"}, open=True),
    Endpoint(
        "get",
        "/wiretape/ui/{place}",
        "Return the inspector's page, or one of its files.",
        {200: "text/html"},
        open=True,
    ),
    Endpoint(
        "get",
        "/v1/responses/{response_id}",
        "Return a response that was crossed, from its tape; one of the upstream's own from there.",
        {200: {"type": "object"}},
    ),
    Endpoint(
        "post",
        "/v1/messages/count_tokens",
        "Count the tokens of a request; estimated, with the header X-Wiretape-Estimated, if the upstream cannot.",
        {200: object_schema({"input_tokens": _COUNT, "*": {}})},
        body={"type": "object"},
    ),
    Endpoint(
        "post",
        "/v1/runs",
        "Start a run.",
        {202: object_schema({"run_id": _RUN_ID, "status": {"const": "started"}})},
        errors=(404, 409, 429),
        parameters={"header Idempotency-Key": _TEXT},
        body=_ref("RunRequest"),
    ),
    Endpoint(
        "get",
        "/v1/runs",
        "List your runs, the latest first.",
        {200: object_schema({"object": {"const": "list"}, "data": _list(_ref("Run")), "next": _maybe(_TEXT)})},
        parameters={
            "query limit": {"type": "integer", "minimum": 1, "maximum": RUNS_PAGE_MAX, "default": 20},
            "query before": _CURSOR,
        },
    ),
    Endpoint(
        "get", "/v1/runs/{run_id}", "Return the state of a run, its pending calls and its streams.", {200: _ref("Run")}
    ),
    Endpoint(
        "delete",
        "/v1/runs/{run_id}",
        "Delete a finished run and its tapes.",
        {200: object_schema({"run_id": _RUN_ID, "deleted": {"const": True}})},
        errors=(409,),
    ),
    Endpoint(
        "get",
        "/v1/runs/{run_id}/events",
        "Follow the events of a run: all so far, or those after an id, then each as it happens.",
        {200: _SSE},
        parameters={"query last_event_id": _TEXT, "header Last-Event-ID": _TEXT},
        event=_ref("RunEvent"),
    ),
    Endpoint(
        "post",
        "/v1/runs/{run_id}/tool_outputs",
        "Continue a run with the outputs of all its pending calls.",
        {202: object_schema({"run_id": _RUN_ID, "status": {"const": "running"}})},
        errors=(409,),
        body=object_schema({"tool_outputs": {**_list(_ref("ToolOutput")), "minItems": 1}, "*": {}}),
    ),
    Endpoint(
        "post",
        "/v1/runs/{run_id}/approval",
        "Answer an approval that a tool of the upstream asks for.",
        {
            200: object_schema(
                {
                    "object": {"const": "hermes.run.approval_response"},
                    "run_id": _RUN_ID,
                    "choice": _TEXT,
                    "resolved": _COUNT,
                }
            )
        },
        errors=(409, 502),
        body=object_schema(
            {
                "choice": {"enum": ["once", "session", "always", "deny", "approve", "approved", "allow"]},
                "all?": _FLAG,
                "resolve_all?": _FLAG,
                "*": {},
            }
        ),
    ),
    Endpoint(
        "post",
        "/v1/runs/{run_id}/stop",
        "Stop a run.",
        {200: object_schema({"run_id": _RUN_ID, "status": {"const": "stopping"}})},
        errors=(409, 502),
    ),
)

_ERRORS: Final = {
    400: "The request is malformed; `param` names the field or parameter.",
    401: "A key of Wiretape's own is missing or wrong.",
    403: "Pages of this origin may not send requests.",
    404: "Not found, or not visible with this key.",
    408: "The request body came too slowly.",
    409: "The state of the run does not allow it.",
    413: "The request body is too long.",
    415: "The request body is not JSON.",
    421: "This server has another name.",
    429: "Too many runs of this caller are active.",
    501: "Runs need `requests = full`; comparing needs the command line's server.",
    502: "The upstream of a relayed run did not answer.",
    503: "There is no room for the request now, or the store cannot be reached.",
}
_IN_PATHS: Final = {"place": _TEXT, "stream": _TEXT, "run_id": _RUN_ID, "response_id": _TEXT}


def document() -> dict[str, Any]:
    """Return the whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Wiretape", "version": "1", "description": _ABOUT},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": _SCHEMAS,
            "responses": {str(status): _response(what, _JSON, _ref("Error")) for status, what in _ERRORS.items()},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answers: dict[str, Any] = {
        str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(_errors(endpoint))
    }
    for status, schema in endpoint.answers.items():
        media, content = (schema, _TEXT) if isinstance(schema, str) else (_JSON, schema)
        answers[str(status)] = _response(endpoint.summary, media, content)
        if endpoint.event is not None:
            answers[str(status)]["content"][media]["x-event-schema"] = endpoint.event
    in_path = {f"path {name}": _IN_PATHS[name] for name in re.findall(r"{(\w+)}", endpoint.path)}
    parameters = [_parameter(where, schema) for where, schema in {**in_path, **endpoint.parameters}.items()]
    words = [endpoint.method, *re.findall(r"\w+", endpoint.path)]
    return {
        "operationId": "_".join(words),
        "summary": endpoint.summary,
        **({"security": []} if endpoint.open else {}),
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": {"required": True, "content": {_JSON: {"schema": endpoint.body}}}} if endpoint.body else {}),
        "responses": dict(sorted(answers.items())),
    }


def _errors(endpoint: Endpoint) -> set[int]:
    """Return the statuses of all errors: those of every endpoint, of its kind, and its own."""
    errors = {400, 403, 421, 503, *endpoint.errors}
    errors |= set() if endpoint.open else {401}
    errors |= {404} if "{" in endpoint.path else set()
    errors |= {408, 413, 415} if endpoint.body else set()
    return errors | ({501} if endpoint.path.startswith("/v1/runs") else set())


def _parameter(where: str, schema: _Schema) -> dict[str, Any]:
    place, name = where.split(" ")
    return {"in": place, "name": name, "required": place == "path", "schema": schema}


def _response(what: str, media: str, schema: _Schema) -> dict[str, Any]:
    return {"description": what, "content": {media: {"schema": schema}}}
