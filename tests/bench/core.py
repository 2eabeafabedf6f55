"""The work that is timed: bytes in to record lines, live fold and bytes out."""

from collections.abc import Iterable

from wiretape.events.core.settings import Facts
from wiretape.events.tape.record import encode
from wiretape.proxy.http1 import Headers
from wiretape.proxy.relay.recording import Recording
from wiretape.proxy.security.trace import trace_of


class Stream:
    """The state of one stream on the live path, without any byte that it has passed on."""

    def __init__(self) -> None:
        self.recording = Recording("s1", None, 0.0, trace_of("s1", Headers()), serve_on=False)
        recorder = self.recording.recorder
        opening = {"format": 1, "stream": "s1", "dialect": "chat", "created": 1}
        self.recording.emitted(
            [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": Facts().to_keys()})]
        )

    def read(self, t: int, data: bytes) -> tuple[bytes, bytes]:
        """The batch for the log and the batch for the client, one of each a read (design: one write, one send)."""
        records, frames = self.recording.read(t, data)
        return b"".join(map(encode, records)), b"".join(frames)


def live(reads: Iterable[bytes]) -> Stream:
    """A whole stream."""
    stream = Stream()
    for t, data in enumerate(reads, 1):
        stream.read(t, data)
    return stream
