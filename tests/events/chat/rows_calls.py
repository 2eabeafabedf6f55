"""Rows 1 to 31 of the dialect catalogue, all cases synthetic: tool calls."""

from tests.events.chat.rows import Row, after, dropped, malformed, tools
from tests.support.chat import DONE, begin, call, call_entry, chunk, finish, frame, sse, text, tool_calls
from wiretape.events.core.json_text import ABSENT

CALLS = finish("tool_calls")
ROLE = frame({"role": "assistant", "content": ""})
START = begin("a", "f", role=True)
HALF = call(index=0, arguments='{"x":')
REST = call(index=0, arguments="1}")
WHOLE = begin("a", "f", '{"x":1}', role=True)
F = ("a", "f", '{"x":1}', "running")


def own_call(index: int, call_id: str, name: str, arguments: str) -> bytes:
    """A start in a frame of ours."""
    return tool_calls(call_entry(call_id, name, arguments, index))


def empty_arguments(index: int = 0) -> bytes:
    """The `{}` of a call that ended without a byte of arguments."""
    return tool_calls({"index": index, "function": {"arguments": "{}"}})


def named(frame_index: int, call_id: str, name: str = "f", arguments: str = "") -> bytes:
    """A start at an index, after the role."""
    return begin(call_id, name, arguments, frame_index)


IDENTITY = [
    Row(
        id="Q1 the first delta of a call has no id: one is made of stream and number, and kept",
        came=[call(role=True, index=0, type="function", name="f", arguments=""), HALF, REST, CALLS, DONE],
        sent=[call(role=True, id="call_s1_0_0", index=0, type="function", name="f", arguments=""), 1, 2, 3, 4],
        calls=[("call_s1_0_0", "f", '{"x":1}', "running")],
        ledger=[("call_id", 0, "call.id")],
    ),
    Row(
        id="Q1 two calls without ids get two ids, and neither is one that the upstream gave",
        came=[
            begin("call_s1_0_1", "f", '{"x":1}', role=True),
            begin(None, "g", '{"y":2}', 1),
            begin("", "h", '{"z":3}', 2),
            CALLS,
            DONE,
        ],
        sent=[0, begin("call_s1_0_1_", "g", '{"y":2}', 1), begin("call_s1_0_2", "h", '{"z":3}', 2), 3, 4],
        calls=[
            ("call_s1_0_1", "f", '{"x":1}', "running"),
            ("call_s1_0_1_", "g", '{"y":2}', "running"),
            ("call_s1_0_2", "h", '{"z":3}', "running"),
        ],
        ledger=[("call_id", 1, "call.id"), ("call_id", 2, "call.id")],
    ),
    Row(
        id="Q2 continuations carry an empty id and an empty name: neither goes out",
        came=[START, call(index=0, id="", type="", name="", arguments='{"x":'), REST, CALLS, DONE],
        sent=[0, HALF, 2, 3, 4],
        calls=[F],
        ledger=[
            ("call_id_repeated", 1, "call.id"),
            ("null_member", 1, "call.type"),
            ("name_repeated", 1, "call.function.name"),
        ],
    ),
    Row(
        id="Q3 continuations carry null for id, name and type: none goes out",
        came=[START, call(index=0, id=None, type=None, name=None, arguments='{"x":'), REST, CALLS, DONE],
        sent=[0, HALF, 2, 3, 4],
        calls=[F],
        ledger=[
            ("call_id_repeated", 1, "call.id"),
            ("null_member", 1, "call.type"),
            ("name_repeated", 1, "call.function.name"),
        ],
    ),
    Row(
        id='Q4 the id of a continuation is the text "null": absent',
        came=[START, call(index=0, id="null", arguments='{"x":'), REST, CALLS, DONE],
        sent=[0, HALF, 2, 3, 4],
        calls=[F],
        ledger=[("call_id_repeated", 1, "call.id")],
    ),
    Row(
        id='Q4 the id of a start is the text "null": one is made',
        came=[begin("null", "f", '{"x":1}', role=True), CALLS, DONE],
        sent=[begin("call_s1_0_0", "f", '{"x":1}', role=True), 1, 2],
        calls=[("call_s1_0_0", "f", '{"x":1}', "running")],
        ledger=[("call_id", 0, "call.id")],
    ),
    Row(
        id="Q5 the same id on every delta: it goes out once (against Q7: the ids are equal)",
        came=[START, call(index=0, id="a", arguments='{"x":'), call(index=0, id="a", arguments="1}"), CALLS, DONE],
        sent=[0, HALF, REST, 3, 4],
        calls=[F],
        ledger=[("call_id_repeated", 1, "call.id"), ("call_id_repeated", 2, "call.id")],
    ),
    Row(
        id="Q5 the same id and name with whole arguments again is no new call: not JSON, so malformed",
        came=[WHOLE, call(index=0, id="a", name="f", arguments='{"x":1}'), CALLS],
        sent=[0, call(index=0, arguments='{"x":1}'), finish(None), malformed("a", "f")],
        calls=[("a", "f", '{"x":1}{"x":1}', "malformed")],
        flags=("no_done", "malformed_call"),
        ledger=[
            ("call_id_repeated", 1, "call.id"),
            ("name_repeated", 1, "call.function.name"),
            ("malformed_claim", 2, "choice.finish_reason"),
            ("error_frame", 3, ""),
        ],
    ),
    Row(
        id="Q6 the id changes between deltas of one call: the first one wins",
        came=[START, call(index=0, id="b", arguments='{"x":'), call(index=0, id="c", arguments="1}"), CALLS, DONE],
        sent=[0, HALF, REST, 3, 4],
        calls=[F],
        ledger=[("call_id_repeated", 1, "call.id"), ("call_id_repeated", 2, "call.id")],
    ),
    Row(
        id="Q6 id and repeated name change in the middle of the arguments: the same call (against Q7)",
        came=[START, HALF, call(index=0, id="b", name="f", arguments="1}"), CALLS, DONE],
        sent=[0, 1, REST, 3, 4],
        calls=[F],
        ledger=[("call_id_repeated", 2, "call.id"), ("name_repeated", 2, "call.function.name")],
    ),
    Row(
        id="Q7 parallel calls all at index 0 with other ids: dense indices (against Q6: whole arguments and a name)",
        came=[WHOLE, named(0, "b", "g", '{"y":2}'), call(index=0, id="b", arguments=""), CALLS, DONE],
        sent=[0, named(1, "b", "g", '{"y":2}'), call(index=1, arguments=""), 3, 4],
        calls=[F, ("b", "g", '{"y":2}', "running")],
        ledger=[("call_index", 1, "call.index"), ("call_index", 2, "call.index"), ("call_id_repeated", 2, "call.id")],
    ),
    Row(
        id="Q7 two calls without arguments at index 0: a new id with a name is a new call",
        came=[START, named(0, "b", "g"), CALLS, DONE],
        sent=[0, named(1, "b", "g"), empty_arguments(0), empty_arguments(1), 2, 3],
        calls=[("a", "f", "{}", "running"), ("b", "g", "{}", "running")],
        ledger=[("call_index", 1, "call.index"), ("arguments_empty", 2, ""), ("arguments_empty", 2, "")],
    ),
    Row(
        id="Q7 parallel calls in turns at index 0: the id says whose piece it is",
        came=[
            START,
            named(0, "b", "g", '{"y":'),
            call(index=0, id="a", arguments='{"x":'),
            call(index=0, id="b", arguments="2}"),
            call(index=0, id="a", arguments="1}"),
            CALLS,
            DONE,
        ],
        sent=[0, named(1, "b", "g", '{"y":'), HALF, call(index=1, arguments="2}"), REST, 5, 6],
        calls=[F, ("b", "g", '{"y":2}', "running")],
        ledger=[
            ("call_index", 1, "call.index"),
            ("call_id_repeated", 2, "call.id"),
            ("call_index", 3, "call.index"),
            ("call_id_repeated", 3, "call.id"),
            ("call_id_repeated", 4, "call.id"),
        ],
    ),
    Row(
        id="Q7 a new id with another name in the middle of the arguments is a new call",
        came=[START, HALF, named(0, "b", "g", '{"y":2}'), finish("length"), DONE],
        sent=[0, 1, named(1, "b", "g", '{"y":2}'), 3, 4],
        calls=[("a", "f", '{"x":', "dropped"), ("b", "g", '{"y":2}', "dropped")],
        finish=("length",),
        ledger=[("call_index", 2, "call.index")],
    ),
    Row(
        id="Q7 one id at two indices: two calls, the second under an id of its own",
        came=[WHOLE, named(1, "a", "g", '{"y":2}'), call(index=1, id="a", arguments=" "), CALLS, DONE],
        sent=[0, named(1, "call_s1_0_1", "g", '{"y":2}'), call(index=1, arguments=" "), 3, 4],
        calls=[F, ("call_s1_0_1", "g", '{"y":2} ', "running")],
        ledger=[("call_id", 1, "call.id"), ("call_id_repeated", 2, "call.id")],
    ),
    Row(
        id="Q8 a second whole object at index 0 without id or name is a call of the same tool (against Q12)",
        came=[WHOLE, call(index=0, arguments='{"x":2}'), CALLS, DONE],
        sent=[0, call(id="call_s1_0_1", type="function", index=1, name="f", arguments='{"x":2}'), 2, 3],
        calls=[F, ("call_s1_0_1", "f", '{"x":2}', "running")],
        ledger=[
            ("call_index", 1, "call.index"),
            ("call_name", 1, "call.function.name"),
            ("call_type", 1, "call.type"),
            ("call_id", 1, "call.id"),
        ],
    ),
    Row(
        id="Q8 the second object begins in the middle of a piece and goes on: the piece is split",
        came=[START, HALF, call(index=0, arguments='1}{"x"'), call(index=0, arguments=":2}"), CALLS, DONE],
        sent=[0, 1, REST, own_call(1, "call_s1_0_1", "f", '{"x"'), call(index=1, arguments=":2}"), 4, 5],
        calls=[F, ("call_s1_0_1", "f", '{"x":2}', "running")],
        ledger=[("call_split", 2, "call.function.arguments"), ("call_split", 2, ""), ("call_index", 3, "call.index")],
    ),
    Row(
        id="Q8 three objects on the chunk that finishes: the finish goes out behind them",
        came=[tool_calls(call_entry("a", "f", '{"x":1}{"x":2}[3]'), reason="tool_calls", role=True), DONE],
        sent=[WHOLE, own_call(1, "call_s1_0_1", "f", '{"x":2}'), own_call(2, "call_s1_0_2", "f", "[3]"), CALLS, 1],
        calls=[F, ("call_s1_0_1", "f", '{"x":2}', "running"), ("call_s1_0_2", "f", "[3]", "running")],
        ledger=[
            ("arguments_not_object", 0, ""),
            ("call_split", 0, "call.function.arguments"),
            ("finish_apart", 0, "choice.finish_reason"),
            ("call_split", 0, ""),
            ("call_split", 0, ""),
            ("finish_apart", 0, ""),
        ],
    ),
    Row(
        id="Q8 another name without an id, behind whole arguments, is a call of that tool",
        came=[WHOLE, call(index=0, name="g", arguments=""), call(index=0, arguments='{"y":2}'), CALLS, DONE],
        sent=[
            0,
            call(id="call_s1_0_1", type="function", index=1, name="g", arguments=""),
            call(index=1, arguments='{"y":2}'),
            3,
            4,
        ],
        calls=[F, ("call_s1_0_1", "g", '{"y":2}', "running")],
        ledger=[
            ("call_index", 1, "call.index"),
            ("call_type", 1, "call.type"),
            ("call_id", 1, "call.id"),
            ("call_index", 2, "call.index"),
        ],
    ),
    Row(
        id="Q9 no index at all: by arrival, and the pieces belong to the last call",
        came=[
            call(role=True, id="a", type="function", name="f", arguments='{"x":1}'),
            call(id="b", type="function", name="g", arguments='{"y":'),
            call(arguments="2}"),
            CALLS,
            DONE,
        ],
        sent=[begin("a", "f", '{"x":1}', role=True), begin("b", "g", '{"y":', 1), call(index=1, arguments="2}"), 3, 4],
        calls=[F, ("b", "g", '{"y":2}', "running")],
        ledger=[("call_index", 0, "call.index"), ("call_index", 1, "call.index"), ("call_index", 2, "call.index")],
    ),
    Row(
        id="Q9 no index and several pieces on one delta: by position",
        came=[
            tool_calls(call_entry("a", "f", "", index=ABSENT), call_entry("b", "g", "", index=ABSENT), role=True),
            tool_calls({"function": {"arguments": '{"x":1}'}}, {"function": {"arguments": '{"y":2}'}}),
            CALLS,
            DONE,
        ],
        sent=[
            tool_calls(call_entry("a", "f", ""), call_entry("b", "g", "", 1), role=True),
            tool_calls(
                {"index": 0, "function": {"arguments": '{"x":1}'}}, {"index": 1, "function": {"arguments": '{"y":2}'}}
            ),
            2,
            3,
        ],
        calls=[F, ("b", "g", '{"y":2}', "running")],
        ledger=[
            ("call_index", 0, "delta.tool_calls.1.index"),
            ("call_index", 0, "call.index"),
            ("call_index", 1, "delta.tool_calls.1.index"),
            ("call_index", 1, "call.index"),
        ],
    ),
    Row(
        id="Q9 no index, and id and name on every delta: the known id goes on, so does the name amid its arguments",
        came=[
            call(role=True, id="a", type="function", name="f", arguments='{"x":'),
            call(id="a", name="f", arguments="1"),
            call(name="f", arguments=""),
            call(id="c", arguments="}"),
            CALLS,
            DONE,
        ],
        sent=[
            begin("a", "f", '{"x":', role=True),
            call(index=0, arguments="1"),
            call(index=0, arguments=""),
            call(index=0, arguments="}"),
            4,
            5,
        ],
        calls=[F],
        ledger=[
            ("call_index", 0, "call.index"),
            ("call_id_repeated", 1, "call.id"),
            ("name_repeated", 1, "call.function.name"),
            ("call_index", 1, "call.index"),
            ("name_repeated", 2, "call.function.name"),
            ("call_index", 2, "call.index"),
            ("call_id_repeated", 3, "call.id"),
            ("call_index", 3, "call.index"),
        ],
    ),
    Row(
        id="Q10 no index, in pieces, and a delta with nothing but extra_content: all attach to the open call",
        came=[
            call(role=True, id="a", type="function", name="f", arguments='{"x":'),
            call(extra_content={"google": {"thought_signature": "s"}}),
            call(arguments="1}"),
            CALLS,
            DONE,
        ],
        sent=[
            begin("a", "f", '{"x":', role=True),
            call(index=0, function={}, extra_content={"google": {"thought_signature": "s"}}),
            REST,
            3,
            4,
        ],
        calls=[F],
        ledger=[
            ("call_index", 0, "call.index"),
            ("call_function", 1, "call.function"),
            ("call_index", 1, "call.index"),
            ("call_index", 2, "call.index"),
        ],
    ),
    Row(
        id="Q11 the first call has index 1, the next 4: dense from 0",
        came=[
            frame({"role": "assistant", "content": "hi"}),
            named(1, "a", "f", '{"x":'),
            call(index=1, arguments="1}"),
            named(4, "b", "g", '{"y":2}'),
            CALLS,
            DONE,
        ],
        sent=[0, named(0, "a", "f", '{"x":'), REST, named(1, "b", "g", '{"y":2}'), 4, 5],
        text="hi",
        calls=[F, ("b", "g", '{"y":2}', "running")],
        ledger=[("call_index", 1, "call.index"), ("call_index", 2, "call.index"), ("call_index", 3, "call.index")],
    ),
]

SHAPE = [
    Row(
        id="Q12 a whole call in one delta is legal: the very bytes pass (against Q8: the first object at its index)",
        came=[WHOLE, CALLS, DONE],
        calls=[F],
    ),
    Row(
        id="Q12 whole calls at two indices are legal, with arguments of no member too",
        came=[WHOLE, named(1, "b", "g", "{}"), CALLS, DONE],
        calls=[F, ("b", "g", "{}", "running")],
    ),
    Row(
        id="Q13 a call on the chunk of its finish: the very bytes pass, the delta counts first",
        came=[START, HALF, tool_calls({"index": 0, "function": {"arguments": "1}"}}, reason="tool_calls"), DONE],
        calls=[F],
    ),
    Row(
        id="Q14 several calls in one delta: the very bytes pass, each call has its own events",
        came=[tool_calls(call_entry("a", "f", '{"x":1}'), call_entry("b", "g", '{"y":2}', 1), role=True), CALLS, DONE],
        calls=[F, ("b", "g", '{"y":2}', "running")],
    ),
    Row(
        id="Q15 the whole name again in later deltas: it goes out once (against Q16: equal to the name so far)",
        came=[
            START,
            call(index=0, name="f", arguments=""),
            call(index=0, name="f", arguments='{"x":'),
            call(index=0, name="f", arguments="1}"),
            CALLS,
            DONE,
        ],
        sent=[0, call(index=0, arguments=""), HALF, REST, 4, 5],
        calls=[F],
        ledger=[
            ("name_repeated", 1, "call.function.name"),
            ("name_repeated", 2, "call.function.name"),
            ("name_repeated", 3, "call.function.name"),
        ],
    ),
    Row(
        id="Q15 another name once arguments have come is no piece",
        came=[START, HALF, call(index=0, name="other", arguments="1}"), CALLS, DONE],
        sent=[0, 1, REST, 3, 4],
        calls=[F],
        ledger=[("name_repeated", 2, "call.function.name")],
    ),
    Row(
        id="Q15 a whole tool of the request, resent before any argument, is a repeat",
        came=[START, call(index=0, name="list_files", arguments=""), HALF, REST, CALLS, DONE],
        sent=[0, call(index=0, arguments=""), 2, 3, 4, 5],
        request=tools("f", "list_files"),
        calls=[F],
        ledger=[("name_repeated", 1, "call.function.name")],
    ),
    Row(
        id="Q16 a name in pieces is joined (against Q15: no argument has come, and no tool is called so)",
        came=[
            begin("a", "read_", role=True),
            call(index=0, name="file"),
            call(index=0, arguments='{"x":1}'),
            CALLS,
            DONE,
        ],
        request=tools("read_file", "write_file"),
        calls=[("a", "read_file", '{"x":1}', "running")],
    ),
    Row(
        id="Q16 a piece that is a tool itself is still a piece where only both together are a tool",
        came=[
            begin("a", "web_", role=True),
            call(index=0, name="search"),
            call(index=0, arguments='{"x":1}'),
            CALLS,
            DONE,
        ],
        request=tools("web_search", "search"),
        calls=[("a", "web_search", '{"x":1}', "running")],
    ),
    Row(
        id="Q16 pieces that each hold all before them: only what is new goes out",
        came=[
            begin("a", "read_", role=True),
            call(index=0, name="read_file"),
            call(index=0, arguments='{"x":1}'),
            CALLS,
            DONE,
        ],
        sent=[0, call(index=0, name="file"), 2, 3, 4],
        request=tools("read_file"),
        calls=[("a", "read_file", '{"x":1}', "running")],
        ledger=[("name_repeated", 1, "call.function.name")],
    ),
    Row(
        id="Q17 id first, then arguments, then the name: the start waits for both, nothing of it is lost",
        came=[
            call(role=True, index=0, id="a", type="function", extra_content={"google": 1}),
            call(index=0, arguments='{"x":'),
            call(index=0, name="f"),
            REST,
            CALLS,
            DONE,
        ],
        sent=[
            frame({"role": "assistant"}),
            frame({}),
            tool_calls(
                {
                    "id": "a",
                    "type": "function",
                    "extra_content": {"google": 1},
                    "index": 0,
                    "function": {"arguments": '{"x":', "name": "f"},
                }
            ),
            3,
            4,
            5,
        ],
        calls=[F],
        ledger=[
            ("call_without_name", 0, "delta.tool_calls"),
            ("call_without_name", 1, "delta.tool_calls"),
            ("call_without_name", 2, "call.function.arguments"),
            ("call_without_name", 2, "call.extra_content"),
            ("call_type", 2, "call.type"),
            ("call_id", 2, "call.id"),
        ],
    ),
    Row(
        id="Q17 a call that starts behind one without a name waits too: numbers rise",
        came=[
            call(role=True, index=0, id="a", type="function"),
            named(1, "b", "g", '{"y":'),
            call(index=1, arguments="2}"),
            call(index=0, name="f", arguments='{"x":1}'),
            CALLS,
            DONE,
        ],
        sent=[
            frame({"role": "assistant"}),
            frame({}),
            frame({}),
            tool_calls({"id": "a", "type": "function", "index": 0, "function": {"name": "f", "arguments": '{"x":1}'}}),
            own_call(1, "b", "g", '{"y":2}'),
            4,
            5,
        ],
        calls=[F, ("b", "g", '{"y":2}', "running")],
        ledger=[
            ("call_without_name", 0, "delta.tool_calls"),
            ("call_without_name", 1, "delta.tool_calls"),
            ("call_without_name", 2, "delta.tool_calls"),
            ("call_type", 3, "call.type"),
            ("call_id", 3, "call.id"),
            ("call_without_name", 3, ""),
        ],
    ),
    Row(
        id="Q17 name first, then the id: the id was made with the name (Q1), the late one is left out",
        came=[
            call(role=True, index=0, type="function", name="f"),
            call(index=0, id="a", arguments='{"x":1}'),
            CALLS,
            DONE,
        ],
        sent=[
            tool_calls(
                {"id": "call_s1_0_0", "index": 0, "type": "function", "function": {"arguments": "", "name": "f"}},
                role=True,
            ),
            call(index=0, arguments='{"x":1}'),
            2,
            3,
        ],
        calls=[("call_s1_0_0", "f", '{"x":1}', "running")],
        ledger=[
            ("arguments_null", 0, "call.function.arguments"),
            ("call_id", 0, "call.id"),
            ("call_id_repeated", 1, "call.id"),
        ],
    ),
    Row(
        id="Q17 a name that never comes: the call is malformed, nobody saw it",
        came=[call(role=True, index=0, id="a", type="function", arguments="{}"), CALLS, DONE],
        sent=[frame({"role": "assistant"}), finish(None), malformed("a", "")],
        calls=[("a", "", "", "malformed")],
        flags=("malformed_call",),
        ledger=[
            ("call_without_name", 0, "delta.tool_calls"),
            ("malformed_claim", 1, "choice.finish_reason"),
            ("malformed_claim", 2, ""),
            ("error_frame", 2, ""),
        ],
    ),
    Row(
        id="Q17 an entry that says nothing is no call",
        came=[frame({"role": "assistant", "content": "hi", "tool_calls": [{"index": 0}, 7]}), finish(), DONE],
        sent=[frame({"role": "assistant", "content": "hi"}), 1, 2],
        text="hi",
        ledger=[("call_without_name", 0, "delta.tool_calls")],
    ),
    Row(
        id="Q18 arguments as an object: encoded once, in the upstream's own words",
        came=[
            chunk(
                {
                    "index": 0,
                    "delta": {"role": "assistant", "tool_calls": [call_entry("a", "f", {"x": 1})]},
                    "finish_reason": None,
                }
            ).replace(b'{"x":1}', b'{ "x" : 12345678901234567890123 }'),
            CALLS,
            DONE,
        ],
        sent=[begin("a", "f", '{ "x" : 12345678901234567890123 }', role=True), 1, 2],
        calls=[("a", "f", '{ "x" : 12345678901234567890123 }', "running")],
        ledger=[("reserialised", 0, ""), ("arguments_not_text", 0, "call.function.arguments")],
    ),
    Row(
        id="Q19 arguments null on the first delta: empty",
        came=[begin("a", "f", None, role=True), HALF, REST, CALLS, DONE],
        sent=[START, 1, 2, 3, 4],
        calls=[F],
        ledger=[("arguments_null", 0, "call.function.arguments")],
    ),
    Row(
        id="Q19 arguments missing on the first delta, null on a later one",
        came=[
            call(role=True, index=0, id="a", type="function", name="f"),
            call(index=0, arguments=None),
            HALF,
            REST,
            CALLS,
            DONE,
        ],
        sent=[
            tool_calls(
                {"index": 0, "id": "a", "type": "function", "function": {"arguments": "", "name": "f"}}, role=True
            ),
            after(call(index=0, arguments=None), (b'"arguments":null', b"")),
            2,
            3,
            4,
            5,
        ],
        calls=[F],
        ledger=[("arguments_null", 0, "call.function.arguments"), ("arguments_null", 1, "call.function.arguments")],
    ),
    Row(
        id="Q20 arguments start as {} and real fragments follow: the seed is dropped (against Q25)",
        came=[begin("a", "f", "{}", role=True), b": a comment decides nothing\n\n", HALF, REST, CALLS, DONE],
        sent=[START, 2, 3, 4, 5],
        calls=[F],
        ledger=[("comment", 1, ""), ("arguments_seed", 0, "call.function.arguments")],
    ),
    Row(
        id="Q20 parallel seeds, the second proven by the first; one that gets nothing is its own arguments at the end",
        came=[
            begin("a", "f", "{}", role=True),
            named(1, "b", "g", "{}"),
            HALF,
            REST,
            named(2, "c", "h", "{}"),
            CALLS,
            DONE,
        ],
        sent=[START, named(1, "b", "g"), 2, 3, named(2, "c", "h"), empty_arguments(1), empty_arguments(2), 5, 6],
        calls=[F, ("b", "g", "{}", "running"), ("c", "h", "{}", "running")],
        ledger=[
            ("arguments_seed", 0, "call.function.arguments"),
            ("arguments_seed", 1, "call.function.arguments"),
            ("arguments_seed", 4, "call.function.arguments"),
            ("arguments_empty", 5, ""),
            ("arguments_empty", 5, ""),
        ],
    ),
]

FAULTS = [
    Row(
        id="Q21 a duplicated tail: not JSON at the finish, so a malformed call",
        came=[WHOLE, call(index=0, arguments='"}'), CALLS, DONE],
        sent=[0, 1, finish(None), malformed("a", "f")],
        calls=[("a", "f", '{"x":1}"}', "malformed")],
        flags=("malformed_call",),
        ledger=[("malformed_claim", 2, "choice.finish_reason"), ("malformed_claim", 3, ""), ("error_frame", 3, "")],
    ),
    Row(
        id="Q21 arguments serialised twice are JSON, only no object: flagged, nothing is changed",
        came=[begin("a", "f", '"{\\"x\\":1}"', role=True), CALLS, DONE],
        calls=[("a", "f", '"{\\"x\\":1}"', "running")],
        ledger=[("arguments_not_object", 1, "")],
    ),
    Row(
        id="Q22 a piece of arguments twice, still JSON: flagged, nothing is changed",
        came=[
            begin("a", "f", '{"x":"', role=True),
            call(index=0, arguments="abcdefgh"),
            call(index=0, arguments="abcdefgh"),
            call(index=0, arguments='"}'),
            CALLS,
            DONE,
        ],
        calls=[("a", "f", '{"x":"abcdefghabcdefgh"}', "running")],
        ledger=[("arguments_repeated", 2, "")],
    ),
    Row(
        id="Q23 the type of a call is missing: function",
        came=[call(role=True, index=0, id="a", name="f", arguments='{"x":1}'), CALLS, DONE],
        sent=[
            tool_calls(
                {"type": "function", "index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":1}'}},
                role=True,
            ),
            1,
            2,
        ],
        calls=[F],
        ledger=[("call_type", 0, "call.type")],
    ),
    Row(
        id="Q24 ids that start anew every turn are kept as they are",
        came=[
            begin("functions.f:0", "f", '{"x":1}', role=True),
            named(1, "list_dir:0", "list_dir", '{"y":2}'),
            CALLS,
            DONE,
        ],
        calls=[("functions.f:0", "f", '{"x":1}', "running"), ("list_dir:0", "list_dir", '{"y":2}', "running")],
    ),
    Row(
        id="Q25 a tool without arguments: {} in a frame of ours before the finish",
        came=[START, CALLS, DONE],
        sent=[0, empty_arguments(), 1, 2],
        calls=[("a", "f", "{}", "running")],
        ledger=[("arguments_empty", 1, "")],
    ),
    Row(
        id="Q25 a tool without arguments on the chunk of its finish: {} in place",
        came=[after(START, (b'"finish_reason":null', b'"finish_reason":"stop"')), DONE],
        sent=[
            after(
                START,
                (b'"arguments":""', b'"arguments":"{}"'),
                (b'"finish_reason":null', b'"finish_reason":"tool_calls"'),
            ),
            1,
        ],
        calls=[("a", "f", "{}", "running")],
        ledger=[
            ("arguments_empty", 0, "call.function.arguments"),
            ("finish_stop_with_calls", 0, "choice.finish_reason"),
        ],
    ),
    Row(
        id="Q25 {} is the whole argument where nothing follows it (against Q20): the very bytes pass",
        came=[begin("a", "f", "{}", role=True), CALLS, DONE],
        calls=[("a", "f", "{}", "running")],
    ),
    Row(
        id="Q25 never {} for a call that ended by length",
        came=[START, finish("length"), DONE],
        calls=[("a", "f", "", "dropped")],
        finish=("length",),
    ),
    Row(
        id="Q26 length in the middle of a call: passes on, with the dropped frame before it",
        came=[START, HALF, finish("length"), DONE],
        sent=[0, 1, dropped("a", "f", '{"x":', "length"), 2, 3],
        calls=[("a", "f", '{"x":', "dropped")],
        finish=("length",),
        settings={"tool_events": True},
        ledger=[("lifecycle", 2, "")],
    ),
    Row(
        id="Q26 tool_calls over arguments that are not JSON: dropped frame, error frame, no [DONE], the claim withheld",
        came=[START, HALF, CALLS, DONE],
        sent=[0, 1, dropped("a", "f", '{"x":', "malformed"), finish(None), malformed("a", "f")],
        calls=[("a", "f", '{"x":', "malformed")],
        flags=("malformed_call",),
        settings={"tool_events": True},
        ledger=[
            ("lifecycle", 2, ""),
            ("malformed_claim", 2, "choice.finish_reason"),
            ("malformed_claim", 3, ""),
            ("error_frame", 3, ""),
        ],
    ),
    Row(
        id="Q26 with warn the malformed call is never shown: visible text, finish length, [DONE]",
        came=[ROLE, named(0, "a"), HALF, CALLS, DONE],
        sent=[
            0,
            finish(None),
            text("⚠ Malformed tool call: the arguments of f are not valid JSON. Not completed; no result seen."),
            finish("length"),
            DONE,
        ],
        calls=[("a", "f", '{"x":', "malformed")],
        flags=("malformed_call",),
        settings={"on_partial": "warn"},
        ledger=[
            ("held_call_lost", 1, ""),
            ("held_call_lost", 2, ""),
            ("malformed_claim", 4, ""),
            ("malformed_claim", 3, "choice.finish_reason"),
            ("warning_text", 4, ""),
            ("warn_finish", 4, ""),
            ("warn_done", 4, ""),
        ],
    ),
    Row(
        id="Q27 text and calls in two choices though one answer was asked for: one choice",
        came=[
            frame({"role": "assistant", "content": "hi"}),
            tool_calls(call_entry("a", "f", '{"x":1}'), role=True, index=1),
            finish("stop", 0),
            finish("tool_calls", 1),
            DONE,
        ],
        sent=[0, begin("a", "f", '{"x":1}'), finish(None), CALLS, 4],
        text="hi",
        calls=[F],
        ledger=[
            ("choice_index", 1, "choice.index"),
            ("role_repeated", 1, "delta.role"),
            ("finish_of_part", 2, "choice.finish_reason"),
            ("choice_index", 3, "choice.index"),
        ],
    ),
    Row(
        id="Q27 two answers were asked for: they stay two",
        came=[
            frame({"role": "assistant", "content": "hi"}),
            after(WHOLE, (b'"index":0', b'"index":1')),
            finish("stop", 0),
            finish("tool_calls", 1),
            DONE,
        ],
        request={"stream": True, "model": "m", "n": 2},
        text="hi",
        calls=[F],
        finish=("stop", "tool_calls"),
    ),
    Row(
        id="Q28 a field of somebody's own: with choices it stays, without it is a foreign frame",
        came=[
            sse({"tool_call_generating": True}),
            frame({"role": "assistant", "content": "hi"}, tool_call_generating=True),
            finish(),
            DONE,
        ],
        sent=[1, 2, 3],
        text="hi",
        flags=("foreign",),
        ledger=[("foreign", 0, "")],
    ),
    Row(
        id="Q29 legacy function_call passes as it is",
        came=[
            frame({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
            frame({"function_call": {"arguments": '{"x":1}'}}),
            finish("function_call"),
            DONE,
        ],
        calls=[("function_call_0", "f", '{"x":1}', "running")],
        finish=("function_call",),
    ),
    Row(
        id="Q29 legacy arguments are text too, and {} where none came",
        came=[
            frame({"role": "assistant", "function_call": {"name": "f", "arguments": None}}),
            finish("function_call"),
            DONE,
        ],
        sent=[0, frame({"function_call": {"arguments": "{}"}}), 1, 2],
        calls=[("function_call_0", "f", "{}", "running")],
        finish=("function_call",),
        ledger=[("arguments_empty", 1, "")],
    ),
    Row(
        id="Q30 extra_content with thought signatures in both namespaces stays verbatim",
        came=[
            tool_calls(
                {
                    "index": 0,
                    "id": "a",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x":1}'},
                    "extra_content": {"google": {"thought_signature": "s"}, "vertex": {"thought_signature": "t"}},
                },
                role=True,
            ),
            CALLS,
            DONE,
        ],
        calls=[F],
    ),
    Row(
        id="Q31 tools that the upstream runs itself and its channels stay",
        came=[
            frame({"role": "assistant", "executed_tools": [{"index": 0, "type": "search"}], "channel": "analysis"}),
            text("hi"),
            finish(),
            DONE,
        ],
        text="hi",
    ),
]

ROWS = [*IDENTITY, *SHAPE, *FAULTS]
