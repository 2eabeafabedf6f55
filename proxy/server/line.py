"""What the protocol of a client's connection needs of the connection itself"""

from typing import Protocol

__all__ = ["Line"]


class Line(Protocol):
    """What the protocol needs of its connection."""

    over: bool

    async def send(self, data: bytes) -> None:
        """Whole, or the connection is aborted; nothing where it is over."""

    def send_now(self, data: bytes) -> None:
        """As `send`, without waiting: what does not fit at once aborts the connection."""

    def has_left(self) -> bool:
        """Whether the client's end has come, past all that is not read yet."""
        ...

    def exchanged(self, *, stays: bool, read: bool) -> None:
        """An answer is whole: the connection waits for its next request, or ends."""

    def offer(self, data: bytes) -> bytes | None:
        """As much of it as can be sent without waiting: what is left, or None where nothing was sent."""

    def abort(self) -> None:
        """A reset where there is one."""

    def cut(self, *, framed: bool) -> None:
        """The end of an answer that is not whole, such that the client can tell."""

    def failed(self, exc: BaseException) -> None:
        """An app raised."""

    def refused(self, status: int) -> None:
        """A request that no app was asked, or whose body was no HTTP before it was answered."""
