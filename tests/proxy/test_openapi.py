"""The OpenAPI document has every own endpoint and no other; `make fuzz-api` compares the answers themselves."""

import re
from typing import Any

import pytest
from trio.testing import MockClock

from tests.proxy.control_cases import ME, house
from tests.proxy.store_cases import put, stream_of
from tests.support.house import answer
from tests.support.house import house as whole_house
from wiretape.events.folds.run_events import RUN_EVENTS, event_schema
from wiretape.proxy.api.openapi import ENDPOINTS, document
from wiretape.proxy.runs.api import RunsApi


async def test_document_has_every_route_and_no_other() -> None:
    async with house() as home:
        served = {
            (method.lower(), re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule))
            for rule in home.control.url_map.iter_rules()
            for method in (rule.methods or set()) - {"HEAD"}
        }
    unused: Any = None
    for which, methods in vars(RunsApi(unused, unused))["_endpoints"].items():
        served |= {(method.lower(), f"/v1/runs/{which}".rstrip("/").replace("{run}", "{run_id}")) for method in methods}
    served |= {("get", "/v1/responses/{response_id}"), ("post", "/v1/messages/count_tokens")}
    documented = {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert documented == served
    assert documented == {(method, path) for path, item in document()["paths"].items() for method in item}


async def test_document_is_served_and_names_the_media_type_of_each_answer() -> None:
    async with house() as home:
        await put(home.store, "s1", stream_of("s1", caller=ME))
        served = (await home.get("/wiretape/openapi.json")).json
        assert served == document()
        for path in (path for path in served["paths"] if path.startswith("/wiretape/")):
            answered = await home.get(path.replace("{stream}", "s1") + "?a=s1&b=s1")
            (media,) = served["paths"][path]["get"]["responses"][str(answered.status)]["content"]
            assert (answered.status, answered.headers["content-type"].partition(";")[0]) == (200, media), path


@pytest.mark.parametrize("path", [path for path in document()["paths"] if "/v1/runs" in path or "/wiretape/" in path])
async def test_every_other_method_is_a_405_for_any_content_type(autojump_clock: MockClock, path: str) -> None:
    documented = {method.upper() for method in document()["paths"][path]}
    async with whole_house(answer(200)) as home:
        place = path.replace("{run_id}", f"run_{32 * '0'}").replace("{stream}", "s1")
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - documented:
            answered = await home.ask(b"", "Content-Type: text/plain", path=place, method=method)
            allowed = answered.header(b"allow") or b""
            assert (answered.status, documented <= set(allowed.decode().split(", "))) == (405, True), method


def test_document_has_the_schema_of_every_run_event() -> None:
    schemas = document()["components"]["schemas"]
    assert {event: schemas[event] for event in RUN_EVENTS} == {event: event_schema(event) for event in RUN_EVENTS}
    content = document()["paths"]["/v1/runs/{run_id}/events"]["get"]["responses"]["200"]["content"]
    (name,) = re.findall(r"schemas/(\w+)", content["text/event-stream"]["x-event-schema"]["$ref"])
    assert [each["$ref"].rpartition("/")[2] for each in schemas[name]["oneOf"]] == [*RUN_EVENTS]


def test_every_reference_of_the_document_exists() -> None:
    components = document()["components"]
    found = re.findall(r"'#/components/(\w+)/([\w.]+)'", repr(document()))
    assert found
    assert [place for place in found if place[1] not in components[place[0]]] == []
    assert {name for kind, name in found if kind == "schemas"} == components["schemas"].keys()
