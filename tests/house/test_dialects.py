"""A dialect is in its own folder: elsewhere no string of the code has a word of one protocol, and nothing imports it.

What must know a word asks `DIALECTS` or `PLACES` (events/dialects.py). The few other places are listed with the reason.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.house.tree import Module, modules

FOLDERS = ("events/chat/", "events/responses/", "events/messages/")

#: Words that only one protocol, or the vendors that speak it, have on the wire. Plain words (`input`, `content`, `id`)
#: and those that several share (`function_call`, `tool_calls`) prove nothing.
WORDS: Mapping[str, tuple[str, ...]] = {
    "chat": (
        *("[DONE]", "chat.completion", "chatcmpl", "choices", "completion_tokens", "finish_reason"),
        *("include_usage", "prompt_tokens", "reasoning_content", "reasoning_details", "stream_options", "tool_call_id"),
        "/chat/completions",
    ),
    "responses": (
        *("content_part", "custom_tool_call", "encrypted_content", "function_call_arguments", "function_call_output"),
        *("incomplete_details", "input_text", "max_output_tokens", "output_index", "output_item", "output_text"),
        *("previous_response_id", "reasoning_summary", "resp_", "response.created", "response.completed"),
        *("response.failed", "response.incomplete", "/responses"),
    ),
    "messages": (
        *("anthropic", "cache_control", "content_block", "end_turn", "input_json_delta", "message_delta"),
        *("message_start", "message_stop", "overloaded_error", "redacted_thinking", "signature_delta", "stop_reason"),
        *("stop_sequence", "text_delta", "thinking_delta", "tool_result", "tool_use", "toolu_", "/messages"),
    ),
}

_PATHS = "the paths that the proxy checks before anything else is known of a request"
_SETTING = "the values of a setting, which are the members that clients want"
_USAGE = "token counts of old tapes, and of clients' own names for them"
_VENDOR = "the vendor's host"
_RUNS = "a member of /v1/runs, as hermes-agent names it"
_PROSE = "ids as people and programs quote them in prose, of any vendor"
#: By file: why it may have any word.
LISTS: Mapping[str, str] = {
    "proxy/telemetry/names.py": "the words of the GenAI conventions",
    "events/crossing/losses.py": "the table of what crosses, which names the members of all dialects",
}
#: By file and word: why it may be there.
ALLOWED: Mapping[tuple[str, str], str] = {
    ("events/crossing/cross.py", "previous_response_id"): "the member that a 400 names to the client",
    ("events/crossing/request.py", "completion_tokens"): _SETTING,
    ("events/core/settings.py", "reasoning_content"): _SETTING,
    ("events/emission/reading.py", "[DONE]"): "servers of every dialect end streams with it, where it means nothing",
    ("events/folds/wire.py", "prompt_tokens"): _USAGE,
    ("events/folds/wire.py", "completion_tokens"): _USAGE,
    ("events/tape/record.py", "reasoning_content"): "members with a steady text, in one pattern for every dialect",
    ("proxy/api/openapi.py", "/responses"): _PATHS,
    ("proxy/api/openapi.py", "/messages"): _PATHS,
    ("proxy/api/openapi.py", "previous_response_id"): _RUNS,
    ("proxy/cli/main.py", "/chat/completions"): "a first request to copy",
    ("proxy/config/load.py", "anthropic"): _VENDOR,
    ("proxy/config/model.py", "cache_control"): _SETTING,
    ("proxy/config/urls.py", "/chat/completions"): _PATHS,
    ("proxy/config/urls.py", "/messages"): _PATHS,
    ("proxy/config/urls.py", "/responses"): _PATHS,
    ("proxy/relay/crossing.py", "anthropic"): _VENDOR,
    ("proxy/relay/crossing.py", "completion_tokens"): _SETTING,
    ("proxy/runs/runs.py", "previous_response_id"): _RUNS,
    ("proxy/security/headers.py", "anthropic"): "headers of rate limits, which belong to vendors",
    ("proxy/store/catalogue_row.py", "completion_tokens"): _USAGE,
    ("proxy/telemetry/content.py", "finish_reason"): "a word of the GenAI conventions",
    ("proxy/store/catalogue_row.py", "prompt_tokens"): _USAGE,
    ("replay/cli/demo.py", "prompt_tokens"): "the demo's upstream speaks chat",
    ("replay/cli/demo.py", "completion_tokens"): "the demo's upstream speaks chat",
    ("replay/cli/recording.py", "anthropic"): "the name of a route, and of variables of clients",
    ("replay/normalize/normalize.py", "anthropic"): "headers of rate limits, which belong to vendors",
    ("replay/normalize/volatile.py", "chatcmpl"): _PROSE,
    ("replay/redaction/shapes.py", "anthropic"): "the vendor of a key",
}
#: By file: why it may import a dialect.
IMPORTS: Mapping[str, str] = {
    "events/dialects.py": "the table of dialects",
    "proxy/runs/api.py": "turns of runs are chat completions",
    "proxy/runs/runs.py": "turns of runs are chat completions",
    "proxy/runs/tapes.py": "turns of runs are chat completions",
    "replay/cli/demo.py": "the demo's upstream speaks chat",
    "replay/formats/table.py": "aimock's fixtures hold no bytes, so they are written as chat",
}


def outside() -> Iterator[Module]:
    return (module for module in modules() if not module.place.startswith(FOLDERS))


def strings(module: Module) -> Iterator[str]:
    """Yield the strings of a module's code, docstrings excluded."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = (node.body for node in ast.walk(module.syntax) if isinstance(node, owners))
    said = {(first.lineno, first.col_offset) for body in bodies if isinstance(first := body[0], ast.Expr)}
    for node in ast.walk(module.syntax):
        match node:
            case ast.Constant(value=str() as text) if (node.lineno, node.col_offset) not in said:
                yield text
            case ast.Constant(value=bytes() as data):
                yield data.decode("latin-1")
            case _:
                continue


def test_words_of_a_dialect_are_in_its_folder() -> None:
    found: set[tuple[str, str]] = set()
    for module in (module for module in outside() if module.place not in LISTS):
        text = "\n".join(strings(module))
        found |= {(module.place, word) for words in WORDS.values() for word in words if word in text}
    assert sorted(found - ALLOWED.keys()) == []
    assert sorted(ALLOWED.keys() - found) == [], "no longer needed"


def test_a_word_is_of_one_dialect() -> None:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for dialect, words in WORDS.items():
        for word in words:
            owners[word].add(dialect)
    assert {word for word, names in owners.items() if len(names) > 1} == set()


def test_nothing_imports_a_dialect() -> None:
    folders = tuple(folder.strip("/").replace("/", ".") for folder in FOLDERS)
    found: set[str] = set()
    for module in outside():
        package = module.name.split(".")[: -1 if not module.place.endswith("__init__.py") else None]
        for node in ast.walk(module.syntax):
            if isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                name = ".".join([*base, *([node.module] if node.module else [])]).removeprefix("wiretape.")
                if f"{name}.".startswith(tuple(f"{folder}." for folder in folders)):
                    found.add(module.place)
    assert sorted(found - IMPORTS.keys()) == []
    assert sorted(IMPORTS.keys() - found) == [], "no longer needed"
