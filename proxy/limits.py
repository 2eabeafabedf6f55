"""Every bound of this package, with its unit in the name and its reason above it."""

from typing import Final

#: When nobody has answered a call for so long, readers call it abandoned: as long as hermes keeps a run of which nobody
#: asks (clients.md 7.2). Nothing is decided by it: a result that comes later still counts.
ABANDONED_AFTER_S: Final = 3_600.0

#: One head with its empty line; also one chunk size line, and all trailers of a body. Four times h11's default, because
#: providers send long cookies and policies.
HEAD_BYTES_MAX: Final = 64 * 1024

#: Headers of one message. Providers send 20 to 40.
HEADERS_MAX: Final = 1_000

#: 1xx responses before the final one. Go allows 5; a gateway that sends 102 every ten seconds reaches 60 before the
#: first-byte deadline.
INFORMATIONAL_MAX: Final = 100

#: Framing that a chunk may have besides twice its data: size, extension and line ends of an honest one.
CHUNK_BYTES_FREE: Final = 16

#: Framing beyond that in a whole body, as in Go: an upstream could send 64 KiB of extension for each byte.
CHUNK_EXCESS_BYTES_MAX: Final = 16 * 1024

#: One socket read: trio's default, and more than a provider writes at once.
RECEIVE_BYTES_MAX: Final = 64 * 1024

#: Reads of one connection without waiting, before other tasks run: each may contain 300 frames of 230 B.
READS_A_TURN: Final = 4

#: Plain text of all TLS records of one socket read, which is always longer.
TLS_RECORDS_BYTES_MAX: Final = RECEIVE_BYTES_MAX

#: One send, so that the write deadline measures progress and not the size of an upload. A request up to this size is
#: sent in one piece before anything is read: it fits the socket's buffer.
SEND_BYTES_MAX: Final = 64 * 1024

#: From the name look-up to the end of the TLS handshake, including the egress proxy.
CONNECT_TIMEOUT_S: Final = 10.0

#: Concurrent name look-ups, cancelled ones included. Only a resolver that hangs ever reaches it; later look-ups then
#: wait until the connect deadline.
LOOKUPS_MAX: Final = 64

#: Of one send; reading has no deadline here, the pump has one for the first byte and one for silence.
WRITE_TIMEOUT_S: Final = 30.0

#: After the terminator, to the end of the body: the final chunk is in the next packet, or it does not come.
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

#: Of a caller's hash in hex: 128 bits, so that no two callers are ever one.
CALLER_CHARS: Final = 32

#: After the last reader left, where the rest is wanted for its usage.
CLIENT_DRAIN_S: Final = 30.0

#: After the last reader left, where it may come back: an SDK's retry or a reload of a page.
CLIENT_KEEP_S: Final = 60.0

#: An upstream's error as the client gets it (U11); the longest one captured has 3 KB.
ERROR_BYTES_MAX: Final = 64 * 1024

#: Of what an upstream said that is no JSON: enough for the title and first lines of a page.
EXCERPT_CHARS_MAX: Final = 2_048

#: After a finish, for usage and the terminator (U25); providers send both in the same read.
FINISH_GRACE_S: Final = 2.0

#: To the head of an answer: the official SDKs' own timeout; reasoning models are silent for minutes.
FIRST_BYTE_TIMEOUT_S: Final = 600.0

#: Silence in a stream. Gateways that cut at 30 or 60 s cut long tool calls (users.md 9, 38).
IDLE_TIMEOUT_S: Final = 300.0

#: Silence towards the client: load balancers close after 60 s, some after 30.
KEEPALIVE_S: Final = 15.0

#: Of a key of our own (failures.md 6.6); `secrets.token_urlsafe(32)` gives 43.
KEY_CHARS_MIN: Final = 32

#: A file that holds one key; signed tokens reach 8 KiB.
KEY_FILE_BYTES_MAX: Final = 16 * 1024

#: A key shorter than this is a word, such as `EMPTY`, and masking it would change what an upstream said.
MASKED_CHARS_MIN: Final = 8

#: A request's body: images come as base64, and Quart's 16 MiB cut them (failures.md G14).
REQUEST_BYTES_MAX: Final = 128 * 1024 * 1024

#: As many as the hash has that it is for.
SALT_BYTES: Final = 32

#: From SIGTERM until running streams are ended; containers are killed after 30 s or more.
SHUTDOWN_DRAIN_S: Final = 30.0

#: An ordinary stream at its largest (failures.md V6), for those that began since the memory was looked at.
MEMORY_A_STREAM_BYTES: Final = 256 * 1024

#: Kept for one stream at its worst, three times the cap of an event (failures.md G13), and for a large request.
MEMORY_RESERVED_BYTES: Final = 32 * 1024 * 1024

#: Between two looks at the memory: one costs 10 us.
MEMORY_SAMPLE_S: Final = 0.25

#: At once: 31 to 90 KB and three descriptors each (failures.md L01).
STREAMS_MAX: Final = 1_000

#: Of silence, before a reader of `/events` gets a comment: proxies on the way close after 30 to 60 s.
FOLLOW_KEEPALIVE_S: Final = 15.0

#: What the log may still write at the end: stderr takes a line in microseconds, or nobody reads it.
LOG_CLOSE_S: Final = 0.5

#: Lines within this time of one that was written are written together: nobody sees it, and the thread sleeps.
LOG_GATHER_S: Final = 0.05

#: Lines that wait for stderr: a burst of a thousand streams that end at once.
LOG_LINES_MAX: Final = 2_000

#: Lines of one write: what a pipe holds.
LOG_TOGETHER_MAX: Final = 200

#: One value of a log line; longer ones are messages of somebody else's.
LOG_VALUE_CHARS_MAX: Final = 2_000

#: "Not found" is said at whole multiples of this after the request, so that its time does not tell a foreign stream
#: from none: to look at the first part of a tape takes 5 ms, on a busy machine 20.
NOT_FOUND_STEP_S: Final = 0.05

#: Records read without giving way to others: 3 ms with every fold of a summary.
SLICE_RECORDS: Final = 100

#: A running stream holds its client, its upstream and its tape.
DESCRIPTORS_A_STREAM: Final = 3

#: Kept for all else: listeners, the catalogue, the log, connections that are refused (P10).
DESCRIPTORS_RESERVED: Final = 64

#: Of an answer that says it failed; U11 sends 2 MB of HTML, and nobody reads more.
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

#: A request that is parsed on the loop: 1 ms; larger ones take a thread, or the loop would stall for everybody.
PARSE_INLINE_BYTES_MAX: Final = 256 * 1024

#: A wait that an upstream asks for is kept up to here; with a longer one the client decides for itself (U09).
RETRY_AFTER_MAX_S: Final = 10.0

#: Before the second attempt, and doubled before each later one: three attempts at a port where nobody listens take
#: less than 1 s (U01).
RETRY_FIRST_S: Final = 0.25

#: White space before the first byte that tells what an answer is.
SNIFF_BYTES_MAX: Final = 1_024

#: All of one chat stream: a million frames of 250 bytes (failures.md G14).
STREAM_BYTES_MAX: Final = 256 * 1024 * 1024

#: A body of an exchange up to here is read whole, so that it can be sent again; a longer one is relayed as it comes.
UPLOAD_INLINE_BYTES_MAX: Final = 256 * 1024

#: For a whole request body to arrive (C16).
UPLOAD_TIMEOUT_S: Final = 60.0

#: Emitted and not yet taken by the client; it goes on from the tape beyond that (C03: at most 1 MiB in the process).
WINDOW_BYTES_MAX: Final = 512 * 1024

#: Between two looks at what is too old, and at idle connections that their upstream will close.
EXPIRE_EVERY_S: Final = 60.0

#: After a second signal: to write the endings (P03).
SHUTDOWN_GRACE_S: Final = 1.0

#: Below it `doctor` says so: a fifth of what retention keeps by default.
DISK_BYTES_FEW: Final = 1024**3

#: Below it `doctor` calls it wrong: the largest stream and its request.
DISK_BYTES_NONE: Final = 384 * 1024**2

#: Of an upstream's capability document; hermes-agent's has some 5 KB.
DOCTOR_BODY_BYTES_MAX: Final = 1024 * 1024

#: A deadline that is checked so late means that this process was suspended. Its sockets are then read for as long
#: before any deadline is enforced.
LATE_S: Final = 1.0

#: For one answer that `doctor` asks for, from the name to the body.
DOCTOR_TIMEOUT_S: Final = 5.0

#: Of one running stream: client, upstream, tape.
STREAM_DESCRIPTORS: Final = 3

#: 128 is the kernel's usual cap; 1,000 clients that reconnect at once must not be turned away.
ACCEPT_BACKLOG: Final = 1_024

#: Between two log lines that no connection can be accepted: hypercorn wrote 70 tracebacks a second.
ACCEPT_LOG_S: Final = 1.0

#: After a failed accept, as in trio.
ACCEPT_RETRY_S: Final = 0.1

#: A request's body that the app has not received yet: four socket reads.
BODY_AHEAD_BYTES_MAX: Final = 256 * 1024
#: Between two looks whether the client has left while nothing is read from it: leaving must be noticed within 50 ms.
LEFT_LOOK_S: Final = 0.04

#: A client's connection without a request: above the 60 s of common load balancers and SDKs, so that they close first
#: and no request meets a closing connection.
CLIENT_IDLE_TIMEOUT_S: Final = 75.0

#: After a response to a request that was not read to its end, and for the TLS goodbye: what still comes is dropped
#: meanwhile, so that no reset overtakes the response.
LINGER_TIMEOUT_S: Final = 1.0

#: Requests that are kept until the response before them is complete; beyond it nothing more is read.
PIPELINED_BYTES_MAX: Final = 256 * 1024

#: From the first byte of a request's head to its last; also a TLS handshake.
REQUEST_HEAD_TIMEOUT_S: Final = 10.0

#: One send under TLS, so that the write deadline measures progress: one record.
SEND_PIECE_BYTES_MAX: Final = 16 * 1024

#: Sends of one connection without waiting, before other tasks run: a checkpoint costs 3 us, a send 8.
SENDS_A_TURN: Final = 16

#: For a client that vanished; slow readers have our own deadline. Linux counts a window that stays small as no
#: progress: with 30 s, a client that took 15 KB a second was reset at 30.4 s.
TCP_USER_TIMEOUT_MS: Final = 120_000

#: After the drain: for the last frames to reach their clients. SIGTERM to exit takes 35 s at most (failures.md G12).
SHUTDOWN_FLUSH_S: Final = 4.0

#: TCP has sixteen bits for it.
PORT_MAX: Final = 65_535

#: Streams whose owner is remembered after somebody asked for them: 2 MB.
OWNERS_MAX: Final = 10_000

#: Routes and models that are remembered to refuse streaming; a model's name is the caller's word.
UNSTREAMED_MAX: Final = 1_000

#: Frames of one socket read before others have their turn, where it has very many: 64 KiB of empty events are 9,000
#: frames and 100 ms. A read of honest frames has 300.
FRAMES_A_TURN_MAX: Final = 128

#: Of a caller's own key that is looked for in an upstream's error: shorter ones are words ("not-needed", "lm-studio").
CALLER_KEY_CHARS_MIN: Final = 20

#: Of an answer that waits, because a caller's key is in it and nothing has said yet whether it is an error: the longest
#: one captured has 3 KB, and nearly all begin with the word.
JUDGED_BYTES_MAX: Final = 16 * 1024

#: Calls with equal caller, id, name and arguments that are compared with a result, the latest ones: a provider that
#: reuses its ids makes hundreds in a week of `list_dir:0` without arguments.
SAME_CALLS_MAX: Final = 1_000

#: Arguments of the calls of one turn that are hashed to link results to them: 130,000 tokens, more than any model
#: sends in a turn, and 10 ms. Calls beyond it have no link and no duration.
DIGESTED_BYTES_MAX: Final = 512 * 1024

#: Bytes hashed at each end of a request that brings results, to recognise a retry: 1 MiB takes 0.5 ms, and a longer
#: request has an image in its middle.
REQUEST_END_BYTES: Final = 512 * 1024

#: How often a start looks again past readers that look whether a server runs, and after how long: each of them holds
#: the lock for 10 us. Half a second together, for a reader that was stopped inside.
LOCK_LOOKS_MAX: Final = 100
LOCK_LOOK_S: Final = 0.005

#: Pauses before a call that nobody knows is looked for again, while the upstream is awaited: a stream ends within
#: 0.25 s after its client has its last frame (DRAIN_TIMEOUT_S).
LOOK_UP_AGAIN_S: Final = (0.02, 0.1, 0.5)
