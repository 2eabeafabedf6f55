"""Normalise files, images and other objects; lasting names stay."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pytest

from tests.replay.made import stream
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.replay.normalize.normalize import normalise
from wiretape.replay.playback.script import Script, event_stream, json_answer


def exchange(answer: Any, body: Any = None, path: str = "/v1/files", **headers: str) -> list[Record]:
    """Return an exchange with a JSON response."""
    script = json_answer(dumps(answer))
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    records = stream(Script(status=200, headers=(*script.headers, *pairs), steps=script.steps))
    raw = dumps(body or {"model": "m"})
    keys = {**records[1].keys, "path": path}
    records[1] = records[1]._replace(raw=raw, payload=raw, value=json.loads(raw), keys=keys)
    return records


def streamed(*frames: Any) -> list[Record]:
    return stream(event_stream([b"data: %b\n\n" % dumps(frame) for frame in frames]), dialect="responses")


def answers(records: Sequence[Record]) -> list[Any]:
    values = [record.raw for record in records if record.kind == "body"]
    return [json.loads(raw) for raw in values if raw] or [record.value for record in records if record.kind == "frame"]


def normalised(*streams: list[Record]) -> list[list[Record]]:
    done = normalise(streams)
    assert normalise(done) == done, "idempotent"
    return done


ID: Final = "5fL4v5HttlejQ9kd9HzA"
#: By kind: the recorded and the normalised response.
OBJECTS: Final[Mapping[str, tuple[Any, Any]]] = MappingProxyType(
    {
        "pictures": ({"created": 1705158799, "data": [{"url": "u"}]}, {"created": 10**9, "data": [{"url": "u"}]}),
        "vectors": (
            {
                "object": "list",
                "data": [{"object": "embedding", "index": 7}],
                "id": f"embd-{ID}",
                "created": 1703981847,
            },
            {"object": "list", "data": [{"object": "embedding", "index": 7}], "id": "embd-1", "created": 10**9},
        ),
        "a file": (
            {"id": f"file-{ID}", "object": "file", "created_at": 1700598234, "bytes": 1700598234, "expires_at": None},
            {"id": "file-1", "object": "file", "created_at": 10**9, "bytes": 1700598234, "expires_at": None},
        ),
        "a batch": (
            {"id": f"batch_{ID}", "object": "batch", "in_progress_at": 1701523894, "request_counts": {"total": 3}},
            {"id": "batch_1", "object": "batch", "in_progress_at": 10**9, "request_counts": {"total": 3}},
        ),
        "a list of files": (
            {"object": "list", "data": [{"id": f"file-{ID}", "object": "file"}], "last_id": f"file-{ID}"},
            {"object": "list", "data": [{"id": "file-1", "object": "file"}], "last_id": "file-1"},
        ),
        "a vector store": (
            {"id": f"vs_{ID}", "object": "vector_store", "last_active_at": 1700446539, "usage_bytes": 0},
            {"id": "vs_1", "object": "vector_store", "last_active_at": 10**9, "usage_bytes": 0},
        ),
    }
)
#: Responses that stay.
CONTENT: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "a model": {"id": f"file-{ID}", "object": "model", "created": 1686935002},
        "models": {"object": "list", "data": [{"id": "gpt-4o-2024-05-13", "object": "model", "created": 1686935002}]},
        "models of others": {"data": [{"id": "gpt-4o-2024-05-13", "created": 1686935002}]},
        "a row of data": {"id": 1704443587, "name": "x", "created": 1704443587},
        "a name": {"id": "my-own-tool-2024", "object": "tool", "size_at": 12, "created": 17004439},
        "a name with the prefix of an id": {"id": "batch-process", "object": "workflow", "last_id": "step-by-step"},
        "metadata": {"object": "file", "metadata": {"id": f"file-{ID}", "created_at": 1704443587}},
    }
)


@pytest.mark.parametrize("kind", sorted(OBJECTS))
def test_objects_are_normalised(kind: str) -> None:
    said, sealed = OBJECTS[kind]
    [done] = normalised(exchange(said))
    assert answers(done) == [sealed]


@pytest.mark.parametrize("kind", sorted(CONTENT))
def test_lasting_names_and_content_stay(kind: str) -> None:
    [done] = normalised(exchange(CONTENT[kind]))
    assert answers(done) == [CONTENT[kind]]


def test_gemini_and_run_frames_are_normalised() -> None:
    gemini = {"candidates": [{"index": 0}], "responseId": ID, "createTime": "2026-11-11T02:33:27.054Z"}
    run = {"id": f"run_{ID}", "object": "thread.run", "created_at": 1703100479, "thread_id": f"thread_{ID}"}
    assert answers(normalised(streamed(gemini, gemini))[0]) == [
        {"candidates": [{"index": 0}], "responseId": "id-1", "createTime": "2001-09-09T01:46:40Z"}
    ] * 2  # fmt: skip
    [first, *_] = answers(normalised(streamed(run))[0])
    assert first == {"id": "run_1", "object": "thread.run", "created_at": 10**9, "thread_id": f"thread_{ID}"}
    [done] = normalised(exchange([gemini]))
    assert answers(done)[0][0]["responseId"] == "id-1"


def test_a_container_of_a_responses_item() -> None:
    item = {"id": "ci_" + ID, "container_id": "cntr_" + ID, "type": "code_interpreter_call"}
    [done] = normalised(streamed({"type": "response.output_item.added", "output_index": 0, "item": item}))
    assert answers(done)[0]["item"] == {**item, "id": "ci_1", "container_id": "id-1"}


def test_references_to_objects_are_renamed() -> None:
    file, store = f"file-{ID}", f"vs_{ID}"
    tools = [{"type": "file_search", "vector_store_ids": [store]}]
    asked = {
        "input_file_id": file,
        "tools": tools,
        "input": [{"content": [{"file_id": file}]}],
        "metadata": {"a_id": file},
    }
    done = normalised(
        exchange({"id": file, "object": "file"}),
        exchange({"id": store, "object": "vector_store"}),
        exchange({"id": f"batch_{ID}", "object": "batch", "input_file_id": file}, asked, f"/v1/files/{file}/content"),
    )
    assert answers(done[2]) == [{"id": "batch_1", "object": "batch", "input_file_id": "file-1"}]
    assert done[2][1].keys["path"] == "/v1/files/file-1/content"
    assert json.loads(done[2][1].raw or b"") == {
        "input_file_id": "file-1",
        "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}],
        "input": [{"content": [{"file_id": "file-1"}]}],
        "metadata": {"a_id": file},
    }


@pytest.mark.parametrize("by", ["path", "body"])
def test_an_object_from_an_earlier_session_keeps_its_name(by: str) -> None:
    lasting = f"asst_{ID}"
    answer = {"id": lasting, "object": "assistant"}
    path, body = (f"/v1/assistants/{lasting}", None) if by == "path" else ("/v1/assistants", {"assistant_id": lasting})
    [done, again] = normalised(exchange(answer, body, path), exchange(answer))
    assert answers(done) == answers(again) == [answer]


def test_retry_after_in_milliseconds_is_set() -> None:
    [done] = normalised(exchange({"error": {}}, retry_after_ms="4815", retry_after="7"))
    headers = next(record.keys["headers"] for record in done if record.kind == "head")
    assert ["retry-after-ms", "1"] in headers
    assert ["retry-after", "7"] in headers


#: Ids that providers made up, by prefix; and names that people gave.
MADE_UP: Final = {
    "file-": (f"file-{ID}", "file-aGVsbG8gd29ybGQgaGVsbG8g_d29y-bGQ1"),
    "batch_": ("batch_67b1f1c2d0b48190a6c4bb0e7ce8c9f2",),
    "batch-": ("batch-123e4567-e89b-12d3-a456-426614174000",),
    "embd-": ("embd-0123456789012345678901234567890a",),
    "asst_": ("asst_AbCdEfGhIjKlMnOpQrStUvWx",),
    "vs_": ("vs_1",),
    "run_": ("run_12",),
    "": (
        "batch-process", "step-by-step", "step-by-step-2024-05-13", "file-search", "file_search_v2", "run-tests2",
        "thread-safe-queue-of-everything", "run-gpt4omini", "part-of-speech", "upload-2024", "batch_2024_05", "file",
        f"profile-{ID}", "gpt-4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("prefix", MADE_UP)
def test_made_up_ids_are_renamed_and_names_stay(prefix: str) -> None:
    for name in MADE_UP[prefix]:
        [done] = normalised(exchange({"id": name, "object": "file"}))
        assert answers(done)[0]["id"] == (f"{prefix}1" if prefix else name)


@pytest.mark.parametrize(("time", "is_time"), [(1700000000.25, True), (17000000, False), (1700000000000, False)])
def test_times_are_seconds_since_1970(time: float, is_time: bool) -> None:
    [done] = normalised(exchange({"object": "file", "created_at": time}))
    assert answers(done) == [{"object": "file", "created_at": 10**9 if is_time else time}]
