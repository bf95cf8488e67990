"""Where nothing fits: what would, looked for while the terminal says what is being tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rpeg.search import Infeasible


@contextmanager
def saying_ways_out() -> Iterator[None]:
    """Infeasible leaves with the changes that would make the problem fit; Ctrl-C ends the search for more of them."""
    from rpeg.search import Infeasible

    try:
        yield
    except Infeasible as error:
        raise _with_ways(error) from None


def _with_ways(error: Infeasible) -> Infeasible:
    from rich.console import Console

    from rpeg.search import can_fit, ways_out
    from rpeg.search.changes import Change

    found: list[Change] = []
    with Console(stderr=True).status("nothing fits; looking for what would (Ctrl-C to stop) …") as status:
        try:
            for change in ways_out(error, can_fit, lambda words: status.update(f"nothing fits; {words}? …")):
                found.append(change)
        except KeyboardInterrupt:
            return error.with_ways(found) if found else error
    return error.with_ways(found)
