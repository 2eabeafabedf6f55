"""The tool results that a request brings: linked to the calls they answer while the upstream is awaited.

They are recorded before the first frame. What is not known when the answer's head comes is left out, and nothing waits
for it. The catalogue knows a call once its stream has ended, which may be a moment after the client got it all, so it
is searched again while there is time.
"""

from dataclasses import replace
from typing import Any, Self

import trio

from wiretape.events.chat.results import Found, results_in

from ..limits import LOOK_UP_AGAIN_S
from ..store.catalogue_row import AnswerRow, digests, request_digest
from ..store.linking import Link, Running
from ..store.store import Store
from .stream_request import StreamRequest

__all__ = ["ToolResults"]


class ToolResults:
    """The results in one request; `look_up` runs in a task of its own until `keys` takes what it found."""

    def __init__(self, stream: str, request: StreamRequest, found: Found, running: Running, arrived_us: int) -> None:
        self._found = found
        self._running = running
        self._request_digest = request_digest(request.body) if isinstance(request.body, bytes) else ""
        hashes = digests(result.arguments for result in found.results)
        self._digests = {result.id: digest for result, digest in zip(found.results, hashes, strict=True)}
        self._rows = [
            AnswerRow(
                caller=request.caller,
                call=result.id,
                stream=stream,
                name=result.name,
                arguments=self._digests[result.id],
                after=found.after,
                failed=result.failed,
                arrived_us=arrived_us,
                request=self._request_digest,
            )
            for result in found.results
            if not result.orphan
        ]
        self._links: dict[str, Link] = {}
        self._scope = trio.CancelScope()

    @classmethod
    def of(cls, stream: str, request: StreamRequest, running: Running, arrived_us: int) -> Self | None:
        """Return the results in a request, which from now on are found by retries; None if it brings none, as most."""
        found = results_in(request.value) if request.dialect == "chat" else None
        if found is None:
            return None
        results = cls(stream, request, found, running, arrived_us)
        running.enter(results._rows)
        return results

    async def look_up(self, store: Store) -> None:
        """Search until every call is found or `stop` is called."""
        with self._scope:
            for pause_s in (0.0, *LOOK_UP_AGAIN_S):
                await trio.sleep(pause_s)
                missing = [row for row in self._rows if row.call not in self._links]
                if not missing:
                    return
                found = await store.find_calls(missing, self._running.like(missing))
                if self._scope.cancel_called:
                    return
                links = [(row, link) for row, link in zip(missing, found, strict=True) if link is not None]
                self._links |= {row.call: link for row, link in links}
                self._running.enter(replace(row, made_by=link.stream) for row, link in links)

    def keys(self, *, outputs: bool) -> dict[str, Any]:
        """End the search and return the keys of the `results` record, with the outputs if wanted."""
        self.stop()
        rows: list[dict[str, Any]] = []
        for result in self._found.results:
            row: dict[str, Any] = {"id": result.id, "name": result.name}
            if result.orphan:
                row = {"id": result.id, "orphan": True}
            else:
                row["arguments"] = self._digests[result.id]
            if result.failed:
                row["failed"] = True
            if result.output and outputs:
                row["output"] = result.output
            link = self._links.get(result.id)
            if link is not None:
                row |= {"duration_ms": link.duration_ms, "stream": link.stream}
            rows.append(row)
        keys: dict[str, Any] = {"results": rows, "after": self._found.after}
        if self._request_digest:
            keys["request"] = self._request_digest
        if self._found.more:
            keys["more"] = self._found.more
        return keys

    def stop(self) -> None:
        """End the search."""
        self._scope.cancel()

    def over(self) -> None:
        """Forget the results: their stream has ended, and the catalogue has them if it ever will."""
        self.stop()
        self._running.leave(self._rows)
