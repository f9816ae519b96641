"""The same hand-written SQL with words of which any may occur."""

from __future__ import annotations

from benches.baselines.peers.sql_by_hand import ALL_WORDS, SqlByHand


def opened(place: str, name: str) -> SqlByHand:
    """A table in a database."""
    return SqlByHand(place, name, f"replace({ALL_WORDS}::text, ' & ', ' | ')::tsquery")
