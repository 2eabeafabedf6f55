"""The tool results that a request brings: looked up while the upstream is awaited, on the tape before the first frame

What is not known when the answer's head comes is left out, and nobody waits for it. The catalogue knows a call when its
stream has ended, which may be a moment after the client had all of it; so it is asked again while there is time.
"""

from dataclasses import replace
from typing import Any, Self

import trio

from wiretape.events.chat.results import Found, results_in

from ..limits import LOOK_UP_AGAIN_S
from ..store.catalogue_row import AnswerRow, digests, request_digest
from ..store.linking import Link
from .services import Services
from .stream_request import Order

__all__ = ["Answering"]


class Answering:
    """Of one stream; `look_up` runs in a task of its own, `keys` ends it."""

    def __init__(self, stream: str, order: Order, services: Services, found: Found, arrived_us: int) -> None:
        self._services = services
        self._found = found
        self._whole = services.config.requests == "full"
        self._request = request_digest(order.body) if isinstance(order.body, bytes) else ""
        hashes = digests(result.arguments for result in found.results)
        self._digests = {result.id: said for result, said in zip(found.results, hashes, strict=True)}
        self._rows = [
            AnswerRow(
                caller=order.caller,
                call=result.id,
                stream=stream,
                name=result.name,
                arguments=self._digests[result.id],
                after=found.after,
                failed=result.failed,
                arrived_us=arrived_us,
                request=self._request,
            )
            for result in found.results
            if not result.orphan
        ]
        self._links: dict[str, Link] = {}
        self._scope = trio.CancelScope()

    @classmethod
    def of(cls, stream: str, order: Order, services: Services, arrived_us: int) -> Self | None:
        """None where the request brings no results, as most do."""
        found = results_in(order.asked) if order.dialect == "chat" else None
        return None if found is None else cls(stream, order, services, found, arrived_us)

    def begin(self) -> None:
        """Retries find what it brings from now on; to be followed by `over`."""
        self._services.answers.enter(self._rows)

    async def look_up(self) -> None:
        """Until all is found, or `keys` is asked for; never raises."""
        running = self._services.answers
        with self._scope:
            for pause_s in (0.0, *LOOK_UP_AGAIN_S):
                await trio.sleep(pause_s)
                missing = [row for row in self._rows if row.call not in self._links]
                if not missing:
                    return
                try:
                    found = await self._services.store.find_calls(missing, running.like(missing))
                except Exception as error:  # noqa: BLE001 - the index is disposable, and the stream does without it
                    self._services.log.error("look_up_failed", why=repr(error))
                    return
                if self._scope.cancel_called:
                    return
                links = [(row, link) for row, link in zip(missing, found, strict=True) if link is not None]
                self._links |= {row.call: link for row, link in links}
                running.enter(replace(row, made_by=link.stream) for row, link in links)

    def keys(self) -> dict[str, Any]:
        """Of the `results` record; nothing is looked up after it."""
        self.stop()
        keys: dict[str, Any] = {"results": [], "after": self._found.after}
        for result in self._found.results:
            said: dict[str, Any] = {"id": result.id, "name": result.name}
            if result.orphan:
                said = {"id": result.id, "orphan": True}
            else:
                said["arguments"] = self._digests[result.id]
            if result.failed:
                said["failed"] = True
            if result.output and self._whole:
                said["output"] = result.output
            link = self._links.get(result.id)
            if link is not None:
                said |= {"duration_ms": link.duration_ms, "stream": link.stream}
            keys["results"].append(said)
        if self._request:
            keys["request"] = self._request
        if self._found.more:
            keys["more"] = self._found.more
        return keys

    def stop(self) -> None:
        """Nobody wants to know any more."""
        self._scope.cancel()

    def over(self) -> None:
        """Its stream has ended, and what it brought is in the catalogue if it ever will be."""
        self.stop()
        self._services.answers.leave(self._rows)
