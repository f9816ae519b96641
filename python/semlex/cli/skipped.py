"""What an indexing run left out, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.ingest.loaders.registry import WITH_EXTRA

if TYPE_CHECKING:
    from collections.abc import Mapping

# Kinds of files, and names of generated ones, that are named; of the others only the number is told.
SHOWN_KINDS = 6
_SAID = {"ignored": "by .gitignore", "bad_text": "with bad text"}


def skipped_line(skipped: Mapping[str, Mapping[str, int]]) -> str:
    """What was left out, by reason."""
    formats = skipped.get("format", {})
    by_extra: dict[str, dict[str, int]] = {}
    for suffix, count in formats.items():
        by_extra.setdefault(WITH_EXTRA.get(suffix.removeprefix("."), ""), {})[suffix] = count
    parts = []
    for extra, counts in sorted(by_extra.items(), reverse=True):  # those without an extra come last
        reads = f' (pip install "semlex[{extra}]" reads them)' if extra else ""
        parts.append(_counts(counts) + reads)
    for reason in sorted(skipped.keys() - {"format"}, key=lambda one: (one != "ignored", one)):
        left_out = skipped[reason]
        said = _SAID.get(reason, reason)
        names = f" ({_names(left_out)})" if reason == "generated" else ""
        parts.append(f"{sum(left_out.values()):,} {said}{names}")
    return f"skipped: {', '.join(parts)}"


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [f"{count:,} {suffix}" for suffix, count in ordered[:SHOWN_KINDS]]
    if rest := sum(count for _, count in ordered[SHOWN_KINDS:]):
        shown.append(f"{rest:,} of other kinds")
    return ", ".join(shown)


def _names(counts: Mapping[str, int]) -> str:
    return ", ".join([*sorted(counts)[:SHOWN_KINDS], *(["…"] if len(counts) > SHOWN_KINDS else [])])
