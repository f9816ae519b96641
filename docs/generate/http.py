"""The HTTP server: its statuses."""

from __future__ import annotations

from docs.generate.markdown import table, text
from semlex.server.request_context import REFUSALS


def statuses() -> str:
    """Return the table of the statuses."""
    return table(
        ["status", "cause", "what helps"],
        ([str(status), text(cause), text(remedy)] for status, (cause, remedy) in REFUSALS.items()),
    )
