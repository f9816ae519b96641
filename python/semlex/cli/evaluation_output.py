"""Reports of an evaluation: measures of each system, the advice on the fusion's weight, or JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.markup import escape

from semlex.cli.output import print_json, print_note
from semlex.cli.terminal import counted, messages, output

if TYPE_CHECKING:
    from semlex.evaluation import CalibrationReport, Report, TuningReport


def print_evaluation(report: Report, left_out: tuple[str, ...], *, as_json: bool) -> None:
    """Prints a line per system: its measures, and how sure the difference to the better leg is."""
    if as_json:
        for index, query in enumerate(report.queries):
            systems = {
                name: {measure: float(values[index]) for measure, values in system.values.items()}
                for name, system in report.systems.items()
            }
            print_json({"type": "query", "query_id": query, "systems": systems})
        figures = {
            name: {measure: system.mean(measure) for measure in report.measures} | {"p": system.p}
            for name, system in report.systems.items()
        }
        print_json(
            {
                "type": "summary",
                "queries": len(report.queries),
                "systems": figures,
                "baseline": report.baseline,
                "judged": report.judged,
                "embedding_model": report.embedding_model,
                "reranker_model": report.reranker_model,
                "routes": report.routes,
                "warnings": [*left_out, *report.warnings],
            }
        )
        return
    from rich.table import Table

    table = Table("search", *report.measures, "p", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, system in report.systems.items():
        cells = [_cell(system.mean(measure), report.best(measure)) for measure in report.measures]
        table.add_row(name, *cells, "baseline" if system.p is None else f"{system.p:.4f}")
    output.print(table)
    models = " · ".join(escape(model) for model in (report.embedding_model, report.reranker_model) if model)
    messages.print(f"[dim]{_queries(len(report.queries))} · * best · {models or 'keywords only'}[/dim]")
    if len(report.systems) > 1:
        messages.print(
            f"[dim]p: chance of such a difference in {report.measures[0]} from {report.baseline}, the better leg, "
            "if there were none (paired randomisation, two-sided)[/dim]"
        )
    if report.routes:
        counts = ", ".join(f"{number} {kind}" for kind, number in report.routes.items())
        messages.print(f"[dim]routed: {counts}[/dim]")
    _print_notes(left_out, report.warnings)


def _queries(count: int) -> str:
    return f"{count} {'query' if count == 1 else 'queries'}"


def _print_notes(left_out: tuple[str, ...], warnings: list[str]) -> None:
    for note in (*left_out, *warnings):
        print_note(note)


def _cell(mean: float | None, best: float | None) -> str:
    if mean is None:
        return "-"
    return f"[bold]{mean:.4f}*[/bold]" if mean == best else f"{mean:.4f} "


def print_tuning(report: TuningReport, left_out: tuple[str, ...]) -> None:
    """Prints the advice on the fusion's weight, with the measures behind it."""
    low, high = report.interval
    measure = f"ndcg@{report.k}"
    if report.keep_default:
        output.print(f"[bold]keep the default weight {report.default:g}[/bold]: {escape(report.reason)}")
    else:
        output.print(f"[bold]weight {report.suggested:g} for the vector leg[/bold]: {escape(report.reason)}")
    lines = {
        "queries": str(report.queries),
        "fusion": report.fusion,
        f"{measure}, default": f"{report.default_ndcg:.4f}  (weight {report.default:g})",
        f"{measure}, better leg": f"{report.leg_ndcg:.4f}  ({report.better_leg})",
        f"{measure}, held out": f"{report.held_out:.4f}  (p {report.p_against_leg:.4f} against the better leg)",
        "gain over the default": f"{report.gain:+.4f}  (95 % interval {low:+.4f} to {high:+.4f}, p {report.p:.4f})",
        "weights of the folds": ", ".join(
            f"{weight:g}" + (f" x {count}" if count > 1 else "")
            for weight, count in sorted(Counter(report.fold_weights).items())
        ),
        "best on all queries": f"{report.best:g}  ({measure} {report.curve[report.best]:.4f}, not held out)",
    }
    for name, value in lines.items():
        output.print(f"{name:24} {value}")
    _print_notes(left_out, report.warnings)


SHOWN_PROBABILITIES = (0.1, 0.25, 0.5, 0.75, 0.9)


def print_calibration(report: CalibrationReport, left_out: tuple[str, ...], kept: str) -> None:
    """Prints what was learned of cosines, how good that is on other queries, and where it was kept."""
    curve, figures = report.curve, report.curve.figures
    share = curve.relevant / curve.pairs
    pairs, relevant = counted(curve.pairs, "hit"), counted(curve.relevant, "hit")
    output.print(f"[bold]confidence = 1 / (1 + exp(-({curve.slope:.4g} x cosine {curve.intercept:+.4g})))[/bold]")
    reached = []
    for probability in SHOWN_PROBABILITIES:
        least = curve.similarity(probability)
        reached.append(f"{probability:g} " + ("never" if least is None else f"from {least:.3f}"))
    lines = {
        "model": curve.model,
        "learned from": f"{_queries(curve.queries)}, {pairs} to depth {curve.depth}, mode {curve.mode}",
        "relevant": f"{relevant} ({share:.1%}); {report.unjudged:,} without a judgement count as not",
        "calibration error": f"{figures.ece:.4f}  (one confidence for all: {figures.ece_base:.4f})",
        "Brier score": f"{figures.brier:.4f}  (one confidence for all: {figures.brier_base:.4f})",
        "area under ROC": "unknown: no part of the queries has hits of both kinds"
        if figures.auc is None
        else f"{figures.auc:.4f}  (the cosine itself: {figures.auc_cosine:.4f})",
        "confidence by cosine": ", ".join(reached),
    }
    for name, value in lines.items():
        output.print(f"{name:24} {escape(value)}")
    messages.print("[dim]errors and scores are of queries that the curve was not learned from[/dim]")
    messages.print(f"[dim]{escape(kept)}[/dim]")
    _print_notes(left_out, report.warnings)
