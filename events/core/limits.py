"""Every bound of the core, with its unit in the name and its reason above it."""

from typing import Final

#: One SSE line without its end. Base64 image events need more than 1 MiB; the largest captured JSON frame has 106 KB.
LINE_BYTES_MAX: Final = 8 * 1024 * 1024

#: One SSE block from its first byte (stray blank lines before it included) to its blank line. As a line: one event
#: rarely has more than one long line, and 10^6 short `data:` lines must end too.
EVENT_BYTES_MAX: Final = 8 * 1024 * 1024

#: One line of a tape: an event of the full size whose every byte is escaped (six for one) and came in reads of its own
#: needs 6 x 8 MiB and 8 Mi cuts of about 20 bytes. A line beyond it is damage.
TAPE_LINE_BYTES_MAX: Final = 256 * 1024 * 1024

#: Damages of one tape that are listed: a file of nothing but LF has one for every byte.
DAMAGES_MAX: Final = 1_000

#: Depth of JSON that orjson refuses and the standard library reads: that one recurses, and whether it could must not
#: depend on the depth of the caller (Python 3.11 allows 1,000 frames in all; a request of ours is at about 100).
JSON_NESTING_MAX: Final = 512

#: What the live fold keeps of one stream together: names, ids and arguments of calls, and 1,024 for each call and each
#: choice. Twice the event cap is more than any answer needs; above it the stream ends as `limit`.
KEPT_CHARS_MAX: Final = 16 * 1024 * 1024

#: Frames of held tool calls together. A provider that sends one character a frame spends 250 bytes on it, so this is
#: reached long before the bound on arguments; the stream then ends as `limit`.
HELD_BYTES_MAX: Final = 64 * 1024 * 1024

#: Frames without content that wait for the first one with content. No provider sends more than a few; above the bound
#: they go out, and no other attempt may follow.
UNDELIVERED_BYTES_MAX: Final = 256 * 1024

#: A whole answer, read where a stream was due or because none was asked for. Its bytes pass however many they are; a
#: longer one is not folded.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024

#: Calls that one piece of arguments is split into (dialects.md Q8). `{}{}{}` in a frame of the full size would be four
#: million; OpenAI takes at most 128 tools.
CALLS_IN_A_PIECE_MAX: Final = 128

#: Chunks with nothing but `{}` for arguments that wait for what comes next (dialects.md Q20): as many parallel calls,
#: and together no more than UNDELIVERED_BYTES_MAX.
CHUNKS_WAITING_MAX: Final = 128

#: A tool's name in pieces (dialects.md Q16): OpenAI takes at most 64. The rest is left out.
NAME_CHARS_MAX: Final = 1_024

#: Shapes of text frames that are learned in one attempt. Streams with padding that differs from frame to frame never
#: repeat one (dialects.md), others have a handful: a new one for each change of reasoning, text and call.
SHAPES_MAX: Final = 64

#: Kinds of lists in a delta whose entries are numbered (reasoning details, annotations); no dialect has more than 3.
LISTS_OF_A_DELTA_MAX: Final = 16

#: Text of one turn of an agent in which its beginning is looked for a second time; what was said before a call that
#: broke is a sentence or two. Below six characters ("It is ", the shortest seen: clients.md 4) texts repeat by chance.
RETOLD_CHARS_MAX: Final = 64 * 1024
RETOLD_CHARS_MIN: Final = 6
#: Places at once from which on it may be the same: a list whose lines begin alike has one for each.
RETOLD_PLACES_MAX: Final = 8

#: White space before a `<think>` that is waited for.
THINK_HEAD_CHARS_MAX: Final = 1_024

#: `input` and `output` of a lifecycle frame: a tool card shows a preview, the tape holds the whole.
PREVIEW_BYTES_MAX: Final = 2 * 1024

#: Tool results of one request that are reported and recorded: eight times the calls that OpenAI takes in one message.
#: With a preview each they are 2 MiB.
RESULTS_MAX: Final = 1_024

#: `label` of a lifecycle frame: one line of a tool card.
LABEL_CHARS_MAX: Final = 80

#: `emoji` of a lifecycle frame that an upstream chose: the longest of Unicode's own, a couple in two tones, has ten.
EMOJI_CHARS_MAX: Final = 16

#: `toolCallId` of a lifecycle frame, which must be the very id of the call: OpenAI's have 30 characters, LiteLLM's of a
#: Gemini model hold a signature of some KiB. A call with a longer one gets no frame.
CALL_ID_CHARS_MAX: Final = 16 * 1024

#: Raw bytes that are made a JSON string at once.
QUOTED_BYTES_MAX: Final = 256 * 1024
