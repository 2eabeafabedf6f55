"""Every bound of this package, with its unit in the name and its reason above it."""

from typing import Final

#: A call without a result for this long is reported as abandoned: hermes keeps an unread run as long. A later result
#: still counts.
ABANDONED_AFTER_S: Final = 3_600.0

#: One head with its empty line; also one chunk size line, and all trailers of a body. Four times h11's default, because
#: providers send long cookies and policies.
HEAD_BYTES_MAX: Final = 64 * 1024

#: Headers of one message. Providers send 20 to 40.
HEADERS_MAX: Final = 1_000

#: 1xx responses before the final one. Go allows 5; a gateway that sends 102 every ten seconds reaches 60 before the
#: first-byte deadline.
INFORMATIONAL_MAX: Final = 100

#: One body or chunk, as its sender declares it: more than any file. Larger ones are refused before they are read.
BODY_BYTES_MAX: Final = 2**40

#: Framing that a chunk may have besides twice its data: size, extension and line ends of an honest one.
CHUNK_BYTES_FREE: Final = 16

#: Framing beyond that in a whole body, as in Go: an upstream could send 64 KiB of extension for each byte.
CHUNK_EXCESS_BYTES_MAX: Final = 16 * 1024

#: One socket read: trio's default, and more than a provider writes at once.
RECEIVE_BYTES_MAX: Final = 64 * 1024

#: Reads of one connection without waiting, before other tasks run: each may contain 300 frames of 230 B.
READS_A_TURN: Final = 4

#: One send, so that the write deadline measures progress, not the size of an upload. A request up to this size is
#: sent in one piece before anything is read: it fits the socket's buffer.
SEND_BYTES_MAX: Final = 64 * 1024

#: From the name look-up to the end of the TLS handshake, including the egress proxy.
CONNECT_TIMEOUT_S: Final = 10.0

#: Concurrent name look-ups, cancelled ones included. Only a resolver that hangs ever reaches it; later look-ups then
#: wait until the connect deadline.
LOOKUPS_MAX: Final = 64

#: One send. Reads have no deadline here; the relay has one for the first byte and one for silence.
WRITE_TIMEOUT_S: Final = 30.0

#: From the terminator to the end of the body: the final chunk is in the next packet, or it never comes.
DRAIN_TIMEOUT_S: Final = 0.25

#: Bytes in that time; an upstream that sends more has not ended.
DRAIN_BYTES_MAX: Final = 64 * 1024

#: Idle connections per origin; beyond it the oldest is closed.
IDLE_CONNECTIONS_MAX: Final = 100

#: A reused connection that closes within this time of a request, before any response, was closed while idle: the
#: request is sent again on a new one. Three round trips around the earth.
STALE_CONNECTION_S: Final = 1.0

#: Below the 60 s after which common load balancers close. An earlier close is noticed.
IDLE_CONNECTION_TIMEOUT_S: Final = 55.0

#: The first and two more: what both official SDKs do by themselves, so that one call costs no more than they expect.
ATTEMPTS: Final = 3

#: What a route may ask for; beyond it a failing provider is only hit harder.
ATTEMPTS_MAX: Final = 10

#: The beginning of an error's body that is searched for what the upstream refuses: the first lines name it.
SAID_BYTES_MAX: Final = 4_096

#: The highest limit that a route may set: more than any context has.
MAX_TOKENS_MAX: Final = 100_000_000

#: Length of a caller's hash in hex: 128 bits, so that no two callers collide.
CALLER_CHARS: Final = 32

#: How long a stream continues for its usage after the last reader left (`drain`).
CLIENT_DRAIN_S: Final = 30.0

#: How long a stream waits for a reader to return, such as an SDK's retry or a page reload (`keep`).
CLIENT_KEEP_S: Final = 60.0

#: An upstream's error as the client gets it (U11); the longest one captured has 3 KB.
ERROR_BYTES_MAX: Final = 64 * 1024

#: Excerpt of an upstream's body that is not JSON: the title and first lines of a page.
EXCERPT_CHARS_MAX: Final = 2_048

#: After a finish, for usage and the terminator (U25); providers send both in the same read.
FINISH_GRACE_S: Final = 2.0

#: From the request to the response head: the official SDKs' own timeout; reasoning models are silent for minutes.
FIRST_BYTE_TIMEOUT_S: Final = 600.0

#: Silence in a stream. Gateways that cut at 30 or 60 s cut long tool calls (users.md 9, 38).
IDLE_TIMEOUT_S: Final = 300.0

#: Silence towards the client: load balancers close after 60 s, some after 30.
KEEPALIVE_S: Final = 15.0

#: Shortest Wiretape key; `secrets.token_urlsafe(32)` gives 43.
KEY_CHARS_MIN: Final = 32

#: A file that holds one key; signed tokens reach 8 KiB.
KEY_FILE_BYTES_MAX: Final = 16 * 1024

#: Shorter keys are words such as `EMPTY`; masking them would change what an upstream sent.
MASKED_CHARS_MIN: Final = 8

#: A request's body: images come as base64, and Quart's 16 MiB cut them (failures.md G14).
REQUEST_BYTES_MAX: Final = 128 * 1024 * 1024

#: How long a browser may go on without asking for permission again. A page that was removed from `cors_origins` is
#: refused at once all the same.
PREFLIGHT_S: Final = 600

#: As long as the hash it salts.
SALT_BYTES: Final = 32

#: From SIGTERM until running streams are ended; containers are killed after 30 s or more.
SHUTDOWN_DRAIN_S: Final = 30.0

#: Charged for each stream besides its request, and for each reader of a tape: a large ordinary one.
MEMORY_A_STREAM_BYTES: Final = 256 * 1024

#: Reserve for what is not charged, and the same once more that only small charges may use: one stream at its worst,
#: three times the largest event, and a large request.
MEMORY_RESERVED_BYTES: Final = 32 * 1024 * 1024

#: A holder of no more is small: an ordinary stream with a request of 400 KB.
MEMORY_SMALL_BYTES: Final = 2 * 1024 * 1024

#: What a stream holds until a frame is whole is small up to here: streams whose frames do not end leave the rest to
#: requests.
MEMORY_HELD_SMALL_BYTES: Final = 32 * 1024

#: Between two measurements of memory; one costs 10 us.
MEMORY_SAMPLE_S: Final = 0.25

#: Concurrent streams: 31 to 90 KB and three descriptors each.
STREAMS_MAX: Final = 1_000

#: Active runs of one caller: hermes-agent's own limit.
RUNS_MAX: Final = 10

#: How long an active run goes on without a viewer: a phone in a tunnel, a closed lid.
RUNS_UNWATCHED_S: Final = 3_600.0

#: How long a run waits for tool outputs or an approval: over night.
RUNS_WAITING_S: Final = 86_400.0

#: How long a finished run is kept that no client has read: as long as tapes by default.
RUNS_UNREAD_S: Final = 604_800.0

#: Runs of one page: each is folded from its tapes.
RUNS_PAGE_MAX: Final = 100

#: How often a viewer's machine looks for the next turn of a run, which may begin on any other: less and less often.
RUN_LOOK_S: Final = 0.25
RUN_LOOK_MAX_S: Final = 2.0

#: How often a stream whose readers here have gone asks for those of other machines, whose leases last three times that.
READERS_ASKED_S: Final = 5.0

#: How often a machine looks for what others ask it; and how long it may take to answer: it may have to ask the upstream
#: of a run.
SHARED_LOOK_S: Final = 0.25
SHARED_ANSWER_S: Final = 40.0

#: Silence before a reader of `/events` gets a comment: proxies in between close after 30 to 60 s.
FOLLOW_KEEPALIVE_S: Final = 15.0

#: Time to write the last log lines at exit: stderr takes a line in microseconds unless its reader is gone.
LOG_CLOSE_S: Final = 0.5

#: Log lines within this time are written together, so that the thread can sleep.
LOG_GATHER_S: Final = 0.05

#: Lines that wait for stderr: a burst of a thousand streams that end at once.
LOG_LINES_MAX: Final = 2_000

#: Log lines in one write: what a pipe holds.
LOG_TOGETHER_MAX: Final = 200

#: One value of a log line; longer ones are messages from elsewhere.
LOG_VALUE_CHARS_MAX: Final = 2_000

#: "Not found" is sent at whole multiples of this after the request, so that its timing does not reveal another
#: caller's stream: reading the first part of a tape takes 5 ms, on a busy machine 20.
NOT_FOUND_STEP_S: Final = 0.05

#: What the inspect feed shows of the bytes of a record, and of each frame sent: more than a screen.
INSPECTED_BYTES_MAX: Final = 16 * 1024

#: Points of the picture of a stream in the list.
SPARK_POINTS: Final = 40

#: Tool calls in a row of the list, and characters of each name: what a row can show.
TOOLS_LISTED_MAX: Final = 32
TOOL_NAME_CHARS_MAX: Final = 64

#: Bytes of a stream that is compared by the server, which takes a second and ten times the memory.
COMPARED_BYTES_MAX: Final = 8 * 1024**2

#: Rows that wait for a slow follower of the list.
FOLLOWED_ROWS_MAX: Final = 10_000

#: After a stream ended, the rest before ended tapes are read again for the list and the search; the bytes read at once,
#: which take 0.3 ms; and the pause between, so that it takes 3 % of a core.
READING_REST_S: Final = 1.0
READING_BYTES: Final = 4 * 1024
READING_PACE_S: Final = 0.01

#: Text of one stream in the search: a book. SQLite indexes it in a second, in the catalogue's thread.
SEARCHED_CHARS_MAX: Final = 1_000_000

#: Records of the inspect feed with repairs before other tasks run: 1 ms if every frame was repaired in ten places.
INSPECTED_AT_ONCE: Final = 5

#: Records read before other tasks run: 3 ms with the summary fold.
SLICE_RECORDS: Final = 100

#: A running stream holds its client, its upstream and its tape.
DESCRIPTORS_A_STREAM: Final = 3

#: Reserve for everything else: listeners, the catalogue, the log, tapes that are read (P10).
DESCRIPTORS_RESERVED: Final = 64

#: Body of a failed response; U11 sends 2 MB of HTML.
ERROR_BODY_BYTES_MAX: Final = 8 * 1024 * 1024

#: The last send of a response cannot be cancelled, so it has a deadline.
FINAL_SEND_TIMEOUT_S: Final = 5.0

#: Output for each byte of a compressed response: text shrinks ten times, a bomb a thousand.
INFLATE_RATIO_MAX: Final = 100

#: Output of a compressed request before that ratio counts: a repeated log line shrinks three hundred times, and this is
#: more text than any model reads.
INFLATE_FREE_BYTES: Final = 8 * 1024 * 1024

#: Gzip members of a compressed request: bgzip, which begins one each 64 KiB, makes 2,000 of the largest. This many
#: empty ones take 50 ms.
INFLATE_MEMBERS_MAX: Final = 10_000

#: Input of one call of zlib, which copies the rest of its input at the end of each member.
INFLATE_SLICE_BYTES: Final = 16 * 1024

#: Threads that decompress requests. More would only share the processor, and an abandoned one cannot be stopped: it
#: must not take a thread that writes need.
INFLATED_AT_ONCE: Final = 4

#: Output of one decompression step: 64 KiB of text compressed twenty times would be 1.3 MB, and take 3 ms.
INFLATE_STEP_BYTES_MAX: Final = 256 * 1024

#: Steps of decompression between two looks at the account of memory.
INFLATE_STEPS: Final = 16

#: A request parsed on the loop takes 1 ms; larger ones go to a thread so that other streams do not stall.
PARSE_INLINE_BYTES_MAX: Final = 256 * 1024

#: Longest Retry-After that Wiretape waits for; with a longer one the client decides (U09).
RETRY_AFTER_MAX_S: Final = 10.0

#: Before the second attempt, doubled before each later one: three attempts at a closed port take less than 1 s (U01).
RETRY_FIRST_S: Final = 0.25

#: White space before the first byte that shows what a response is.
SNIFF_BYTES_MAX: Final = 1_024

#: One whole chat stream: a million frames of 250 bytes.
STREAM_BYTES_MAX: Final = 256 * 1024 * 1024

#: A request body up to this size is read whole so that it can be sent again; a larger one is relayed as it comes.
UPLOAD_INLINE_BYTES_MAX: Final = 256 * 1024

#: For the next part of a request's body, while Wiretape waits for it, and before its speed counts (C16).
UPLOAD_TIMEOUT_S: Final = 60.0

#: Average speed of a body after that: 8 kbit/s, a third of what GPRS manages. Apache asks for 500.
BODY_BYTES_A_SECOND_MIN: Final = 1_000

#: Frames emitted and not yet taken by the client; beyond it the client is served from the tape (C03).
WINDOW_BYTES_MAX: Final = 128 * 1024

#: What bytes that are read whole become: what came, joined, and a text with four bytes for each of its characters.
READ_WHOLE_TIMES: Final = 4

#: How often and after how long the store tries again where a descriptor, memory or a thread was missing: 5 s in all. A
#: moment without any passes as soon as another connection or stream ends.
PASSING_TRIES_MAX: Final = 100
PASSING_WAIT_S: Final = 0.05

#: Between two runs of retention, and of the check for idle upstream connections.
EXPIRE_EVERY_S: Final = 60.0

#: Tapes expire by age once in this time, and then at most one of so many parts of them all: a wrong clock makes all of
#: them old at once, and an operator has hours to see it in the log. A day is less than such a part of a week.
EXPIRE_AGED_EVERY_S: Final = 3_600.0
EXPIRE_PARTS: Final = 4

#: No tape expires by age for so long after the wall clock was set by more than that hour.
CLOCK_DOUBTED_S: Final = 24 * 3_600.0

#: After a second signal: to write the endings (P03).
SHUTDOWN_GRACE_S: Final = 1.0

#: `doctor` warns below this: a fifth of what retention keeps by default.
DISK_BYTES_FEW: Final = 1024**3

#: `doctor` reports an error below this: the largest stream and its request.
DISK_BYTES_NONE: Final = 384 * 1024**2

#: An upstream's capability document; hermes-agent's has about 5 KB.
DOCTOR_BODY_BYTES_MAX: Final = 1024 * 1024

#: A deadline that is checked so late means that this process was suspended. Its sockets are then read for as long
#: before any deadline is enforced.
LATE_S: Final = 1.0

#: One request of `doctor`, from the name look-up to the body.
DOCTOR_TIMEOUT_S: Final = 5.0

#: 128 is the kernel's usual cap; 1,000 clients that reconnect at once must not be turned away.
ACCEPT_BACKLOG: Final = 1_024

#: Connections accepted before other tasks run: with one, the last of a thousand clients waits for as many turns, and in
#: an attack each is long.
ACCEPTS_A_TURN: Final = 8

#: After a failed accept, as in trio.
ACCEPT_RETRY_S: Final = 0.1

#: Clients at once for each stream that may run: those that follow streams, and connections that SDKs keep open. An
#: idle one costs 10 KB.
CONNECTIONS_A_STREAM: Final = 4

#: Clients beyond one for each stream that the descriptor limit allows, for requests that start no stream; and as many
#: again that are refused at the same moment. The next one waits in the backlog.
CONNECTIONS_SPARE: Final = 12

#: Incomplete request heads of all clients: 4,000 times the 8 KiB of an honest head with a long key and cookies.
HEADS_BYTES_MAX: Final = 32 * 1024 * 1024

#: Between two log lines about one limit: an attack of hours must not fill a disk.
LIMITED_LOG_S: Final = 60.0

#: A request's body that the app has not received yet: four socket reads.
BODY_AHEAD_BYTES_MAX: Final = 256 * 1024
#: Between two checks for a disconnect while nothing is read from the client: it must be noticed within 50 ms.
LEFT_LOOK_S: Final = 0.04

#: A client's connection without a request: above the 60 s of common load balancers and SDKs, so that they close first
#: and no request meets a closing connection.
CLIENT_IDLE_TIMEOUT_S: Final = 75.0

#: After a response to a request that was not read to its end, and for the TLS goodbye: what still comes is dropped
#: meanwhile, so that no reset overtakes the response.
LINGER_TIMEOUT_S: Final = 1.0

#: Requests that are kept until the response before them is complete; beyond it nothing more is read.
PIPELINED_BYTES_MAX: Final = 256 * 1024

#: From the first byte of a request's head to its last; on a new connection already from its beginning.
REQUEST_HEAD_TIMEOUT_S: Final = 10.0

#: Sends of one connection without waiting, before other tasks run: a checkpoint costs 3 us, a send 8.
SENDS_A_TURN: Final = 16

#: For clients that vanished; slow readers have a deadline of their own. Linux counts a window that stays small as no
#: progress: with 30 s, a client that took 15 KB a second was reset at 30.4 s.
TCP_USER_TIMEOUT_MS: Final = 120_000

#: After the drain: for the last frames to reach their clients. SIGTERM to exit takes 35 s at most (failures.md G12).
SHUTDOWN_FLUSH_S: Final = 4.0

#: TCP has sixteen bits for it.
PORT_MAX: Final = 65_535

#: Streams whose owner is remembered after a look-up: 2 MB.
OWNERS_MAX: Final = 10_000

#: Of each thing that upstreams were found not to do; model names come from callers, so the number is bounded.
LEARNED_MAX: Final = 1_000

#: Answers that one request may continue, each by the id of the one before: more than any conversation has turns.
EARLIER_ANSWERS_MAX: Final = 1_000

#: An upstream that counts tokens: its answer is one number, and Claude Code waits for it.
COUNT_ANSWER_S: Final = 10.0
COUNT_ANSWER_BYTES_MAX: Final = 64 * 1024

#: The `X-Wiretape-Lost` header: more names than one request loses, within what every client reads.
LOST_BYTES_MAX: Final = 1_024

#: Frames of one socket read before other tasks run: 64 KiB of empty events are 9,000 frames and 100 ms. An ordinary
#: read has 300.
FRAMES_A_TURN_MAX: Final = 128

#: A longer read waits for its turn: 300 streams that are read as fast as they come would keep all others waiting 0.9 s
#: in each round of the scheduler. A model's frame has 300 bytes.
SHORT_READ_BYTES_MAX: Final = 8 * 1024

#: Shortest caller key to look for in an upstream's error; shorter ones are words ("not-needed", "lm-studio").
CALLER_KEY_CHARS_MIN: Final = 20

#: Bytes of a response that wait because they contain the caller's key and may be an error: the longest captured
#: error has 3 KB, and nearly all begin with the word.
JUDGED_BYTES_MAX: Final = 16 * 1024

#: Calls with equal caller, id, name and arguments that are compared with a result, the latest ones: a provider that
#: reuses its ids makes hundreds in a week of `list_dir:0` without arguments.
SAME_CALLS_MAX: Final = 1_000

#: Wait for what other processes know of streams: then what is here is served without it.
SOURCE_WAIT_S: Final = 2.0
#: A stream that has ended elsewhere is known here by then: it ends DRAIN_TIMEOUT_S after its client has the last frame,
#: and is shipped within 50 ms.
ELSEWHERE_LATE_S: Final = 0.5
ELSEWHERE_AGAIN_S: Final = 0.05

#: Clocks of machines that NTP keeps differ by milliseconds.
CLOCKS_APART_MAX_S: Final = 0.5

#: Pairs of a call and a result that are compared without a thread: 1.5 ms.
LINKED_INLINE_MAX: Final = 20_000

#: Arguments of the calls of one turn that are hashed to link results to them: 130,000 tokens, more than any model
#: sends in a turn, and 10 ms. Calls beyond it have no link and no duration.
DIGESTED_BYTES_MAX: Final = 512 * 1024

#: Bytes hashed at each end of a request that brings results, to recognise a retry: 1 MiB takes 0.5 ms, and a longer
#: request has an image in its middle.
REQUEST_END_BYTES: Final = 512 * 1024

#: How often and after how long a start tries the folder lock again: commands that check for a running server hold it
#: for 10 us. Half a second in all.
LOCK_LOOKS_MAX: Final = 100
LOCK_LOOK_S: Final = 0.005

#: Pauses before an unknown call is looked up again while the upstream works: a stream ends within 0.25 s after its
#: client has the last frame (DRAIN_TIMEOUT_S), and what ended in another process is known 20 to 50 ms later.
LOOK_UP_AGAIN_S: Final = (0.02, 0.04, 0.1, 0.5)

#: One answer of an upstream about a run, its output included.
RUN_ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024

#: One request about an upstream's run; hermes-agent answers them without its model.
RUN_ANSWER_S: Final = 30.0

#: Between two questions for the status of a run whose events broke.
RUN_POLL_S: Final = 5.0

#: An upstream that does not answer them for so long has lost the run: a restart of hermes-agent takes 20 s.
RUN_UNREACHABLE_S: Final = 60.0

#: Records of a tape that the export folds before other tasks run: a frame takes 12 us.
OTEL_SLICE_RECORDS: Final = 4

#: One request to a collector, about, since they take 4 MiB and more; the answer is a count and a sentence. How long the
#: first stream of one waits for others, and how long the collector may take, as OpenTelemetry has it.
OTEL_BATCH_BYTES: Final = 512 * 1024
OTEL_ANSWER_BYTES_MAX: Final = 64 * 1024
OTEL_GATHER_S: Final = 0.5
OTEL_TIMEOUT_S: Final = 10.0

#: The longest pause between two tries, unless the collector asks for more, and the most that it may ask for.
OTEL_RETRY_MAX_S: Final = 60.0
OTEL_RETRY_AFTER_MAX_S: Final = 3_600.0

#: Streams that wait in memory, 1 MB; beyond it the tapes are looked up again. And how far behind the cursor: two
#: streams that end at once may be exported in either order.
OTEL_QUEUE_MAX: Final = 10_000
OTEL_SLACK_S: Final = 5.0

#: How far a start looks back if the cursor cannot be right: it is not a number, or the clock was set back since.
OTEL_LOOK_BACK_S: Final = 86_400.0

#: A request whose messages become an attribute; events of one span, as OpenTelemetry has it; a silence that is one.
OTEL_CONTENT_BYTES_MAX: Final = 256 * 1024
OTEL_EVENTS_MAX: Final = 128
OTEL_SILENCE_US: Final = 5_000_000

#: Models that metrics tell apart.
METRICS_MODELS_MAX: Final = 20

#: A store in PostgreSQL: the longest silence before an answer; one statement with the way of its values, which may be
#: 100 MB; and how often the server looks whether anybody waits for its answer.
STORE_ANSWER_S: Final = 8.0
STORE_STATEMENT_S: Final = 300.0
STORE_LOOK_S: Final = 4.0

#: Questions to it at once, and how long those who follow rest after one that failed.
STORE_PLACES: Final = 4
STORE_PROBE_S: Final = 0.5

#: Streams of other proxies that are followed. Pauses between two looks: while records come, and in a silence;
#: compressed bytes that are unpacked without a thread; lines that wait for a slow reader; and the pause between two
#: looks for the ends of many streams.
TAIL_POLL_S: Final = (0.02, 0.25)
TAIL_INLINE_BYTES: Final = 64 * 1024
TAIL_WAITING_BYTES: Final = 256 * 1024
TAIL_LOOK_UP_S: Final = 0.1

#: How long a proxy that stops ships what its streams ended with; the next start ships the rest.
STORE_LAST_S: Final = 2.0

#: How far a machine's clock may be from the database's before `doctor` says so.
CLOCKS_APART_S: Final = 2.0

#: A proxy whose last sign of life is older is taken for dead: it gives one four times in this time.
STORE_DEAD_S: Final = 10.0

#: What one COPY hands to libpq at once: larger pieces are slower (psycopg's own bound).
STORE_COPY_BYTES: Final = 128 * 1024

#: Shipping to PostgreSQL. From the first record that waits until a pack is sent: one for each record would cost 60 us a
#: record. About how many bytes a pack has, is compressed on the loop (0.3 ms), and has of one tape.
SHIP_FLUSH_S: Final = 0.02
SHIP_FLUSH_BYTES: Final = 1024 * 1024
SHIP_INLINE_BYTES: Final = 512 * 1024
SHIP_READ_BYTES: Final = 64 * 1024

#: Bytes that wait in memory for the database; beyond it they are read from the tapes.
SHIP_HELD_BYTES_MAX: Final = 8 * 1024 * 1024

#: Streams that end within this time are sealed together.
SHIP_GATHER_S: Final = 0.05

#: Ended streams whose rows wait in memory (3 MB), streams found on disk at once (1 MB), and tapes
#: that are read together.
SHIP_QUEUE_MAX: Final = 1_000
SHIP_SCAN_MAX: Final = 10_000
SHIP_TAPES: Final = 64

#: How far behind the cursor a start looks: two streams that end at once may be sealed in either order. How often the
#: cursor is written.
SHIP_SLACK_S: Final = 5.0
SHIP_CURSOR_S: Final = 30.0

#: How long ago the tapes ended that are looked up again if the database lost what it had.
SHIP_LOST_S: Final = 3_600.0

#: The longest pause between two connections that fail, and between two looks at partitions and dead writers.
SHIP_RETRY_MAX_S: Final = 5.0
SHIP_TIDY_S: Final = 60.0

#: The smallest `memory_max_bytes`, for each worker: an idle process takes about as much.
MEMORY_MAX_BYTES_MIN: Final = 64 * 1024**2

#: Workers of one server: their number is one byte of a stream's id.
WORKERS_MAX: Final = 256

#: Before a worker that ended is started again: at first, and at most, which also is how long one must have run to be
#: restarted at once again.
RESTART_FIRST_S: Final = 0.1
RESTART_MOST_S: Final = 5.0

#: How long a request waits for a worker that is being restarted: an interpreter and a recovery take one to two seconds.
WORKER_AWAY_S: Final = 5.0

#: How long a question to another worker may take. One that is suspended is then answered for by its folder.
WORKER_ANSWER_S: Final = 1.0

#: How often it looks for that worker.
WORKER_LOOK_S: Final = 0.05
