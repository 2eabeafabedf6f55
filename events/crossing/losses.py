"""What does not cross between dialects: the tables from which those of docs/reference/crossing.md are made.

The names are those of `Crossed.lost`, of the header `X-Wiretape-Lost`, and, after `lost_`, of the ledger.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["CHANGED", "HINTS", "LEFT_OUT", "LOST", "REFUSED", "STREAM_LOST"]

#: What an upstream is not given, or given less exactly, by name.
LOST: Final[Mapping[str, str]] = {
    "cache_control": "cache hints that the upstream does not take, or more than four of them",
    "citations": "sources of a text in the history",
    "client_metadata": "what a client says about itself",
    "container": "a container that the upstream of the client's dialect keeps",
    "context_management": "edits of the history that the upstream of the client's dialect would make",
    "deferred_tools": "tools that are loaded when they are found, and nothing has found them",
    "effort": "an effort that the upstream has no word for, or that contradicts another member",
    "file_url": "the content of a file; its URL is named in text",
    "format_description": "the description of a format",
    "hosted_calls": "calls, in the history, of tools that an upstream ran itself, or that have no schema",
    "hosted_tools": "tools that only an upstream of the client's dialect runs",
    "include": "extra members of the answer",
    "json_object": "any JSON object as the form of the answer",
    "logit_bias": "the likelihood of single tokens",
    "logprobs": "likelihoods in the answer",
    "metadata": "keys and values that are kept with the answer",
    "modality": "a quality of media: detail, title or context",
    "orphan_results": "results that answer no call; they are shown as text",
    "penalties": "penalties of frequency or presence",
    "prediction": "a predicted answer",
    "prompt_cache_key": "a key of the prompt cache",
    "reasoning_history": "thinking in the history that the upstream cannot verify",
    "reasoning_mode": "how a model reasons, apart from its effort",
    "reasoning_summary": "how thinking is shown",
    "seed": "the seed of sampling",
    "service_tier": "a tier of service, whose words differ",
    "stop": "stop sequences, or more than four of them",
    "store": "storing the answer at the upstream",
    "stream_options": "details of a stream",
    "temperature": "a temperature or `top_p` that the upstream does not take",
    "thinking": "thinking, together with a forced tool or with calls whose thinking is missing",
    "tool_details": "details of a tool that only the client's dialect has",
    "top_k": "sampling from the most likely tokens",
    "truncation": "leaving out the middle of a long history",
    "vendor": "a switch of one vendor's own service",
    "verbosity": "how long an answer should be",
}

#: What is said otherwise than the client said it, by name; it is reported together with what is lost.
CHANGED: Final[Mapping[str, str]] = {
    "empty_text": "empty messages, which the upstream refuses, say `(empty)`",
    "is_error": "failed results are marked in their text",
    "max_tokens_clamped": "the route's maximum replaced a larger one",
    "max_tokens_default": "the route's default, since the client gave none",
    "media_moved": "images and files of tool results are in a user message after them",
    "system_moved": "system messages after the first turn are user text in a `<system>` tag",
}

#: What an answer loses on its way back; in the ledger with `lost_` before it.
STREAM_LOST: Final[Mapping[str, str]] = {
    "audio": "a spoken answer",
    "choice": "a choice beyond the first",
    "hosted_tool": "reports of tools that the upstream ran itself",
    "order": "the place of a text that came after a call which was cut",
    "proof": "a proof that is too long for an envelope, or has no place in the client's dialect",
}

#: Cache hints of a part or a tool, by the name of their member.
HINTS: Final = ("cache_control", "prompt_cache_breakpoint")

#: Members of requests that are known and left out: the name of the loss, and values that lose nothing.
LEFT_OUT: Final[Mapping[str, tuple[Any, ...]]] = {
    "access_programs": ("vendor",),
    "betas": ("vendor", []),
    "cache_control": ("cache_control",),
    "client_metadata": ("client_metadata", {}),
    "container": ("container",),
    "context_management": ("context_management", [], {}, {"edits": []}),
    "diagnostics": ("vendor",),
    "frequency_penalty": ("penalties", 0),
    "include": ("include", [], ["reasoning.encrypted_content"]),
    "include_reasoning": ("reasoning_mode", True),
    "inference_geo": ("vendor",),
    "logit_bias": ("logit_bias", {}),
    "logprobs": ("logprobs", False),
    "max_tool_calls": ("hosted_tools",),
    "mcp_servers": ("hosted_tools", []),
    "moderation": ("vendor",),
    "prediction": ("prediction",),
    "presence_penalty": ("penalties", 0),
    "seed": ("seed",),
    "service_tier": ("service_tier", "auto"),
    "speed": ("service_tier", "standard"),
    "stream_options": ("stream_options", {}, {"include_obfuscation": False}),
    "top_k": ("top_k",),
    "top_logprobs": ("logprobs", 0),
    "truncation": ("truncation", "disabled"),
    "user_profile_id": ("vendor",),
    "web_search_options": ("hosted_tools",),
    "workspace_id": ("vendor",),
}

#: Members that are refused, since the answer would be another one without them: why, and values that are not.
REFUSED: Final[Mapping[str, tuple[Any, ...]]] = {
    "audio": ("spoken answers do not cross to an upstream of another dialect.",),
    "background": ("answers in the background do not cross; ask without it.", False),
    "conversation": ("conversations are kept by another upstream; send the history as input.",),
    "function_call": ("use tool_choice; the older member does not cross.", "none", "auto"),
    "functions": ("use tools; the older member does not cross.", []),
    "modalities": ("only text crosses to an upstream of another dialect.", ["text"], []),
    "n": ("only one choice crosses to an upstream of another dialect.", 1),
    "prompt": ("stored prompts are kept by another upstream; send the text as input.",),
}
