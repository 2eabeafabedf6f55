"""Refused requests: counted, and logged as one line for each reason and minute, with how many there were."""

from collections.abc import Callable, Mapping
from typing import Any

from .key_patterns import masked_path
from .relay.http_responses import Answer

__all__ = ["Refusals"]


class Refusals:
    """What `count` and `warn` get: the first refusal for a reason at once, the rest of each minute with `sweep`."""

    def __init__(self, count: Callable[[int], None], warn: Callable[..., None]) -> None:
        self._count = count
        self._warn = warn
        #: By status and code: how many came since the last line, and the latest of them.
        self._since: dict[tuple[int, str], tuple[int, dict[str, object]]] = {}

    def head(self, status: int) -> None:
        """Note a request that never reached the app."""
        self._note(status, "bad_request", {"why": "It is not HTTP/1.1 (https on this port?)." if status == 400 else ""})

    def answered(self, answer: Answer, scope: Mapping[str, Any]) -> None:
        """Note a request that was answered with an error of ours. Neither its query nor its headers are kept."""
        code, why = (answer.fault.code or "", answer.fault.message) if answer.fault is not None else ("", "")
        where = {"method": scope["method"], "path": masked_path(scope["raw_path"]), "client": scope["client"][0]}
        self._note(answer.status, code, {**where, "why": why})

    def sweep(self) -> None:
        """Log what came since the last line; call it once a minute."""
        since, self._since = self._since, {}
        for (status, code), (count, fields) in since.items():
            if count:
                self._since[status, code] = 0, fields
                self._warn("refused", status=status, code=code, count=count, **fields)

    def _note(self, status: int, code: str, fields: dict[str, object]) -> None:
        self._count(status)
        count, _ = self._since.get((status, code), (-1, fields))
        self._since[status, code] = count + 1, fields
        if count < 0:
            self._warn("refused", status=status, code=code, count=1, **fields)
