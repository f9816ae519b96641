"""The report of a proof as one HTML page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from semlex.proof.faults import KINDS
from semlex.proof.report import verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { padding: .3em .6em; border-bottom: 1px solid #ddd }
th { text-align: left } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td.bad { background: #fdd; font-weight: bold } .passed { color: #060 } .failed { color: #a00 }
small { color: #666 } pre { background: #f6f6f6; padding: .6em; overflow: auto }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #ddd } th, td { border-color: #444 } td.bad { background: #622 }
  .passed { color: #7c7 } .failed { color: #f88 } small { color: #999 } pre { background: #222 }
}
"""


def html_page(report: Mapping[str, Any]) -> str:
    """Return the page of a report (`ProofReport.to_dict`); it is self-contained."""
    result, style = verdict(report), "passed" if report["passed"] else "failed"
    minutes = report["seconds"] / 60
    summary = (
        f"<p>{report['tries']:,} tries in {minutes:.1f} minutes, {report['kills']:,} kills, crashes and "
        f"ended connections ({report['kills_per_minute']:g} a minute). Seed {report['seed']}, "
        f"{escape(report['started'])}.</p>"
    )
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>semlex prove: {result}</title>",
        f"<style>{STYLE}</style>",
        f"<h1>semlex prove: <span class={style}>{result}</span></h1>",
        summary,
        _table(report["scenarios"]),
        *(_faults(one) for one in report["scenarios"] if one["faults"]),
    ]
    if report["not_run"]:
        rows = "".join(f"<li>{escape(name)}: {escape(why)}" for name, why in report["not_run"].items())
        parts.append(f"<h2>Not run</h2><ul>{rows}</ul>")
    facts = {"server": report["server"], **report["versions"], "vectors": report["vectors"]}
    rows = "".join(f"<tr><th>{escape(name)}<td>{escape(str(value))}" for name, value in facts.items())
    parts.append(f"<h2>On what</h2><table>{rows}</table></html>")
    return "\n".join(parts)


def _table(scenarios: Iterable[Mapping[str, Any]]) -> str:
    heads = "".join(f"<th class=n>{name}" for name in ("tries", "kills", *KINDS, "seconds"))
    rows = []
    for one in scenarios:
        notes = "; ".join(f"{name}: {count:,}" for name, count in one["notes"].items())
        numbers = f"<td class=n>{one['tries']:,}<td class=n>{one['kills']:,}"
        numbers += "".join(f'<td class="n{" bad" if one[kind] else ""}">{one[kind]:,}' for kind in KINDS)
        small = f"<br><small>{escape(notes)}</small>" if notes else ""
        name = f"<b>{escape(one['name'])}</b><br>{escape(one['what'])}{small}"
        rows.append(f"<tr><td>{name}{numbers}<td class=n>{one['seconds']:,.0f}")
    return f"<table><tr><th>scenario{heads}{''.join(rows)}</table>"


def _faults(scenario: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<li>{escape(one['kind'])} in try {one['try']:,} (seed {escape(one['seed'])})<pre>{escape(one['what'])}</pre>"
        for one in scenario["faults"]
    )
    return f"<h2>{escape(scenario['name'])}</h2><ul>{rows}</ul>"
