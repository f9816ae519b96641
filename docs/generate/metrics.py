"""Metrics and spans: from their declarations."""

from __future__ import annotations

from docs.generate.markdown import table, text
from semlex.server.observability import METRICS
from semlex.telemetry import ERROR_TYPE, SPANS


def metrics() -> str:
    """Return the table of the metrics."""
    rows = (
        [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), _unit(name), text(meaning)]
        for name, (kind, labels, meaning) in METRICS.items()
    )
    return table(["metric", "kind", "labels", "unit", "meaning"], rows)


def spans() -> str:
    """Return the table of the spans."""
    rows = (
        [f"`{name}`", text(covers), ", ".join(f"`{one}`" for one in (*work.value[1:], *attributes, ERROR_TYPE))]
        for work, (name, covers, attributes) in SPANS.items()
    )
    return table(["span", "covers", "attributes"], rows)


def _unit(name: str) -> str:
    return next((unit for unit in ("seconds", "bytes") if unit in name), "")
