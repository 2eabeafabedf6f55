"""Every bound of this room, unit in the name, reason beside it."""

from typing import Final

__all__ = [
    "CHUNK_BYTES_FREE",
    "CHUNK_EXCESS_BYTES_MAX",
    "CONNECT_TIMEOUT_S",
    "DRAIN_BYTES_MAX",
    "DRAIN_TIMEOUT_S",
    "HEADERS_MAX",
    "HEAD_BYTES_MAX",
    "IDLE_CONNECTIONS_MAX",
    "IDLE_CONNECTION_TIMEOUT_S",
    "INFORMATIONAL_MAX",
    "LOOKUPS_MAX",
    "RECEIVE_BYTES_MAX",
    "SEND_BYTES_MAX",
    "TLS_RECORDS_BYTES_MAX",
    "WRITE_TIMEOUT_S",
]

#: One header block, status line and blank line included; also one chunk header and all trailers of a body. Four times
#: what h11 takes by itself, because providers send long cookies and policies.
HEAD_BYTES_MAX: Final = 64 * 1024

#: Headers of one answer. Providers send 20 to 40.
HEADERS_MAX: Final = 1_000

#: 1xx answers before the one that counts. Go took 5; a gateway that says 102 every ten seconds reaches 60 until the
#: deadline for the first byte.
INFORMATIONAL_MAX: Final = 100

#: What a chunk may spend on its framing besides twice its data: size, extension and line ends of an honest one.
CHUNK_BYTES_FREE: Final = 16

#: Framing beyond that, over a whole body; as Go has it since an upstream could send 64 KiB of extension for each byte.
CHUNK_EXCESS_BYTES_MAX: Final = 16 * 1024

#: One socket read: what trio takes by default, and more than a provider writes at once.
RECEIVE_BYTES_MAX: Final = 64 * 1024

#: Plain text of all TLS records of one socket read: it is always shorter than the read.
TLS_RECORDS_BYTES_MAX: Final = RECEIVE_BYTES_MAX

#: One send, so that the write deadline measures progress and not the size of an upload. A request up to this size goes
#: out in one piece before anything is read: it fits the socket's buffer.
SEND_BYTES_MAX: Final = 64 * 1024

#: From the name to the end of the TLS handshake, the egress proxy's answer included.
CONNECT_TIMEOUT_S: Final = 10.0

#: Names that are looked up at once, those given up included. Upstreams come from the settings and are few, so only a
#: resolver that hangs ever reaches it; then later ones wait, and end at the connect deadline.
LOOKUPS_MAX: Final = 64

#: Of one send; reading has no deadline here, the pump has one for the first byte and one for silence.
WRITE_TIMEOUT_S: Final = 30.0

#: After the terminator, to the end of the body: the final chunk is in the next packet, or it does not come.
DRAIN_TIMEOUT_S: Final = 0.25

#: What may come in that time; who sends more has not ended.
DRAIN_BYTES_MAX: Final = 64 * 1024

#: Connections that wait for the next request, per origin. Beyond it the oldest is closed.
IDLE_CONNECTIONS_MAX: Final = 100

#: How long they wait: below the 60 s after which common load balancers close. Who closes earlier is noticed (U58).
IDLE_CONNECTION_TIMEOUT_S: Final = 55.0
