"""The name of every repair of this dialect, and what it says to a person; docs/repairs.md is drawn from it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["REPAIRS"]

#: `Q15` is a row of the dialect catalogue. The ledger holds no other name (tests/support/chat.py sees to that).
REPAIRS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # How the frame was written
        "comment": "a comment, or a block that dispatches nothing, is not passed on (Q97, Q99, Q100)",
        "empty_data": "a frame without data, or with a keepalive for data (Q98, Q99)",
        "framing": "another way of writing the frame: CRLF, CR, no space, several lines, `event`, `id`, a BOM, a tail "
        "without its blank line (Q100 to Q103, Q106, Q108)",
        "invalid_utf8": "bytes that are not UTF-8 became U+FFFD",
        "not_json": "a payload that is not JSON is withheld",
        "unframed": "bytes that are no SSE are withheld; an error among them is told (Q93)",
        "foreign": "JSON that is no chunk is withheld (Q28, Q49)",
        "late_data": "nothing goes out behind the terminator",
        # The envelope
        "id": "one id for the stream: the first, or one made from the stream's own (Q53)",
        "object": "`chat.completion.chunk` (Q52)",
        "created": "one integer: the first that is not zero (Q54, Q57)",
        "model": "the first that is not empty (Q55)",
        "choices_null": "`choices` is a list (Q48)",
        "choiceless": "a chunk without choices and without usage is withheld (Q46)",
        "sent_once": "lists that every chunk repeats go out once (Q87)",
        "usage_not_asked": "a usage-only chunk that nobody asked for is withheld (Q66)",
        "usage_repeated": "of several usage-only chunks the last goes out",
        # Choices
        "choice_index": "the index of a choice was missing, or its part came under another one (Q27)",
        "choice_not_object": "an entry of `choices` that is no object is left out",
        "delta_missing": "a choice has a delta (Q47)",
        "message_beside": "a whole message beside the delta is left out (Q59)",
        "null_member": "a null member that clients stumble over is left out (Q51)",
        "role_missing": "the first chunk of a choice says `assistant` (Q50)",
        "role_repeated": "the role goes out once (Q49)",
        "content_not_text": "content that is no text became text (Q56)",
        "content_list": "a list of parts became content and reasoning (Q79)",
        "content_empty": "an empty content beside thinking parts is left out (Q80)",
        "content_cumulative": "of content that repeats all before it, only what is new (Q61, on request)",
        "reasoning_name": "reasoning goes out under one name (Q73, Q74)",
        "reasoning_twice": "the same reasoning under two names goes out once",
        "entry_index": "entries of a list got the `index` that SDKs merge by (Q75, Q86)",
        "think": "`<think>` became reasoning (Q78, on request)",
        "finish_missing": "`finish_reason` is null until the finish (Q35)",
        "finish_empty": "an empty finish reason became null (Q33, Q34)",
        "finish_repeated": "a second finish became null (Q38)",
        "finish_word": "another dialect's word, or another key, for a known finish (Q36)",
        "finish_stop_with_calls": "`stop` over calls became `tool_calls` (Q32)",
        "finish_apart": "the finish goes out behind frames of ours that belong before it",
        "finish_of_part": "a part of the one answer finished before the others (Q27)",
        "finish_failure": "a finish that says failure became an error frame (Q44)",
        "finish_supplied": "`[DONE]` came without a finish, after whole content (Q37)",
        "late_delta": "text behind a finish was delivered all the same",
        # Tool calls
        "call_id": "a missing id was made, a doubled one replaced (Q1)",
        "call_id_repeated": "an id on a continuation is left out (Q2 to Q6)",
        "call_index": "dense indexes from 0 (Q7 to Q11)",
        "call_name": "a call that began without its name, or inside another one, got it",
        "call_function": "a delta of a call has a `function` (Q10)",
        "call_type": "`type` is `function` (Q23)",
        "call_without_name": "a call waits until its name is known (Q17)",
        "call_not_object": "an entry of `tool_calls` that is no object is left out",
        "calls_not_list": "`tool_calls` that is no list is left out",
        "call_split": "a second whole value is a call of its own (Q8)",
        "legacy_call_twin": "a `function_call` that repeats what `tool_calls` says is left out",
        "late_call": "calls behind a finish are withheld: the choice was handed over",
        "name_repeated": "the name goes out once (Q15)",
        "arguments_null": "arguments are text (Q19)",
        "arguments_not_text": "arguments that came as JSON became text (Q18)",
        "arguments_seed": "a leading `{}` that fragments follow is left out (Q20)",
        "arguments_empty": "no arguments at all became `{}` when the call was closed properly (Q25)",
        "arguments_not_object": "arguments that are JSON but no object: told, not changed",
        "arguments_repeated": "a piece came twice in a row: told, not changed (Q21, Q22)",
        "malformed_claim": "a finish over arguments that are not JSON is withheld (Q26)",
        "held_call": "a held call left the chunk that said more",
        "held_call_lost": "a held call that was cut was never shown",
        # Errors and endings
        "error_field": "the SSE field `error` became an error frame (Q92)",
        "error_shape": "an error in another shape became the one that clients raise on (Q65, Q89, Q90)",
        "error_apart": "an error that rode on content goes out behind it (Q89)",
        "error_frame": "our error frame: the stream must not be taken for whole",
        "error_status": "the client got an HTTP error instead of what had come",
        "attempt_discarded": "a failed attempt, before any content: nobody saw it",
        "done_supplied": "a finished stream got its `[DONE]` (Q39)",
        "done_unfinished": "a `[DONE]` that completes nothing is withheld (Q37)",
        "done_withheld": "a second `[DONE]`, or one behind an error, is withheld (Q91)",
        "warning_text": "the visible warning of `on_partial = warn` and `both`",
        "warn_finish": "the `length` of `on_partial = warn`",
        "warn_done": "the `[DONE]` of `on_partial = warn`",
        "lifecycle": "a frame that tells the life of a tool call",
        "whole_object": "a whole `chat.completion` at the end of its own stream: its news alone go out (Q60)",
        "synthesised": "a stream made from a whole answer (Q96)",
    }
)
