"""Which requests have the same key: a table of pairs, and properties of all keys."""

# ruff: noqa: S108 - nothing is written to these folders

import json
from pathlib import Path
from typing import Any

import pytest

from wiretape.replay.matching.key import IDS, LEFT_OUT, SEALED_WORDS, key_of
from wiretape.replay.normalize.volatile import loosened, settled

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(id_: str, arguments: Any = '{"city":"Rome"}') -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "type": "function", "function": function}]}


def result(id_: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


def said_by_tool(content: Any) -> dict[str, Any]:
    return chat(user("go"), called("a"), result("a", content))


def used(kind: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": [{"type": kind, "id": "a", "name": "f", **more}]}]}


def system(text: str) -> dict[str, Any]:
    return chat({"role": "system", "content": text})


def of_responses(id_: str, day: str) -> dict[str, Any]:
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": f"rs_{id_}", "encrypted_content": id_, "summary": []},
        {"type": "function_call", "id": f"fc_{id_}", "call_id": f"c{id_}", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{id_}", "output": f"at {day}"},
    ]
    return {"previous_response_id": f"resp_{id_}", "input": items}


def of_messages(id_: str, day: str, **more: Any) -> dict[str, Any]:
    said = [
        {"type": "thinking", "thinking": "hm", "signature": f"s{id_}"},
        {"type": "tool_use", "id": f"toolu_{id_}", "name": "f", "input": {"id": "x"}},
    ]
    results = [{"type": "tool_result", "tool_use_id": f"toolu_{id_}", "content": [{"type": "text", "text": day}]}]
    messages = [{"role": "assistant", "content": said}, {"role": "user", "content": results}]
    return {"system": [{"type": "text", "text": f"It is {day}."}], "messages": messages, **more}


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "default": None}}}


SAME: dict[str, tuple[str, Any, Any]] = {
    "members in any order": (CHAT, {"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1}),
    "a number in another spelling": (CHAT, chat(temperature=1), chat(temperature=1.0)),
    "null or nothing": (CHAT, chat(user("x"), stop=None), chat(user("x"))),
    "the user": (CHAT, chat(user("x"), user="u1", metadata={"run": "1"}), chat(user("x"), user="u2")),
    "a session's cache key": (RESPONSES, {"input": "x", "prompt_cache_key": "a"}, {"input": "x"}),
    "a call's id": (
        CHAT,
        chat(user("x"), called("call_1"), result("call_1", "sun")),
        chat(user("x"), called("call_2"), result("call_2", "sun")),
    ),
    "arguments written another way": (CHAT, chat(called("a", '{"x":1,"y":2}')), chat(called("a", '{"y": 2, "x": 1}'))),
    "a time in a result": (CHAT, said_by_tool("at 2026-11-18T19:59:22Z"), said_by_tool("at 2027-01-02T03:04:05.6Z")),
    "a number in a result that is a time": (
        CHAT,
        said_by_tool('{"at": 1795031244, "ok": true}'),
        said_by_tool('{"at":1800000000.25,"ok":true}'),
    ),
    "a random id in a result": (
        CHAT,
        said_by_tool("job 0b0a7c52-9c3e-4a5e-8f7d-2b1c6e5d4f3a began"),
        said_by_tool("job 7c3d1c9e-0f57-43a0-9c7a-0a6d8c5b4e21 began"),
    ),
    "a folder, a port, an address and a duration in a result": (
        CHAT,
        said_by_tool("/tmp/tmpab12cd_x/a on 127.0.0.1:54321 <object at 0x7f3a9c0012> in 0.12s"),
        said_by_tool("/tmp/tmpz_9yxw8v/a on 127.0.0.1:40001 <object at 0x7f0000ffee> in 7.01s"),
    ),
    "today in a system prompt": (
        CHAT,
        system("Today is 2026-11-18T19:59, 0b0a7c52-9c3e-4a5e-8f7d-2b1c6e5d4f3a"),
        system("Today is 2026-11-19T07:01, 7c3d1c9e-0f57-43a0-9c7a-0a6d8c5b4e21"),
    ),
    "tools in another order": (CHAT, chat(tools=[tool("a"), tool("b")]), chat(tools=[tool("b"), tool("a")])),
    "ids of Responses": (RESPONSES, of_responses("1", "2026-11-18"), of_responses("9", "2026-11-19")),
    "ids of Messages": (
        MESSAGES,
        of_messages("1", "2026-11-18"),
        of_messages("2", "2026-11-19", metadata={"user_id": "u1"}),
    ),
}

OTHER: dict[str, tuple[str, Any, Any]] = {
    "another model": (CHAT, chat(model="a"), chat(model="b")),
    "another temperature": (CHAT, chat(temperature=0), chat(temperature=0.5)),
    "streamed or not": (CHAT, chat(stream=True), chat(stream=False)),
    "another question": (CHAT, chat(user("x")), chat(user("y"))),
    "a question about another day": (CHAT, chat(user("the 2026-11-18")), chat(user("the 2026-11-19"))),
    "a question with another id in it": (
        CHAT,
        chat(user("job 0b0a7c52-9c3e-4a5e-8f7d-2b1c6e5d4f3a")),
        chat(user("job 7c3d1c9e-0f57-43a0-9c7a-0a6d8c5b4e21")),
    ),
    "messages in another order": (CHAT, chat(user("x"), user("y")), chat(user("y"), user("x"))),
    "another turn": (CHAT, chat(user("x")), chat(user("x"), {"role": "assistant", "content": ""}, user("x"))),
    "other arguments": (CHAT, chat(called("a", '{"x":1}')), chat(called("a", '{"x":2}'))),
    "arguments with a time": (CHAT, chat(called("a", '{"x":"2026-11-18"}')), chat(called("a", '{"x":"2026-11-19"}'))),
    "another result": (CHAT, said_by_tool("sun"), said_by_tool("rain")),
    "another count in a result": (CHAT, said_by_tool('{"n": 5}'), said_by_tool('{"n": 6}')),
    "results the other way round": (
        CHAT,
        chat(called("a"), called("b"), result("a", "1"), result("b", "2")),
        chat(called("a"), called("b"), result("b", "1"), result("a", "2")),
    ),
    **{
        f"in a result {one} or {other}": (
            CHAT,
            said_by_tool(f"it is {one}, done"),
            said_by_tool(f"it is {other}, done"),
        )
        for one, other in [
            ("db-test02eu", "db-prod01eu"),
            ("test_login2fa8 FAILED", "test_logout3x9 FAILED"),
            ("/tmp/invoice_march.pdf", "/tmp/invoice_april.pdf"),
            ("/tmp/a/secret.txt", "/tmp/b/public.txt"),
            ("/tmp/tmpab12cd_x/secret.txt", "/tmp/tmpab12cd_x/public.txt"),
            ("web-server01", "web-server02"),
            ("llama-3b1instruct", "llama-7b1instruct"),
            ("feature-login2fa8x", "feature-logout3x9y"),
            ("id_1", "id_2"),
            ("order-12345678X", "order-12345679X"),
            ("1234567890", "1234567891"),
            ("localhost:5432", "localhost:6379"),
            ("#0xff00ff", "#0x00ff00"),
            ("00:1a:22:33:44:55", "00:1a:22:33:44:56"),
            ("file-9fK2mQ7xAb12cD", "file-8eJ1lP6wZa01bC"),
            ("asst_9fK2mQ7xAb12cD", "asst_8eJ1lP6wZa01bC"),
        ]
    },
    "another customer in a system prompt": (
        CHAT,
        system("You act for customer cust_8842aa71bb."),
        system("You act for customer cust_1111zz99yy."),
    ),
    **{
        f"another order in {kind}": (MESSAGES, used(kind, input=one), used(kind, input=other))
        for kind, one, other in [
            ("mcp_tool_use", {"id": "order-1"}, {"id": "order-2"}),
            ("any_use", {"deeper": [{"id": "order-1"}]}, {"deeper": [{"id": "order-2"}]}),
            ("tool_use", {"signature": "order-1"}, {"signature": "order-2"}),
        ]
    },
    "another order in arguments": (CHAT, chat(called("a", {"id": "order-1"})), chat(called("a", {"id": "order-2"}))),
    **{
        f"another order in a {kind}": (
            RESPONSES,
            {"input": [{"type": kind, member: {"id": "order-1"}}]},
            {"input": [{"type": kind, member: {"id": "order-2"}}]},
        )
        for kind, member in [
            ("mcp_call", "arguments"),
            ("local_shell_call", "action"),
            ("apply_patch_call", "operation"),
        ]
    },
    "another tool": (CHAT, chat(tools=[tool("a")]), chat(tools=[tool("a"), tool("b")])),
    "another response format": (CHAT, chat(response_format={"type": "json_object"}), chat()),
    "an id at an unknown path": ("/v1/embeddings", {"id": "a"}, {"id": "b"}),
    "null at an unknown path": ("/v1/embeddings", {"user": None}, {}),
}


def key(path: str, body: Any, method: str = "POST") -> str:
    return key_of(method, path, json.dumps(body).encode())


@pytest.mark.parametrize("case", SAME)
def test_equal_requests_have_one_key(case: str) -> None:
    path, one, other = SAME[case]
    assert key(path, one) == key(path, other)
    assert loose(path, one) == loose(path, other)


@pytest.mark.parametrize("case", OTHER)
def test_other_requests_have_another_key(case: str) -> None:
    path, one, other = OTHER[case]
    assert key(path, one) != key(path, other)
    assert loose(path, one) != loose(path, other)


PATHS = {
    "a route does not count": ("/v1/models", "/local/v1/models", True),
    "the name of a test does not count": ("/v1/models", "/t/test_weather/v1/models", True),
    "an upstream's base path does not count": ("/v1/chat/completions", "/api/v1/chat/completions", True),
    "the order of the query does not count": ("/v1/x?a=1&b=2", "/v1/x?b=2&a=1", True),
    "a key in the query does not count": ("/v1/x?key=abc", "/v1/x?key=def", True),
    "only the first version ends a prefix": ("/v1/models/v2", "/v1/assistants/v2", False),
    "a doubled base URL is another path": ("/v1/chat/completions", "/v1/v1/chat/completions", False),
    "the version counts": ("/v1/models", "/v1beta/models", False),
    "the path counts": ("/v1/models", "/v1/models/a", False),
    "the query counts": ("/v1/x?limit=1", "/v1/x?limit=2", False),
}


@pytest.mark.parametrize("case", PATHS)
def test_the_path_and_the_method(case: str) -> None:
    one, other, same = PATHS[case]
    assert key_of("GET", one, b"") != key_of("DELETE", one, b"")
    assert (key_of("GET", one, b"") == key_of("get", other, b"")) is same


def parts(boundary: bytes, content: bytes = b"data") -> bytes:
    return b"--%b\r\nContent-Disposition: form-data; name=f\r\n\r\n%b\r\n--%b--\r\n" % (boundary, content, boundary)


def test_a_multipart_boundary_does_not_count() -> None:
    path = "/v1/audio/transcriptions"
    assert key_of("POST", path, parts(b"a1")) == key_of("POST", path, parts(b"WebKit77"))
    assert key_of("POST", path, parts(b"a1")) != key_of("POST", path, parts(b"a1", b"other"))
    assert key_of("POST", path, b"--a1\r\nnot parts") != key_of("POST", path, b"--b2\r\nnot parts")


def test_every_member_that_is_left_out_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/replay.md").read_text(encoding="utf-8")
    assert [name for name in (*LEFT_OUT, *IDS, *SEALED_WORDS) if f"`{name}`" not in text] == []


#: Never replaced by `settled`.
STEADY = (
    "5 files changed, 120 insertions",
    "port 8080, 12 s, version 1.2.3",
    "ratio 0.5, 16:9, line 10:22",
    "deadbeef",
    "1234567890123456789012345678901234567890"[:8],
    "call_me, get-weather, gpt-4o-mini",
    "https://example.com/a/b?c=d",
    "error_handling and self_attention layers",
    "/srv/me/project/src/main.py",
    "version 9.2.30, build 2026.11.18, 1.1795031244",
    "part-1795031244, 17950312441, 1295031244",
    "release 2.5s, 431 ms, 2026/11/18, 18 Nov 2026, November 18, 2026",
    "99:59:22, 2026-13-18, 2026-11-38, 2026-11-18-7, 0-2026-11-18",
    "localhost:8000, 127.0.0.1:32767, 10.0.0.1:54321, localhost:99999",
    "call_1, call_getWeather, call_abc123, tmpab12cd_x, /tmp/tmpfiles, /srv/tmpab12cd_x",
    "commit 1a2b3c4, 0xff00ff, 0x7f3a9c001230",
)

VOLATILE = {
    "2026-11-18T19:59:22.123+01:00": "<time>",
    "2026-11-18 19:59": "<time>",
    "Wed, 18 Nov 2026 19:59:22 GMT": "<time>",
    "Wed Nov 18 19:59:22 UTC 2026": "<time>",
    "Nov 18, 2026 7:59 PM": "<time>",
    "19:59:22": "<time>",
    "1795031244": "<time>",
    "1795031244642": "<time>",
    "1795031244.642967": "<time>",
    "done in 3.21 seconds": "done in <duration>",
    "took 431 ms": "took <duration>",
    "req_8a7b6c5d4e3f": "<id>",
    "chatcmpl-Bx92kQ7mZ1aa": "<id>",
    "9b755f2c7d46b48ab27b51c43cb622b1": "<hex>",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV": "<hex>",
    "/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/tmpab12cd_x/a.txt": "/var/folders/<folder>/T/<folder>/a.txt",
    "/tmp/tmp.Ab3dEf6hIj/a": "/tmp/<folder>/a",
    "/tmp/tmpab12cd_x.csv": "/tmp/<folder>.csv",
    "localhost:54321": "<port>",
    "<X at 0x7f3a9c001230>": "<X at <address>>",
}


#: Replaced only in a loose reading.
LOOSE = {
    "at 19:59, or 7:59 pm": "at <time>, or <time>",
    "on 18.11.2026 and 11/18/26": "on <time> and <time>",
    "20261118T195922Z report-20261118.csv": "<time> report-<time>.csv",
    "-rw-r--r-- 1 me me 12 Nov 18 19:59 a.txt": "-rw-r--r-- 1 me me 12 <time> a.txt",
    "18 November, 18-Nov-2026 and Wed 18 Nov": "<time>, <time> and <time>",
    "Wednesday": "<time>",
    "sshd[4711]: pid 4711, PID: 12, process 4711": "sshd<process>: <process>, <process>, <process>",
    "commit 1a2b3c4 on main": "commit <hash> on main",
    "release 2.5s, 431 ms": "release <duration>, <duration>",
    "2026/11/18, Wednesday, November 18, 2026, part-1795031244": "<time>, <time>, part-<time>",
    "call_1, req_8a7b6c": "<id>, <id>",
    "0x7f3a9c001230": "<address>",
    "/tmp/tmpabcdefgh/x, /tmp/build-ab12cd_x/x": "/tmp/<folder>/x, /tmp/<folder>/x",
    "/tmp/pytest-of-me/pytest-12/x": "/tmp/<folder>/x",
}


@pytest.mark.parametrize("text", LOOSE)
def test_values_that_may_be_volatile_are_replaced_loosely(text: str) -> None:
    assert settled(text) == text
    assert loosened(text) == LOOSE[text]
    assert loosened(LOOSE[text]) == LOOSE[text]


def loose(path: str, body: Any) -> str:
    return key_of("POST", path, json.dumps(body).encode(), "loose")


def _blocks(order: str) -> dict[str, Any]:
    calls: list[dict[str, Any]] = [{"type": "tool_use", "id": id_, "name": "n", "input": {}} for id_ in "ab"]
    results = [{"type": "tool_result", "tool_use_id": id_, "content": id_} for id_ in order]
    return {"messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]}


def _outputs(order: str) -> dict[str, Any]:
    calls = [{"type": "custom_tool_call", "call_id": id_, "name": "n", "input": "x"} for id_ in "ab"]
    return {"input": [*calls, *({"type": "custom_tool_call_output", "call_id": id_, "output": id_} for id_ in order)]}


#: Equal only in a loose reading.
ALIKE: dict[str, tuple[str, Any, Any]] = {
    "a time without seconds": (CHAT, said_by_tool("it is 19:59"), said_by_tool("it is 07:02")),
    "a process": (CHAT, said_by_tool('{"pid": 4711, "ok": true}'), said_by_tool('{"pid": 12, "ok": true}')),
    "a commit": (CHAT, said_by_tool("[main 1a2b3c4] fix"), said_by_tool("[main 99ffe01] fix")),
    "another id of a program": (CHAT, said_by_tool("id call_1"), said_by_tool("id call_9fK2mQ7xAb12")),
    "another duration": (CHAT, said_by_tool("release 2.5s"), said_by_tool("release 9.5s")),
    "results of one turn in another order": (
        CHAT,
        chat(called("a"), called("b"), result("a", "1"), result("b", "2"), user("x")),
        chat(called("c"), called("d"), result("d", "2"), result("c", "1"), user("x")),
    ),
    "results of Messages in another order": (MESSAGES, _blocks("ab"), _blocks("ba")),
    "results of Responses in another order": (RESPONSES, _outputs("ab"), _outputs("ba")),
}


@pytest.mark.parametrize("case", ALIKE)
def test_requests_that_are_equal_in_a_loose_reading(case: str) -> None:
    path, one, other = ALIKE[case]
    assert key(path, one) != key(path, other)
    assert loose(path, one) == loose(path, other)


@pytest.mark.parametrize("text", STEADY)
def test_steady_text_stays(text: str) -> None:
    assert settled(text) == text


@pytest.mark.parametrize("text", VOLATILE)
def test_volatile_values_are_replaced(text: str) -> None:
    assert settled(text) == VOLATILE[text]
