"""TLS over any stream, so that one read of the socket is one read of what it carried.

trio's own SSLStream gives one record a read. Providers write one event a record, so that would undo what is gained by
joining all events of a socket read (five to eight times in bursts). This one gives all records that a read completed.
It sends no alert when it is closed: a close must never wait, and an answer says itself where it ends.
"""

import ssl
from pathlib import Path
from typing import Final

import trio

from ..limits import RECEIVE_BYTES_MAX, TLS_RECORDS_BYTES_MAX

__all__ = ["TlsStream", "client_context"]

_ALPN: Final = ("http/1.1",)


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """The system's trust store (or what SSL_CERT_FILE names), and on top whom the settings trust. There is no other."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    context.set_alpn_protocols(_ALPN)
    context.options |= ssl.OP_NO_RENEGOTIATION
    assert context.check_hostname, "certificates go with names"
    assert context.verify_mode is ssl.CERT_REQUIRED, "nobody is trusted unseen"
    return context


class TlsStream(trio.abc.Stream):
    """The client's side; one task may send while another receives, and a cancelled handshake or send ends its use."""

    def __init__(self, transport: trio.abc.Stream, context: ssl.SSLContext, host: str) -> None:
        self.transport = transport
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._sending = trio.Lock()
        self._torn: ssl.SSLError | None = None
        self._closed = False

    async def handshake(self) -> None:
        """Raises ssl.SSLError where the peer is not who it should be, or does not speak TLS."""
        while not self._shaken():
            await self._flush()
            await self._fill()
        await self._flush()

    def _shaken(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As trio's."""
        if data:  # nothing at all would be an end to OpenSSL
            try:
                self._tls.write(data)
            except ssl.SSLError as exc:
                raise trio.BrokenResourceError("TLS is torn") from exc
        await self._flush()

    async def wait_send_all_might_not_block(self) -> None:
        """As trio's."""
        await self.transport.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What one read of the transport completed; a cancelled call has lost nothing."""
        assert max_bytes in {None, RECEIVE_BYTES_MAX}, "a part of a read is never asked for"
        while True:
            if self._torn is not None:
                raise trio.BrokenResourceError("TLS is torn") from self._torn
            if self._closed:
                return b""
            if not self._incoming.pending:  # as after the handshake, whose last read may hold more
                await self._fill()
            if data := self._decrypted():
                return data
            if self._outgoing.pending:  # our answer to a change of keys
                await self._flush()

    def _decrypted(self) -> bytes:
        parts: list[bytes] = []
        try:
            while data := self._tls.read(TLS_RECORDS_BYTES_MAX):
                parts.append(data)
            self._closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as exc:
            self._torn = exc  # what came before it is delivered first
        return b"".join(parts)

    async def _fill(self) -> None:
        data = await self.transport.receive_some(RECEIVE_BYTES_MAX)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        # Whatever is taken out of the buffer must be on the wire before what comes behind it.
        async with self._sending:
            if pending := self._outgoing.read():
                await self.transport.send_all(pending)

    async def aclose(self) -> None:
        """Closes the transport."""
        await self.transport.aclose()
