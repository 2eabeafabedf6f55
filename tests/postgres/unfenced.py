"""`wiretape` without the fence, as a negative control: python -m tests.postgres.unfenced serve ...

Every statement takes its writer for the holder of the name, and every stream for a running one. The product
has no such switch: the conditions are cut out of its statements here.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final

from wiretape.proxy.cli.main import main
from wiretape.proxy.store.postgres import sealing
from wiretape.proxy.store.postgres.connection import Connection

_FENCE: Final = "AND epoch = $2::bigint AND holder IS NOT DISTINCT FROM $3::text"
_UNSEALED: Final = "WHERE NOT EXISTS (SELECT FROM wiretape.stream s WHERE s.id = given.id AND s.sealed IS NOT NULL)"
#: The values stay in use, for their types.
_NO_FENCE: Final = "AND ($2::bigint, $3::text) IS NOT NULL"


def unfence() -> None:
    """Cut the conditions out of every statement from here on."""
    seal = sealing._SEAL  # pyright: ignore[reportPrivateUsage] - what is to be broken
    assert _FENCE in sealing.MINE
    assert _UNSEALED in seal
    execute = Connection.execute

    async def unfenced(self: Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if sql == sealing.ENDED:
            return []
        return await execute(self, sql.replace(_FENCE, _NO_FENCE).replace(_UNSEALED, ""), values)

    setattr(Connection, "execute", unfenced)  # noqa: B010 - type checkers allow no assignment


if __name__ == "__main__":
    unfence()
    main(sys.argv[1:])
