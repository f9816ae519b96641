"""The command that builds the indexes of a collection: ``semlex create-index``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.context import SERVER, Context, with_context
from semlex.cli.options import INT, whole_number
from semlex.cli.output import print_note
from semlex.cli.terminal import inform, messages, one_line
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from semlex.store.indexes.build import IndexesBuilt
    from semlex.store.indexes.estimate import IndexEstimate
    from semlex.store.indexes.options import VectorIndex

# Which options belong to which kind.
OPTIONS = {"hnsw": ("m", "ef_construction", "quantization"), "ivfflat": ("lists", "probes"), "none": ()}


@with_context("collection", *SERVER)
def create_index(
    context: Context,
    *,
    kind: Annotated[
        str | None, typer.Option("--kind", help="Vector index in place of any other: hnsw, ivfflat or none.")
    ] = None,
    m: Annotated[
        int | None, typer.Option("--m", parser=whole_number, metavar=INT, help="hnsw: connections per node; 16.")
    ] = None,
    ef_construction: Annotated[
        int | None,
        typer.Option(
            "--ef-construction", parser=whole_number, metavar=INT, help="hnsw: candidates looked at while building; 64."
        ),
    ] = None,
    quantization: Annotated[
        str | None, typer.Option("--quantization", help="hnsw: halfvec or bit, for a smaller index.")
    ] = None,
    lists: Annotated[
        int | None, typer.Option("--lists", parser=whole_number, metavar=INT, help="ivfflat: number of lists.")
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option("--probes", parser=whole_number, metavar=INT, help="ivfflat: lists that a search looks into."),
    ] = None,
    concurrently: Annotated[
        bool, typer.Option("--concurrently", help="Let writers go on meanwhile; takes about twice as long.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would take.")] = False,
) -> None:
    """Build the indexes of a collection, or another kind of vector index.

    Says first what it takes. Without options it builds the index that the settings name (index_type, hnsw_m,
    hnsw_ef_construction), else what is missing, which a large load does by itself.
    """
    settings = context.settings()
    given = {
        "m": m,
        "ef_construction": ef_construction,
        "quantization": quantization,
        "lists": lists,
        "probes": probes,
    }
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if kind is None and not chosen:
        kind = settings.vector_index
    if kind == "hnsw" or (kind is None and chosen.keys() & {"m", "ef_construction", "quantization"}):
        of_settings = {"m": settings.hnsw_m, "ef_construction": settings.hnsw_ef_construction}
        chosen = {name: value for name, value in of_settings.items() if value is not None} | chosen
    index = _index(kind, chosen)
    with context.opened(settings) as retriever:
        estimate = retriever.estimate_index(index)
        if estimate is not None and not context.as_json:
            messages.print(_estimated(estimate))
        if dry_run:
            context.emit(
                {"estimate": None if estimate is None else asdict(estimate)},
                lambda: None if estimate else messages.print("no vector index has to be built"),
            )
            return
        with context.progress() as progress:
            built = retriever.create_index(index, concurrently=concurrently, progress=progress)
    value = {"built": list(built), "busy": built.busy, "dropped": built.dropped, "warnings": built.warnings}
    context.emit(value, lambda: _print_built(built))


def _index(kind: str | None, given: dict[str, Any]) -> VectorIndex | None:
    from semlex.store.indexes.options import KINDS

    if kind is None and not given:
        return None
    if kind is None:
        kind = next((name for name, options in OPTIONS.items() if given.keys() <= set(options)), "hnsw")
    if kind not in KINDS:
        raise ConfigurationError(f"--kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if others := sorted(given.keys() - set(OPTIONS[kind])):
        named = ", ".join(f"--{name.replace('_', '-')}" for name in others)
        raise ConfigurationError(f"an index of kind {kind} has no {named}")
    return KINDS[kind](**given)


def _estimated(estimate: IndexEstimate) -> str:
    return (
        f"{estimate.rows:,} vectors: an index of about {_size(estimate.index_bytes)}, built with "
        f"{_size(estimate.granted_bytes)} of memory and {estimate.workers} parallel workers, in very roughly "
        f"{_time(estimate.seconds)}"
    )


def _size(number: int) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.1f} MB"  # noqa: PLR2004 - a gigabyte


def _time(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"  # noqa: PLR2004 - readable


def _print_built(built: IndexesBuilt) -> None:
    for warning in built.warnings:
        print_note(one_line(warning))
    if built.busy:
        messages.print(escape(f"another process is building {', '.join(built.busy)}"))
    if built.dropped:
        inform(escape(f"dropped {', '.join(built.dropped)}"))
    done = f"built {', '.join(built)}" if built else "nothing was missing" if not built.busy else "nothing was built"
    inform(escape(done))
