"""Clients of one dialect in front of upstreams of another one, through the whole proxy."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import Script, request_of
from tests.proxy.store_cases import Elsewhere, put
from tests.support.dialects import (
    ASKS,
    FRAMES,
    HALF,
    NAMES,
    OUTPUT,
    PATHS,
    SAID,
    WHOLE,
    Speaking,
    said,
    speaking,
    values_of,
    whole,
)
from tests.support.house import HEAD, House, Peer, answer, house
from tests.support.http import Answer
from wiretape.events.core.json_text import as_object, dumps
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.model import Key, Secret, Speaks, Target
from wiretape.proxy.limits import ELSEWHERE_LATE_S
from wiretape.proxy.store.joined import JoinedStore
from wiretape.proxy.store.memory import MemoryStore

PAIRS = [(client, upstream) for client in NAMES for upstream in NAMES]
CROSSED = [(client, upstream) for client, upstream in PAIRS if client != upstream]
ME = "Authorization: Bearer the-key-of-somebody-0001"


def speaks(word: Speaks, **more: Any) -> list[Target]:
    return [Target(name="upstream", url="http://127.0.0.1:9/v1", speaks=word, **more)]


async def ask(home: House, dialect: str, *headers: str, query: str = "", **changes: Any) -> Answer:
    return await home.ask({**ASKS[dialect], **changes}, *headers, path=PATHS[dialect] + query)


def error_in(answered: Answer, dialect: str) -> dict[str, Any]:
    """The error of an HTTP answer, whose shape must be the dialect's."""
    value = json.loads(answered.body)
    assert value.get("type") == ("error" if dialect == "messages" else None)
    assert ("code" in value["error"] and "param" in value["error"]) or dialect == "messages"
    error: dict[str, Any] = value["error"]
    return error


# -- every pair -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_answer_is_the_same_in_every_pair(
    client: str, upstream: Any, stream: bool, autojump_clock: MockClock
) -> None:
    peer = speaking(upstream)
    async with house(peer, targets=speaks(upstream)) as home:
        answered = await ask(home, client, stream=stream)
        assert answered.status == 200
        assert said(client, answered.body) == SAID
        kind = b"text/event-stream" if stream else b"application/json"
        assert answered.header(b"content-type") == kind
        assert await home.ending() == ("completed", [])
        assert peer.paths == [PATHS[upstream]]
        tape = await home.tape()
        assert tape[0].keys["dialect"] == client
        (attempt,) = (record.keys for record in tape if record.kind == "attempt")
        assert attempt.get("dialect") == (upstream if upstream != client else None)
        assert tape[1].raw == dumps({**ASKS[client], "stream": stream})
        counted = f'wiretape_streams_crossed_total{{client="{client}",upstream="{upstream}"}} 1.0\n'
        assert (counted in home.assembly.metrics.text().decode()) == (client != upstream)


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
async def test_cut_call_is_a_failure_in_every_pair(client: str, upstream: Any, autojump_clock: MockClock) -> None:
    peer = Peer(*FRAMES[upstream][: HALF[upstream]], end="fin")
    async with house(peer, targets=speaks(upstream)) as home:
        answered = await ask(home, client)
        assert (answered.status, answered.ended) == (200, "chunked")
        found = said(client, answered.body)
        assert (found.text, found.end) == ("hello", "error")
        assert [arguments for _, _, arguments in found.calls] in ([], ['{"path":'])
        assert b"write_file" in answered.body.rpartition(b"data: ")[2], "the warning names the tool"
        assert (await home.ending())[0] == "truncated"


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
async def test_cut_whole_answer_is_a_502_in_every_pair(client: str, upstream: Any, autojump_clock: MockClock) -> None:
    body = dumps(WHOLE[upstream])
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    async with house(Peer(body[:-30], head=head, end="fin"), targets=speaks(upstream)) as home:
        answered = await ask(home, client, stream=False)
        assert answered.status == 502
        assert "middle of its JSON" in error_in(answered, client)["message"]
        assert (await home.ending())[0] == "truncated"


@pytest.mark.parametrize("client", ["responses", "messages"])
@pytest.mark.parametrize("upstream", ["chat", "responses"])
async def test_whole_answer_with_a_malformed_call_is_a_502(
    client: str, upstream: Any, autojump_clock: MockClock
) -> None:
    body = dumps(WHOLE[upstream]).replace(b'{\\"path\\":\\"a\\"}', b'{\\"path\\":')
    async with house(Peer(whole(200, body), head=b"", raw=True), targets=speaks(upstream)) as home:
        answered = await ask(home, client, stream=False)
        assert answered.status == 502
        assert error_in(answered, client)["code"] == "malformed_call"


@pytest.mark.parametrize(("client", "upstream"), CROSSED)
async def test_upstream_error_has_the_shape_of_the_client(
    client: str, upstream: Any, autojump_clock: MockClock
) -> None:
    body = {"type": "error", "error": {"type": "some_error", "message": "No such thing.", "code": "c", "param": "p"}}
    async with house(answer(403, dumps(body), "x-request-id: 1"), targets=speaks(upstream)) as home:
        answered = await ask(home, client)
        assert (answered.status, answered.header(b"x-request-id")) == (403, b"1")
        assert error_in(answered, client)["message"] == "No such thing."


# -- auto -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["responses", "messages"])
@pytest.mark.parametrize("status", [404, 405, 501])
async def test_auto_crosses_to_chat_and_remembers_it(client: str, status: int, autojump_clock: MockClock) -> None:
    chat = speaking("chat")

    async def script(stream: trio.abc.Stream) -> None:
        first = await request_of(stream)
        assert PATHS[client].encode() in first
        await stream.send_all(whole(status, b'{"detail":"Not Found"}'))
        await chat(stream)

    async with house(script, chat) as home:
        assert said(client, (await ask(home, client)).body) == SAID
        kinds = await home.kinds()
        assert kinds.count("attempt") == 2
        (failed,) = (record.keys for record in await home.tape() if record.kind == "failed")
        assert failed["next"] == "crossed"
        assert await home.ending() == ("completed", [])
        assert said(client, (await ask(home, client)).body) == SAID
        assert (await home.kinds()).count("attempt") == 1
        assert chat.paths == [PATHS["chat"]] * 2


async def test_auto_stays_with_an_upstream_that_speaks_the_clients_dialect(autojump_clock: MockClock) -> None:
    peer = speaking("chat", "messages")
    async with house(peer) as home:
        assert said("messages", (await ask(home, "messages")).body) == SAID
        assert said("responses", (await ask(home, "responses")).body) == SAID
        assert said("messages", (await ask(home, "messages")).body) == SAID
        asked = [PATHS[name] for name in ("messages", "responses", "chat", "messages")]
        assert peer.paths == asked


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}',
        b'{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}',
        b'{"error":"model \\"m\\" not found, try pulling it first"}',
    ],
)
async def test_auto_does_not_cross_because_of_an_unknown_model(body: bytes, autojump_clock: MockClock) -> None:
    peer = answer(404, body)
    async with house(peer) as home:
        answered = await ask(home, "messages")
        assert (answered.status, answered.body) == (404, body)
        assert len(peer.requests) == 1


async def test_auto_is_not_remembered_where_chat_is_missing_too(autojump_clock: MockClock) -> None:
    peer = speaking()
    async with house(peer) as home:
        for _ in range(2):
            answered = await ask(home, "messages")
            assert (answered.status, error_in(answered, "messages")["type"]) == (404, "not_found_error")
        assert peer.paths == [PATHS["messages"], PATHS["chat"]] * 2


async def test_each_upstream_of_a_route_gets_requests_in_its_own_dialect(autojump_clock: MockClock) -> None:
    targets = [*speaks("messages"), Target(name="other", url="http://127.0.0.2:9/v1", speaks="responses")]
    async with house(answer(503), speaking("responses"), targets=targets, route={"attempts": 1}) as home:
        assert said("chat", (await ask(home, "chat")).body) == SAID
        attempts = [record.keys for record in await home.tape() if record.kind == "attempt"]
        assert [keys["dialect"] for keys in attempts] == ["messages", "responses"]


@pytest.mark.parametrize(("first", "second"), [("messages", "chat"), ("chat", "messages"), ("same", "responses")])
async def test_fallback_may_speak_another_dialect_than_the_first(
    first: Any, second: Any, autojump_clock: MockClock
) -> None:
    targets = [*speaks(first), Target(name="other", url="http://127.0.0.2:9/v1", speaks=second)]
    cut = Peer(head=HEAD, end="fin")
    async with house(cut, speaking(second), targets=targets, route={"attempts": 1}) as home:
        answered = await ask(home, "chat")
        assert said("chat", answered.body) == SAID
        assert await home.ending() == ("completed", [])


async def test_auto_crosses_where_nothing_is_repeated(autojump_clock: MockClock) -> None:
    peer = speaking("chat")
    async with house(peer, route={"retry": "never"}) as home:
        assert said("messages", (await ask(home, "messages")).body) == SAID


@pytest.mark.parametrize("word", ["same", "auto"])
async def test_same_and_transparent_never_cross(word: Any, autojump_clock: MockClock) -> None:
    settings = Settings(profile="transparent") if word == "auto" else None
    peer = speaking("chat")
    async with house(peer, targets=speaks(word), settings=settings) as home:
        answered = await ask(home, "messages")
        assert (answered.status, peer.paths) == (404, [PATHS["messages"]])


# -- the request ------------------------------------------------------------------------------------------------------


def headers_of(peer: Speaking, at: int = -1) -> dict[str, str]:
    lines = peer.requests[at][0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


async def test_key_and_headers_move_to_the_dialect_of_the_upstream(autojump_clock: MockClock) -> None:
    peer = speaking("chat")
    own = ("anthropic-version: 2023-06-01", "anthropic-beta: a,b", "x-app: cli", "x-api-key: the-key-0001", "x-tag: 1")
    async with house(peer, targets=speaks("chat")) as home:
        await ask(home, "messages", *own, query="?beta=true&tag=1")
        assert peer.paths == [PATHS["chat"] + "?tag=1"]
        sent = headers_of(peer)
        assert sent["authorization"] == "Bearer the-key-0001"
        assert sent["x-tag"] == "1"
        assert not {"x-api-key", "anthropic-version", "anthropic-beta", "x-app"} & sent.keys()
        await ask(home, "responses", ME, "originator: codex_exec", "session-id: 1", "x-codex-window-id: 2")
        sent = headers_of(peer)
        assert sent["authorization"] == ME.partition(": ")[2]
        assert not {"originator", "session-id", "x-codex-window-id"} & sent.keys()


async def test_messages_upstream_gets_its_key_header_and_version(autojump_clock: MockClock) -> None:
    peer = speaking("messages")
    async with house(peer, targets=speaks("messages")) as home:
        await ask(home, "chat", ME)
        sent = headers_of(peer)
        assert (sent["x-api-key"], sent["anthropic-version"]) == (ME.rpartition(" ")[2], "2023-06-01")
        assert "authorization" not in sent


async def test_configured_key_replaces_the_callers(autojump_clock: MockClock) -> None:
    peer = speaking("messages")
    async with house(peer, targets=speaks("messages", key=Secret("k" * 20), key_header="x-api-key")) as home:
        await ask(home, "chat", ME)
        assert headers_of(peer)["x-api-key"] == "k" * 20


@pytest.mark.parametrize("header", ["Authorization: Bearer ", "x-api-key: "])
async def test_own_key_is_accepted_in_both_headers(header: str, autojump_clock: MockClock) -> None:
    key, peer = "wiretape-key-of-somebody", speaking("chat")
    async with house(peer, targets=speaks("chat"), config={"keys": (Key("me", Secret(key)),)}) as home:
        answered = await ask(home, "messages", header + key)
        assert said("messages", answered.body) == SAID
        assert key not in str(headers_of(peer))
        refused = await ask(home, "messages", header + "another")
        assert (refused.status, error_in(refused, "messages")["type"]) == (401, "authentication_error")


async def test_usage_is_requested_until_an_upstream_refuses_it(autojump_clock: MockClock) -> None:
    peer = speaking("chat", refuses_usage=True)
    async with house(peer, targets=speaks("chat")) as home:
        for _ in range(2):
            assert said("messages", (await ask(home, "messages")).body) == SAID
        assert [value.get("stream_options") for _, _, value in peer.requests] == [{"include_usage": True}, None, None]
        assert await home.ending() == ("completed", [])


async def test_models_are_renamed_by_the_first_pattern_that_fits(autojump_clock: MockClock) -> None:
    peer, models = speaking("chat", "messages"), (("claude-*", "qwen"), ("*", "other"))
    async with house(peer, targets=speaks("chat"), route={"models": models}) as home:
        answered = await ask(home, "messages", model="claude-9")
        assert values_of(answered.body)[0]["message"]["model"] == "m", "what the upstream says"
        await ask(home, "chat", model="x")
        assert [value["model"] for _, _, value in peer.requests] == ["qwen", "other"]
        (attempt,) = (record.keys for record in await home.tape() if record.kind == "attempt")
        assert attempt["model"] == "other"
        row = (await home.tape())[1]
        assert row.keys["facts"]["model"] == "x"


async def test_a_request_that_needs_no_change_passes_byte_for_byte(autojump_clock: MockClock) -> None:
    peer = speaking(*NAMES)
    async with house(peer) as home:
        for dialect in NAMES:
            body = json.dumps(ASKS[dialect], indent=2).encode()
            await home.ask(body, path=PATHS[dialect])
            assert peer.requests[-1][1] == body


async def test_envelopes_of_ours_do_not_reach_a_native_upstream(autojump_clock: MockClock) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "wt1.e30="}
    history = [{"role": "assistant", "content": [thought, {"type": "text", "text": "a"}]}]
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "wt1.e30="}
    peer = speaking(*NAMES)
    async with house(peer) as home:
        await ask(home, "messages", messages=[*ASKS["messages"]["messages"], *history])
        assert peer.requests[-1][2]["messages"][1]["content"] == [{"type": "text", "text": "a"}]
        await ask(home, "responses", input=[{"role": "user", "content": "hi"}, item])
        assert peer.requests[-1][2]["input"] == [{"role": "user", "content": "hi"}]
        ours, theirs = ({"type": "reasoning.encrypted", "data": data} for data in ("wt1.e30=", "x"))
        answer = {"role": "assistant", "content": "a", "reasoning_details": [ours, theirs]}
        await ask(home, "chat", messages=[*ASKS["chat"]["messages"], answer])
        assert peer.requests[-1][2]["messages"][-1]["reasoning_details"] == [theirs]


async def test_what_a_request_loses_is_in_a_header_and_on_the_tape(autojump_clock: MockClock) -> None:
    async with house(speaking("chat"), targets=speaks("chat")) as home:
        tools = [*ASKS["responses"]["tools"], {"type": "web_search"}]
        answered = await ask(home, "responses", tools=tools)
        lost = (answered.header(b"x-wiretape-lost") or b"").decode()
        assert lost
        (attempt,) = (record.keys for record in await home.tape() if record.kind == "attempt")
        assert attempt["crossing"]["lost"] == lost.split(", ")
        assert (await ask(home, "responses")).header(b"x-wiretape-lost") is None


async def test_hashed_requests_leave_no_echo_on_the_tape(autojump_clock: MockClock) -> None:
    async with house(speaking("chat"), targets=speaks("chat"), config={"requests": "hash"}) as home:
        answered = await ask(home, "responses", instructions="a secret of mine")
        assert said("responses", answered.body) == SAID
        assert "a secret of mine" not in str(await home.tape())


@pytest.mark.parametrize(
    ("dialect", "changes", "param"),
    [
        ("responses", {"background": True}, "background"),
        ("responses", {"strange": 1}, "strange"),
        ("responses", {"input": [{"type": "strange"}]}, "input[0].type"),
        ("responses", {"tools": 0}, "tools"),
        ("responses", {"previous_response_id": 5}, "previous_response_id"),
        ("chat", {"n": 2}, "n"),
        ("messages", {"strange": 1}, "strange"),
        ("messages", {"messages": 1}, "messages"),
    ],
)
async def test_what_cannot_cross_is_a_400_that_names_the_field(
    dialect: str, changes: Mapping[str, Any], param: str, autojump_clock: MockClock
) -> None:
    upstream: Any = "messages" if dialect == "chat" else "chat"
    peer = speaking(upstream)
    async with house(peer, targets=speaks(upstream)) as home:
        answered = await ask(home, dialect, **changes)
        error = error_in(answered, dialect)
        assert (answered.status, error["type"], peer.requests) == (400, "invalid_request_error", [])
        assert error["param"].startswith(param.partition(".")[0])
        assert (await home.ending())[0] == "refused"
        assert error["message"]


async def test_malformed_bodies_are_refused_in_the_shape_of_the_client(autojump_clock: MockClock) -> None:
    async with house() as home:
        for dialect in NAMES:
            answered = await home.ask(b"{", path=PATHS[dialect])
            assert (answered.status, error_in(answered, dialect)["code"]) == (400, "invalid_json")
            plain = await home.ask(b"{}", "Content-Type: text/plain", path=PATHS[dialect])
            assert plain.status == 415
            error_in(plain, dialect)
        assert not home.streams


#: What each client sends after the answer: the answer, and the result of its call.
RESULTS: Mapping[str, list[Any]] = {
    "chat": [
        {"role": "user", "content": "hi"},
        {**WHOLE["chat"]["choices"][0]["message"], "role": "assistant"},
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ],
    "responses": [
        {"role": "user", "content": "hi"},
        *OUTPUT,
        {"type": "function_call_output", "call_id": "call_1", "output": "done"},
    ],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": WHOLE["messages"]["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "done"}]},
    ],
}


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
async def test_result_is_linked_to_its_call_in_every_pair(
    client: str, upstream: Any, autojump_clock: MockClock
) -> None:
    member = "input" if client == "responses" else "messages"
    async with house(speaking(upstream), targets=speaks(upstream)) as home:
        await ask(home, client, ME)
        await home.settled()
        await trio.sleep(2)
        answered = await home.ask({**ASKS[client], member: RESULTS[client]}, ME, path=PATHS[client])
        (card,) = [value for value in map(as_object, values_of(answered.body)) if "duration_ms" in value]
        assert (card["status"], card["tool"], card["output"]) == ("completed", "write_file", "done")
        assert 2_000 <= card["duration_ms"] < 2_100
        await home.settled()
        (results,) = (record.keys for record in await home.tape() if record.kind == "results")
        assert results["results"][0]["stream"] == home.streams[0]


# -- endpoints --------------------------------------------------------------------------------------------------------


async def test_tokens_are_counted_by_the_upstream_if_it_can(autojump_clock: MockClock) -> None:
    counted = b'{"input_tokens": 17}'
    asked: list[bytes] = []

    async def counts(stream: trio.abc.Stream) -> None:
        while request := await request_of(stream):
            asked.append(request)
            await stream.send_all(whole(200, counted))

    async with house(counts, route={"models": (("m", "other"),)}) as home:
        answered = await home.ask(ASKS["messages"], path="/v1/messages/count_tokens")
        assert (answered.status, answered.body) == (200, counted)
        assert answered.header(b"x-wiretape-estimated") is None
        assert b'"model":"other"' in asked[0]


async def test_tokens_are_counted_again_after_a_lost_connection(autojump_clock: MockClock) -> None:
    scripts = [Peer(head=b"", end="rst"), Peer(whole(200, b'{"input_tokens": 17}'), head=b"", raw=True)]
    async with house(*scripts) as home:
        first, second = [await home.ask(ASKS["messages"], path="/v1/messages/count_tokens") for _ in range(2)]
        assert (first.header(b"x-wiretape-estimated"), second.body) == (b"true", b'{"input_tokens": 17}')


async def test_unknown_model_is_not_counted_by_estimate(autojump_clock: MockClock) -> None:
    body = b'{"type":"error","error":{"type":"not_found_error","message":"model: m"}}'
    async with house(answer(404, body)) as home:
        answered = await home.ask(ASKS["messages"], path="/v1/messages/count_tokens")
        assert (answered.status, answered.body, answered.header(b"x-wiretape-estimated")) == (404, body, None)


async def test_envelopes_of_ours_are_not_counted(autojump_clock: MockClock) -> None:
    peer = answer(200, b'{"input_tokens": 17}')
    sealed = {"type": "thinking", "thinking": "hm", "signature": "wt1.e30="}
    said = [{"role": "assistant", "content": [sealed, {"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]
    async with house(peer) as home:
        await home.ask({**ASKS["messages"], "messages": said}, path="/v1/messages/count_tokens")
        assert b"wt1." not in peer.requests[0]
        assert b'"text":"a"' in peer.requests[0]


@pytest.mark.parametrize("script", [speaking("chat"), answer(404), answer(200, b"<p>Hello</p>", kind="text/html")])
async def test_tokens_are_estimated_where_the_upstream_counts_none(script: Script, autojump_clock: MockClock) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}}
    text = {"type": "text", "text": "word " * 400}
    async with house(script) as home:
        for _ in range(2):
            asked = {**ASKS["messages"], "messages": [{"role": "user", "content": [text, image]}]}
            answered = await home.ask(asked, path="/v1/messages/count_tokens?beta=true")
            assert answered.header(b"x-wiretape-estimated") == b"true"
            assert 2_000 < json.loads(answered.body)["input_tokens"] < 2_500
        assert len(home.upstream.opened) <= 1, "it is asked once"


async def test_response_is_continued_from_tape(autojump_clock: MockClock) -> None:
    peer = speaking("chat")
    async with house(peer, targets=speaks("chat")) as home:
        first = values_of((await ask(home, "responses", ME, instructions="be brief")).body)[-1]["response"]
        result = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
        second = await ask(home, "responses", ME, previous_response_id=first["id"], input=[result], stream=False)
        third = json.loads(second.body)["id"]
        await ask(home, "responses", ME, previous_response_id=third, input="more", instructions="be kind")
        messages = peer.requests[-1][2]["messages"]
        roles = [message["role"] for message in messages]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
        assert [messages[at]["content"] for at in (0, 1, 3, 5)] == ["be kind", "hi", "done", "more"]


async def test_response_of_another_process_is_continued_once_its_end_is_known(autojump_clock: MockClock) -> None:
    async with house(speaking("chat"), targets=speaks("chat")) as home:
        first = values_of((await ask(home, "responses", ME)).body)[-1]["response"]["id"]
        tape, ids = await home.tape(), home.streams
    others, peer = Elsewhere(), speaking("chat")

    async def ship() -> None:
        await trio.sleep(ELSEWHERE_LATE_S / 2)
        await put(others, ids[0], [tape])

    async with house(peer, targets=speaks("chat"), store=JoinedStore(MemoryStore(), others), ids=ids) as home:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ship)
            await ask(home, "responses", ME, previous_response_id=first, input="more")
        assert [message["content"] for message in peer.requests[-1][2]["messages"]][-1] == "more"
        assert len(peer.requests[-1][2]["messages"]) == 3


@pytest.mark.parametrize("which", ["here, of another caller", "elsewhere", "nowhere"])
async def test_response_is_not_said_to_be_unknown_while_others_cannot_be_asked(
    autojump_clock: MockClock, which: str
) -> None:
    async with house(speaking("chat"), targets=speaks("chat")) as home:
        first = values_of((await ask(home, "responses", ME)).body)[-1]["response"]["id"]
        tape, ids = await home.tape(), home.streams
    own, others = MemoryStore(), Elsewhere()
    if which != "nowhere":
        await put(own if which.startswith("here") else others, ids[0], [tape])
    others.why = "no server"
    caller = "Authorization: Bearer another" if which.startswith("here") else ME
    async with house(speaking("chat"), targets=speaks("chat"), store=JoinedStore(own, others), check=False) as home:
        answered = await ask(home, "responses", caller, previous_response_id=first, input="more")
        assert (answered.status, error_in(answered, "responses")["code"]) == (503, "store_unreachable")


@pytest.mark.parametrize("why", ["unknown", "another caller", "not stored", "hashed"])
async def test_response_that_may_not_be_continued_is_refused(why: str, autojump_clock: MockClock) -> None:
    config = {"requests": "hash"} if why == "hashed" else None
    async with house(speaking("chat"), targets=speaks("chat"), config=config) as home:
        stored: dict[str, Any] = {"store": False} if why == "not stored" else {}
        first = values_of((await ask(home, "responses", ME, **stored)).body)[-1]["response"]["id"]
        before = first if why != "unknown" else "resp_123"
        caller = "Authorization: Bearer another" if why == "another caller" else ME
        answered = await ask(home, "responses", caller, previous_response_id=before)
        error = error_in(answered, "responses")
        assert (answered.status, error["code"]) == (400, "previous_response_not_found")
        assert error["param"] == "previous_response_id"


async def test_response_is_read_again_by_its_caller(autojump_clock: MockClock) -> None:
    async with house(speaking("chat"), targets=speaks("chat")) as home:
        for stream in (True, False):
            body = (await ask(home, "responses", ME, stream=stream)).body
            value = values_of(body)[-1]["response"] if stream else json.loads(body)
            path = f"/v1/responses/{value['id']}"
            answered = await home.ask(b"", ME, path=path, method="GET")
            assert (answered.status, json.loads(answered.body)) == (200, value)
            for refused in (
                await home.ask(b"", path=path, method="GET"),
                await home.ask(b"", ME, path="/v1/responses/resp_1", method="GET"),
            ):
                assert (refused.status, error_in(refused, "responses")["code"]) == (404, "response_not_found")
        hidden = values_of((await ask(home, "responses", ME, store=False)).body)[-1]["response"]["id"]
        assert (await home.ask(b"", ME, path=f"/v1/responses/{hidden}", method="GET")).status == 404


async def test_responses_of_an_upstream_are_read_there(autojump_clock: MockClock) -> None:
    peer = answer(200, b'{"id":"resp_1"}')
    async with house(peer) as home:
        answered = await home.ask(b"", path="/v1/responses/resp_1", method="GET")
        assert (answered.status, answered.body) == (200, b'{"id":"resp_1"}')
        assert peer.requests[0].startswith(b"GET /v1/responses/resp_1 ")


# -- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["responses", "messages"])
async def test_silence_of_twenty_seconds_brings_typed_keepalives(client: str, autojump_clock: MockClock) -> None:
    async with house(Peer(*FRAMES["chat"], before_s=20), targets=speaks("chat"), route={"keepalive_s": 5}) as home:
        answered = await ask(home, client)
        assert said(client, answered.body) == SAID
        kind = {"responses": "keepalive", "messages": "ping"}[client]
        waited = [value for value in values_of(answered.body) if value["type"] == kind and "tool" not in value]
        assert len(waited) >= 3
        if client == "responses":
            numbers = [value["sequence_number"] for value in values_of(answered.body)]
            assert numbers == list(range(len(numbers)))
        assert await home.ending() == ("completed", [])


async def test_turn_of_a_run_crosses_too(autojump_clock: MockClock) -> None:
    peer = speaking("messages")
    async with house(peer, targets=speaks("messages")) as home:
        started = await home.ask({"model": "m", "input": "hi", "tools": ASKS["chat"]["tools"]}, ME, path="/v1/runs")
        run = json.loads(started.body)["run_id"]
        await home.settled()
        value = json.loads((await home.ask(b"", ME, path=f"/v1/runs/{run}", method="GET")).body)
        assert value["status"] == "waiting_for_tools"
        assert [call["tool"] for call in value["pending_calls"]] == ["write_file"]
        outputs = {"tool_outputs": [{"call_id": value["pending_calls"][0]["call_id"], "output": "ok"}]}
        assert (await home.ask(outputs, ME, path=f"/v1/runs/{run}/tool_outputs")).status == 202
        await home.settled()
        assert peer.paths == [PATHS["messages"]] * 2
        assert peer.requests[-1][2]["messages"][-1]["content"][0]["type"] == "tool_result"


async def test_crossed_stream_carries_no_more_than_its_tape_says(autojump_clock: MockClock) -> None:
    """`hash` and `full` emit the same but for what the request echoes."""
    bodies: list[bytes] = []
    for requests in ("full", "hash"):
        async with house(speaking("chat"), targets=speaks("chat"), config={"requests": requests}) as home:
            bodies.append((await ask(home, "messages")).body)
    assert bodies[0] == bodies[1]
