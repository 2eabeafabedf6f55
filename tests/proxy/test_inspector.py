"""The inspector's endpoints: the page, the feed, the list as it changes, the filter language, the operator token."""

import json
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.control_cases import KEY, ME, OPERATOR_TOKEN, OTHER, House, house
from tests.proxy.store_cases import CREATED, flat, opened_files, put, stream_of
from tests.support.house import DONE, Peer, finish, text
from tests.support.house import call as piece
from tests.support.house import house as whole_house
from wiretape.events.core.json_text import joined_surrogates, parse
from wiretape.events.emit import Summariser
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage
from wiretape.proxy.api.streams import summary_json
from wiretape.proxy.config.urls import UrlError, checked
from wiretape.proxy.inspector.feed import ALIVE, Inspector
from wiretape.proxy.inspector.marks import PAIRS_MAX, marks
from wiretape.proxy.limits import FOLLOW_KEEPALIVE_S, INSPECTED_BYTES_MAX
from wiretape.proxy.security.access import Keys, operator_token
from wiretape.proxy.store.catalogue import peek
from wiretape.proxy.store.catalogue_row import StreamRow, digest
from wiretape.proxy.store.query import QueryError, parse_query
from wiretape.replay.sealed.files import load

FIXTURES = sorted((Path(__file__).parents[2] / "fixtures").glob("[!sfr]*/*.tape"))


def lines(body: bytes) -> list[dict[str, Any]]:
    return [parse(line) for line in body.splitlines()]


# -- the page ---------------------------------------------------------------------------------------------------------

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


async def test_page_is_public_and_every_answer_has_the_strict_headers() -> None:
    async with house(keyed=True) as home:
        index = await home.get("/wiretape/ui/", key="")
        script = index.body.decode().partition('type="module" src="')[2].partition('"')[0]
        answers = {place: await home.get(place, key="") for place in ("/wiretape/ui/s/x", script, script + "x")}
        assert (await home.get(script, key="", method="HEAD")).body == b""
        refused = [
            await home.get("/wiretape/ui/", key="", method="POST"),
            await home.get("/wiretape/ui/", origin="http://x"),
        ]
    assert [(each.status, each.headers["cache-control"]) for each in answers.values()] == [
        (200, "no-cache"),
        (200, "public, max-age=31536000, immutable"),
        (404, "no-store"),
    ]
    assert answers["/wiretape/ui/s/x"].body == index.body
    assert answers[script].headers["content-type"].startswith("text/javascript")
    for answered in (index, *answers.values(), *refused):
        assert answered.headers["content-security-policy"] == POLICY
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.headers["referrer-policy"] == "no-referrer"
        assert answered.headers["cross-origin-opener-policy"] == "same-origin"
        assert answered.headers["cross-origin-resource-policy"] == "same-origin"


# -- the feed ---------------------------------------------------------------------------------------------------------


def told(feed: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything that the page counts, from the lines of the feed alone."""
    said: dict[str, Any] = {"texts": {}, "calls": {}, "repairs": Counter(), "sent": b"", "damage": []}
    for line in feed:
        if line["k"] == "attempt":
            said |= {"texts": {}, "calls": {}}
        for event in line.get("events", ()):
            if event["type"] in ("TextDelta", "ReasoningDelta", "RefusalDelta"):
                place = event["choice"], event["type"]
                said["texts"][place] = said["texts"].get(place, "") + event["text"]
        for move in line.get("moves", ()):
            said["calls"][move["choice"], move["call"]] = move["id"], move["name"], move["state"]
        said["repairs"].update(repair["repair"] for repair in line.get("repairs", ()))
    return said


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_number_of_the_feed_is_that_of_show(path: Path) -> None:
    for records in load(path).streams:
        inspector = Inspector(repairs=True)
        feed = [parse(inspector.line(record)) for record in records]
        shown = summary_json("s", Summariser().feed(*records), live=False, whole=True)
        said = told(feed)
        answers: list[dict[str, Any]] = shown["message"]["answers"] if shown["message"] else []
        texts = {
            (answer["index"], f"{name.capitalize()}Delta"): answer[name]
            for answer in answers
            for name in ("text", "reasoning", "refusal")
            if answer[name]
        }
        assert {place: joined_surrogates(text) for place, text in said["texts"].items() if text} == texts
        assert Counter(said["calls"].values()) == Counter(
            (call["id"], call["name"], call["state"]) for call in shown["tools"]
        )
        assert dict(said["repairs"]) == shown["repairs"]
        assert (len(feed), feed[-1]["t"]) == (shown["records"], shown["timing"]["duration_us"])
        assert len([line for line in feed if line["k"] == "attempt"]) == len(shown["attempts"])
        assert [line.get("keys", {}).get("ending") for line in feed][-1] == shown["ending"]
        plain = Inspector(repairs=False)
        assert [parse(plain.line(record)) for record in records] == [
            {name: value for name, value in line.items() if name not in ("repairs", "marks")} for line in feed
        ]


def test_line_says_what_came_what_it_means_and_what_was_sent() -> None:
    inspector = Inspector(repairs=True)
    first, *_, last = [parse(inspector.line(record)) for batch in stream_of("s", reads=1) for record in batch]
    assert (first["n"], first["k"], first["keys"]["dialect"]) == (0, "open", "chat")
    assert (last["k"], last["events"]) == (
        "end",
        [{"type": "Ended", "ending": "completed", "cause": "eof", "flags": []}],
    )
    inspector = Inspector(repairs=True)
    line = [parse(inspector.line(record)) for batch in stream_of("s", reads=1)[:2] for record in batch][-1]
    assert line["in"].startswith('data: {"id"')
    assert line["bytes"] == len(line["in"])
    assert [event["type"] for event in line["events"]] == ["ResponseStarted", "TextDelta"]
    assert line["repairs"] == [
        {
            "repair": "role_missing",
            "path": ["choices", 0, "delta"],
            "key": "role",
            "after": "assistant",
            "about": "Add the role `assistant` to the first chunk of a choice",
        }
    ]
    ((begin, end),) = line["marks"]["out"]
    assert (line["out"][0][begin:end], line["marks"]["in"]) == ('"role":"assistant",', [])


def test_bytes_of_a_record_are_bounded_and_may_be_anything() -> None:
    inspector = Inspector(repairs=False)
    long = parse(inspector.line(Record(0, 0, "body", raw=b"x" * (INSPECTED_BYTES_MAX - 1) + "é".encode())))
    assert (long["bytes"], long["more"], len(long["in"])) == (INSPECTED_BYTES_MAX + 1, 1, INSPECTED_BYTES_MAX - 1)
    assert parse(inspector.line(Record(1, 0, "body", raw=b"\xff")))["in64"] == "/w=="


@pytest.mark.parametrize(
    ("came", "sent", "marked"),
    [
        ('{"a":1,"b":2}', '{"a":1,"b":3}', {"in": [[11, 12]], "out": [[11, 12]]}),
        ('{"x":"stop","y":null}', '{"x":"tool_calls","y":1}', {"in": [[5, 11], [16, 20]], "out": [[5, 17], [22, 23]]}),
        ("😀 a", "😀 b", {"in": [[3, 4]], "out": [[3, 4]]}),
        ("same", "same", {"in": [], "out": []}),
        ("", "new", {"in": [], "out": [[0, 3]]}),
    ],
)
def test_marks_are_the_parts_that_differ(came: str, sent: str, marked: dict[str, Any]) -> None:
    assert marks(came, [sent]) == marked


@pytest.mark.parametrize(
    ("came", "sent"), [("{" * 499, "{}" * 249), ('"' * 9_000, '"' * 9_001 + "x"), ("ab " * 99, "ba " * 99)]
)
def test_no_text_takes_long_to_compare(came: str, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is open with repairs may not delay the streams: beyond a bound one range holds all differences."""
    compared: list[int] = []

    class Counted(SequenceMatcher[str]):
        def set_seqs(self, a: Sequence[str], b: Sequence[str]) -> None:
            counts = Counter(b)
            compared.append(sum(counts[token] for token in a))
            super().set_seqs(a, b)

    monkeypatch.setattr("wiretape.proxy.inspector.marks.SequenceMatcher", Counted)
    found = marks(came, [sent])
    assert [pairs for pairs in compared if pairs > PAIRS_MAX] == []
    assert [len(ranges) <= 1 for ranges in found.values()] == [True, True]


async def test_feed_follows_a_live_stream_and_is_kept_alive(autojump_clock: MockClock) -> None:
    async with house() as home:
        *begun, last = stream_of("s1", caller=ME)
        await put(home.store, "s1", begun)
        home.runs("s1")
        async with home.asking("/wiretape/streams/s1/inspect?from=3") as client:

            async def end() -> None:
                await trio.sleep(FOLLOW_KEEPALIVE_S + 1)
                await home.store.append("s1", last)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(end)
                answered = await client.response()
        found = lines(answered.body)
    assert (answered.status, found[0]["n"], found[-1]["k"]) == (200, 3, "end")
    assert found.count(parse(ALIVE)) == 1


async def test_parameters_that_are_not_understood_are_refused() -> None:
    async with house() as home:
        await put(home.store, "s1", stream_of("s1", caller=ME))
        for query in ("s1/inspect?from=abc", "s1/inspect?from=1.5", "?follow=1&q=live:yes"):
            answered = await home.get(f"/wiretape/streams/{query}".replace("/?", "?"))
            assert (answered.status, answered.json["error"]["code"]) == (400, "invalid_parameter")


async def test_feed_of_a_damaged_tape_ends_with_the_damage(tmp_path: Path) -> None:
    async with opened_files(tmp_path) as store:
        await put(store, "s1", stream_of("s1", caller=ME))
    tape = tmp_path / "2026-11-18" / "s1.tape"
    content = tape.read_bytes().splitlines(keepends=True)
    tape.write_bytes(b"".join([*content[:2], content[2].replace(b"word", b"w0rd"), *content[3:]]))
    async with opened_files(tmp_path) as store:
        answered = await House(store).get("/wiretape/streams/s1/inspect")
    *records, damage = lines(answered.body)
    assert [line["n"] for line in records] == [0, 1, *range(3, len(content))]
    at = len(b"".join(content[:2]))
    faults = [(at, "checksum does not match"), (at + len(content[2]), "records 2 to 2 are missing")]
    assert damage == {"damage": [Damage(*fault)._asdict() for fault in faults]}


# -- rows -------------------------------------------------------------------------------------------------------------


async def test_list_follows_streams_from_their_beginning_to_their_end(autojump_clock: MockClock) -> None:
    upstream = Peer(piece("{", "write_file"), text("hi"), every_s=1.0, end="fin")
    rows: list[dict[str, Any]] = []
    async with whole_house(upstream) as home, trio.open_nursery() as nursery:

        async def follow() -> None:
            client = await home.connect()
            await client.send(b"GET /wiretape/streams?follow=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            data = b""
            while b'"ending":"truncated"' not in data:
                data += await client.stream.receive_some()
            found = data[data.index(b"\r\n\r\n") :].split(b"\r\n")
            rows.extend(parse(line) for part in found for line in part.splitlines() if line.startswith(b'{"id"'))
            client.close()

        nursery.start_soon(follow)
        await home.ask()
        await home.settled()
    assert {row["id"] for row in rows} == {home.streams[0]}
    shown = [(row["live"], row["ending"], bool(row["first_content_us"])) for row in rows]
    assert shown == [(True, None, False), (True, None, True), (False, "truncated", True)]
    last = rows[-1]
    assert (last["tools"], last["lost"], last["status"]) == ([{"name": "write_file", "state": "dropped"}], 1, 200)
    assert (last["attempts"], last["path"]) == (1, "/v1/chat/completions")


def test_tape_that_was_read_completes_its_row_with_the_numbers_of_show(catalogued: Path) -> None:
    (row,) = peek(catalogued, lambda rows: rows.page(parse_query("tool:look_up", NOW).which, 10)) or []
    summarised = Summariser().feed(*flat(stream_of("b", call_id="call_1")))
    shown = summary_json("b", summarised, live=False)
    assert (row.silence_us, row.repairs) == (shown["timing"]["longest_silence_us"], shown["repairs"])
    assert row.spark is not None
    assert (len(row.spark), sum(row.spark)) == (40, shown["received"]["bytes"])


NOW = CREATED + 3_600.0


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", "abc"),
        ("model:GPT", "a"),
        ("tool:look_up", "b"),
        ("tool:look_up state:running", "b"),
        ("tool:look_up state:dropped", ""),
        ("state:running", "b"),
        ("repair:role_missing", "abc"),
        ("repair:role", ""),
        ("ending:completed dialect:chat", "abc"),
        ("ending:truncated", ""),
        ("route:r", "c"),
        ("lost:no", "abc"),
        ("lost:yes", ""),
        ("gap:>83ms", "abc"),
        ("gap:<10ms", ""),
        ("gap:>999999999d", ""),
        ("since:90m", "abc"),
        ("since:30m", ""),
        ("until:30m", "abc"),
        ("run:run_1", "c"),
        ('"word 0 word 1"', "abc"),
        ('"word 1 word 0"', ""),
        ('words "zebra"', ""),
        ("look_up route:default", "b"),
    ],
)
async def test_filter_means_the_same_in_sql_and_for_a_row(catalogued: Path, query: str, found: str) -> None:
    which, _ = parse_query(query, NOW)
    rows = peek(catalogued, lambda rows: rows.page(which, 10))
    assert sorted(row.stream for row in rows or ()) == sorted(found)
    every = peek(catalogued, lambda rows: rows.page(parse_query("", NOW).which, 10)) or []
    if not which.text:
        assert sorted(row.stream for row in every if which.admits(row)) == sorted(found)


@pytest.fixture(scope="module")
def catalogued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with three streams whose tapes were read."""
    root = tmp_path_factory.mktemp("catalogued")

    async def fill() -> None:
        async with opened_files(root, search=True) as store:
            await put(store, "a", stream_of("a", model="gpt-4o"))
            await put(store, "b", stream_of("b", call_id="call_1"))
            await put(store, "c", stream_of("c", route="r", run="run_1"))
            read, every = list[str](), trio.Event()

            def on_read(row: StreamRow) -> None:
                read.append(row.stream)
                if len(read) == 3:
                    every.set()

            store.on_read = on_read
            with trio.fail_after(30):
                await every.wait()

    trio.run(fill)
    return root


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("modle:x", "did you mean model:?"),
        ("http://x", 'Put words to search for in quotes: "http:..."'),
        ("ending:done", "must be one of completed"),
        ("state:x", "must be one of announced"),
        ("gap:fast", "must be like 5s"),
        ("since:soon", "must be like 1h"),
        ("lost:maybe", "must be one of no, yes"),
        ("model:a model:b", "must be given once"),
        ('"a\0b"', "without control characters"),
        ("since:0001-01-01T00:00+23:59", "must be like 1h"),
    ],
)
def test_unclear_filter_is_an_error_that_helps(query: str, message: str) -> None:
    with pytest.raises(QueryError) as error:
        parse_query(query, NOW)
    assert message in str(error.value)


async def test_pages_of_a_filtered_list_neither_skip_nor_repeat(tmp_path: Path) -> None:
    async with opened_files(tmp_path) as store:
        for number in range(9):
            model = "gpt" if number % 2 else "other"
            await put(
                store, f"s{number}", stream_of(f"s{number}", caller=ME, model=model, created=CREATED + number // 3)
            )
        home, found, before = House(store), list[str](), ""
        while True:
            page = (await home.get(f"/wiretape/streams?q=model:gpt&limit=3{before}")).json
            found += [row["id"] for row in page["streams"]]
            if page["next"] is None:
                break
            before = f"&before={page['next']}"
        unclear = await home.get("/wiretape/streams?q=modle:x")
    assert found == ["s7", "s5", "s3", "s1"]
    assert (unclear.status, unclear.json["error"]["param"]) == (400, "q")


async def test_words_are_not_searched_where_no_text_is_kept(tmp_path: Path) -> None:
    """The text that an earlier server kept goes with the setting."""
    async with opened_files(tmp_path):
        pass
    async with house() as home, opened_files(tmp_path, search=False) as files:
        for each in (home, House(files)):
            answered = await each.get("/wiretape/streams?q=%22hello%20you%22")
            assert (answered.status, answered.json["error"]["param"]) == (400, "q")


# -- conversations, comparisons, explanations -------------------------------------------------------------------------


async def test_conversation_is_linked_by_tool_results_from_any_of_its_streams() -> None:
    async with house() as home:
        await put(home.store, "a", stream_of("a", caller=ME, call_id="call_1"))
        result = {"id": "call_1", "name": "look_up", "arguments": digest("{}")}
        later: dict[str, Any] = {"caller": ME, "created": CREATED + 2, "messages": 3}
        await put(home.store, "b", stream_of("b", results=[result], **later))
        await put(home.store, "other", stream_of("other", caller=OTHER))
        found = [(await home.get(f"/wiretape/streams/{each}/conversation")).json["streams"] for each in "ab"]
        assert (await home.get("/wiretape/streams/other/conversation")).status == 404
        listed = {row["id"]: row["tools"] for row in (await home.get("/wiretape/streams")).json["streams"]}
    assert listed["a"] == [{"name": "look_up", "state": "completed"}]
    assert found[0] == found[1]
    assert [turn["id"] for turn in found[0]] == ["a", "b"]
    (made,) = found[0][0]["calls"]
    assert (made["name"], made["state"], made["answered_by"]) == ("look_up", "completed", "b")
    assert made["duration_ms"] == 2_000 - (made["created_us"] - CREATED * 1_000_000) // 1_000


async def test_two_streams_are_compared_by_meaning() -> None:
    async with house() as home:
        await put(home.store, "a", stream_of("a", caller=ME))
        await put(home.store, "b", stream_of("b", caller=ME, reads=2, call_id="call_1"))
        await put(home.store, "other", stream_of("other", caller=OTHER))
        assert (await home.get("/wiretape/diff?a=a&b=other")).status == 404
        answered = (await home.get("/wiretape/diff?a=a&b=b")).json
    assert (answered["a"]["id"], answered["b"]["id"], answered["equal"]) == ("a", "b", False)
    assert answered["text"]["a"] == [["word 0 word 1 ", True], ["word 2 ", False]]
    assert answered["calls"] == [
        {"a": None, "b": {"id": "call_1", "name": "look_up", "state": "running", "arguments": "{}"}}
    ]
    assert answered["times"]["a"][:3] == [1_000, 2_000, 3_000]
    assert "finish of answer 0" in {difference["path"] for difference in answered["differences"]}


async def test_everything_that_the_feed_names_is_explained() -> None:
    async with house() as home:
        told = (await home.get("/wiretape/explain")).json
    assert told["endings"]["truncated"]["title"] == "Truncated"
    assert told["repairs"]["finish_word"] == "Translate another dialect's finish reason, or one under another key"
    assert not [name for name, sentence in told["repairs"].items() if not sentence or "Q1" in sentence]


# -- who may see what -------------------------------------------------------------------------------------------------


async def test_operator_sees_all_streams_and_everyone_else_their_own() -> None:
    for keyed in (False, True):
        async with house(keyed=keyed) as home:
            await put(home.store, "mine", stream_of("mine", caller=ME))
            await put(home.store, "theirs", stream_of("theirs", caller=OTHER))
            await put(home.store, "local", stream_of("local", caller="local"))

            async def seen(key: str, home: House = home) -> Any:
                answered = await home.get("/wiretape/streams", key=key)
                return [row["id"] for row in answered.json["streams"]] if answered.status == 200 else answered.status

            assert sorted(await seen(OPERATOR_TOKEN)) == ["local", "mine", "theirs"]
            assert (await home.get("/wiretape/streams/theirs/inspect", key=OPERATOR_TOKEN)).status == 200
            assert (await home.get("/wiretape/streams/none", key=OPERATOR_TOKEN)).status == 404
            assert await seen(OPERATOR_TOKEN[:-1]) == 401
            assert await seen("") == (401 if keyed else ["local"])
            assert await seen(KEY if keyed else "mine") == ([] if keyed else ["mine"])
            assert (await home.get("/v1/models", key=OPERATOR_TOKEN)).status == 401
            assert (await home.get("/wiretape/streams/theirs", key=KEY if keyed else "mine")).status == 404


def test_operator_token_is_kept_in_the_data_folder_for_its_owner_only(tmp_path: Path) -> None:
    token = operator_token(tmp_path)
    assert operator_token(tmp_path) == token
    assert (tmp_path / "operator.token").stat().st_mode & 0o777 == 0o600
    headers = [(b"authorization", b"Bearer " + token.encode()), (b"x-api-key", b"another")]
    keys = Keys((), b"salt", token)
    assert keys.caller(headers[:1]) == "*"
    assert keys.caller(headers) is None
    assert Keys((), b"salt").caller(headers[:1]) is None
    (tmp_path / "operator.token").write_text("short")
    with pytest.raises(OSError, match="is not a token"):
        operator_token(tmp_path)


async def test_operator_token_reaches_no_upstream_log_or_tape(autojump_clock: MockClock) -> None:
    token = "wiretape_operator_" + "x" * 43
    upstream = Peer(text("hi"), finish(), DONE)
    async with whole_house(upstream) as home:
        for header in (f"Authorization: bearer\t{token}", f"Authorization: Token {token}", f"Cookie: a={token}"):
            assert (await home.ask(None, header)).status == 401
        for path in (f"/v1/models?x={token}", f"/v1/{token}"):
            assert (await home.ask(b"", path=path, method="GET")).status == 401
        assert (upstream.requests, home.streams) == ([], [])
        assert token not in str(home.log)


async def test_no_request_is_relayed_to_wiretapes_own_endpoints(autojump_clock: MockClock) -> None:
    """Even if the upstream is this server: its key may see what the caller's may not."""
    for url in ("https://host/wiretape", "https://host/wiretape/streams"):
        with pytest.raises(UrlError, match="is no upstream"):
            checked(url, allow_plain_http=False)
    upstream = Peer(text("hi"), finish(), DONE)
    async with whole_house(upstream) as home:
        assert (await home.ask(b"", path="/v1/wiretape/streams", method="GET")).status == 404
        assert upstream.requests == []
        assert json.loads((await home.ask(b"", path="/wiretape/streams", method="GET")).body) == {
            "streams": [],
            "next": None,
        }
