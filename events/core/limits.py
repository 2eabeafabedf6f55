"""Every bound of the core, with its unit in the name and its reason above it."""

from typing import Final

#: One SSE line without its end. Base64 image events need more than 1 MiB; the largest captured JSON frame has 106 KB.
LINE_BYTES_MAX: Final = 8 * 1024 * 1024

#: One SSE block with the blank lines around it. An event rarely has two long lines, but may have 10^6 short ones.
EVENT_BYTES_MAX: Final = 8 * 1024 * 1024

#: One line of a tape: the largest event, all escaped and read byte by byte, is 6 x 8 MiB and 8 Mi cuts of 20 bytes.
TAPE_LINE_BYTES_MAX: Final = 256 * 1024 * 1024

#: Damages of one tape that are listed: a file of nothing but LF has one for every byte.
DAMAGES_MAX: Final = 1_000

#: Depth of JSON that only the standard library reads: it recurses, and Python 3.11 allows 1,000 frames in all.
JSON_NESTING_MAX: Final = 512

#: Values of one JSON text, counted by commas and opening brackets: 8 MB of escaped JSON, 30 MB of prose. So many small
#: ones take 50 MB and hold up other threads for 50 ms; 64 MB of `[],[],` took 2.1 GB and 5.6 s.
JSON_VALUES_MAX: Final = 500_000

#: The same for what our own lines say of reads, four numbers for each: a million reads take 0.2 GB.
TIMES_VALUES_MAX: Final = 4_000_000

#: Names, ids and arguments of all calls of a stream, and 16 KiB for each call and choice, which allows a thousand:
#: 15,000 took 25 MB, and a second at their finish. Beyond it, a stream ends as `limit`.
KEPT_CHARS_MAX: Final = 16 * 1024 * 1024

#: Frames of held tool calls together, 250 bytes for each frame of one character; beyond it, a stream ends as `limit`.
HELD_BYTES_MAX: Final = 64 * 1024 * 1024

#: Frames that wait for the first one with content, a few with any provider; beyond it they go out, without a retry.
UNDELIVERED_BYTES_MAX: Final = 256 * 1024

#: A whole answer, streamed or not. A longer one passes all the same, but is not read.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024

#: Calls that one piece of arguments is split into (dialects.md Q8): as many as OpenAI takes tools.
CALLS_IN_A_PIECE_MAX: Final = 128

#: Chunks with nothing but `{}` for arguments that wait for what comes next (dialects.md Q20): as many parallel calls.
CHUNKS_WAITING_MAX: Final = 128

#: A tool's name in pieces (dialects.md Q16): OpenAI takes at most 64. The rest is left out.
NAME_CHARS_MAX: Final = 1_024

#: Shapes of text frames that are learned in one attempt: a handful, or one a frame in streams with random padding.
SHAPES_MAX: Final = 64

#: Kinds of lists in a delta whose entries are numbered (reasoning details, annotations); no dialect has more than 3.
LISTS_OF_A_DELTA_MAX: Final = 16

#: Text of one turn of an agent in which its beginning is looked for a second time, mostly a sentence or two.
RETOLD_CHARS_MAX: Final = 64 * 1024
#: Shorter beginnings repeat by chance; the shortest seen is "It is " (clients.md 4).
RETOLD_CHARS_MIN: Final = 6
#: Places at once from which on it may be the same: a list whose lines begin alike has one for each.
RETOLD_PLACES_MAX: Final = 8

#: White space before a `<think>` that is waited for.
THINK_HEAD_CHARS_MAX: Final = 1_024

#: `input` and `output` of a lifecycle frame: a tool card shows a preview, the tape holds the whole.
PREVIEW_BYTES_MAX: Final = 2 * 1024

#: Tool results of one request that are reported and recorded: eight times as many as OpenAI takes in one message.
RESULTS_MAX: Final = 1_024

#: `label` of a lifecycle frame: one line of a tool card.
LABEL_CHARS_MAX: Final = 80

#: `emoji` of a lifecycle frame that an upstream chose: the longest of Unicode's own, a couple in two tones, has ten.
EMOJI_CHARS_MAX: Final = 16

#: `toolCallId` of a lifecycle frame: OpenAI's have 30 characters, LiteLLM's of a Gemini model contain some KiB.
CALL_ID_CHARS_MAX: Final = 16 * 1024

#: Raw bytes that are made a JSON string at once.
QUOTED_BYTES_MAX: Final = 256 * 1024

#: Characters of the id of a session of runs, by which its runs are found.
SESSION_CHARS_MAX: Final = 256

#: Text of an answer that is composed for another dialect: Responses repeats it whole at the end, and what waits for an
#: open call is kept. The longest answers have 0.6 MB (128,000 tokens). Beyond it, a stream ends as `limit`.
COMPOSED_CHARS_MAX: Final = 16 * 1024 * 1024

#: Text of frames that were sent without being read, until the reader takes it: a second of the fastest answers.
SKIPPED_BYTES_MAX: Final = 64 * 1024

#: An envelope of proofs, which a client sends back with every later request: Gemini's thought signatures have some KiB.
ENVELOPE_BYTES_MAX: Final = 64 * 1024

#: Name of a tool, and id of a call, upstream: OpenAI takes 64 characters of each, Anthropic 128 of a name.
TOOL_NAME_CHARS_MAX: Final = 64
CROSSED_ID_CHARS_MAX: Final = 64
