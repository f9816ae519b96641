"""Work on a whole collection: its indexes, its chunks, its chunk descriptions, its tables."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.filesize import decimal
from rich.markup import escape

from semlex.cli.context import MODEL, SERVER, Context, with_context
from semlex.cli.exit_codes import SOME_FILES
from semlex.cli.groups import CommandGroup
from semlex.cli.options import Flags, Source, Yes, integer, without_none
from semlex.cli.output import print_note
from semlex.cli.reports import print_enrichment, print_problems, print_report
from semlex.cli.terminal import counted, inform, messages, one_line, resumable
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.ingest.enrichment import Enrichment
    from semlex.ingest.progress import EnrichmentReport, IndexReport
    from semlex.settings.table import Settings
    from semlex.store.indexes.build import IndexesBuilt
    from semlex.store.indexes.estimate import IndexEstimate
    from semlex.store.indexes.options import VectorIndex
    from semlex.store.schema.registry import Step

maintain_app = typer.Typer(help=__doc__, cls=CommandGroup)


@maintain_app.command()
@with_context(*SERVER)
def migrate(
    context: Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be migrated.")] = False,
    as_sql: Annotated[bool, typer.Option("--sql", help="Print the SQL, for a role that can change tables.")] = False,
) -> None:
    """Migrate the tables of all collections to this version; opening a collection does that, too."""
    if as_sql and context.as_json:
        raise ConfigurationError("--sql prints SQL only: leave --json and --fields out")
    with context.client() as client:
        steps = client.migrate(dry_run=dry_run or as_sql)
    if as_sql:
        for entry in steps:
            sys.stdout.write(entry.script())
        return
    objects = [
        {"name": entry.name, "version": entry.version, "wanted": entry.wanted, "done": not dry_run} for entry in steps
    ]
    context.emit(objects, lambda: _print_steps(steps, "would be migrated" if dry_run else "migrated"))


def _print_steps(steps: list[Step], done: str) -> None:
    for entry in steps:
        messages.print(escape(one_line(f"{entry.name}: version {entry.version} {done} to {entry.wanted}")))
    if not steps:
        inform("nothing to migrate")


@maintain_app.command()
@with_context("collection", *SERVER)
def optimize(context: Context) -> None:
    """Merge the keyword index into few segments; useful after a large load."""
    with context.opened() as retriever, context.progress() as progress:
        merged = retriever.indexes.optimize(progress=progress)
    context.emit({"merged": merged}, lambda: inform(f"{counted(merged, 'segment')} merged"))


@maintain_app.command()
@with_context("collection", *SERVER)
def reindex(context: Context) -> None:
    """Rebuild the keyword index (bm25) from the stored texts; searches and writes continue."""
    with context.opened() as retriever, context.progress() as progress:
        rebuilt = retriever.indexes.rebuild_keyword(progress=progress)
    done = f"{counted(rebuilt.chunks, 'chunk')} indexed again, {counted(rebuilt.segments, 'segment')}"
    context.emit(rebuilt, lambda: inform(done))


@maintain_app.command()
@with_context("collection", *SERVER, *MODEL)
def rechunk(context: Context, *, options: Annotated[dict[str, Any], Flags("options.indexing:RechunkOptions")]) -> None:
    """Split documents again from their files: those that an older version split, or all if chunk sizes change."""
    with context.opened() as retriever, context.progress() as progress:
        report = retriever.documents.rechunk(**options, progress=progress)
    if options.get("dry_run") and not context.as_json:
        messages.print(
            f"{counted(report.changed, 'document')} would be split into {counted(report.chunks, 'chunk')}, "
            f"{report.embedded:,} of them embedded; {counted(report.unchanged, 'document')} would stay"
        )
        print_problems(report)
    else:
        context.emit(report, lambda: print_report(report))
    if report.failed:
        raise typer.Exit(SOME_FILES)


# Which options belong to which kind.
OPTIONS = {"hnsw": ("m", "ef_construction", "quantization"), "ivfflat": ("lists", "probes"), "none": ()}


@maintain_app.command()
@with_context("collection", *SERVER)
def create_index(
    context: Context,
    *,
    kind: Annotated[
        str | None, typer.Option(help="Kind of vector index, which replaces any other: hnsw, ivfflat or none.")
    ] = None,
    m: Annotated[int | None, integer("hnsw: connections per node; default: 16.")] = None,
    ef_construction: Annotated[int | None, integer("hnsw: candidates per node while building; default: 64.")] = None,
    quantization: Annotated[str | None, typer.Option(help="hnsw: halfvec or bit, for a smaller index.")] = None,
    lists: Annotated[int | None, integer("ivfflat: number of lists.")] = None,
    probes: Annotated[int | None, integer("ivfflat: lists to search.")] = None,
    concurrently: Annotated[
        bool, typer.Option("--concurrently", help="Let writers continue; takes about twice as long.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report the size, memory and time of the build.")
    ] = False,
) -> None:
    """Build the missing indexes of a collection, or another kind of vector index.

    It first reports the memory and time that this takes. Without options, it builds the vector index of the setting
    index_type; without that setting, it builds missing indexes, as a large load does automatically.
    """
    settings = context.settings()
    given = {"m": m, "ef_construction": ef_construction, "quantization": quantization, "lists": lists, "probes": probes}
    chosen = without_none(given)
    if kind is None and not chosen:
        kind = settings.vector_index
    if kind == "hnsw" or (kind is None and chosen.keys() & set(OPTIONS["hnsw"])):
        of_settings = {"m": settings.hnsw_m, "ef_construction": settings.hnsw_ef_construction}
        chosen = without_none(of_settings) | chosen
    index = _index(kind, chosen)
    with context.opened(settings) as retriever:
        estimate = retriever.indexes.estimate(index)
        if estimate is not None and not context.as_json:
            messages.print(_estimated(estimate))
        if dry_run:
            context.emit(
                {"estimate": None if estimate is None else asdict(estimate)},
                lambda: None if estimate else messages.print("no vector index has to be built"),
            )
            return
        with context.progress() as progress:
            built = retriever.indexes.create(index, concurrently=concurrently, progress=progress)
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
        raise ConfigurationError(f"an index of kind {kind} does not accept {named}: choose another --kind")
    return KINDS[kind](**given)


def _estimated(estimate: IndexEstimate) -> str:
    from semlex.progress import duration

    return (
        f"{counted(estimate.rows, 'vector')}: an index of about {decimal(estimate.index_bytes)}, built with "
        f"{decimal(estimate.granted_bytes)} of memory and {counted(estimate.workers, 'parallel worker')}, in very "
        f"roughly {duration(estimate.seconds)}"
    )


def _print_built(built: IndexesBuilt) -> None:
    print_note(*built.warnings)
    if built.busy:
        messages.print(escape(f"another process is building {', '.join(built.busy)}"))
    if built.dropped:
        inform(escape(f"dropped {', '.join(built.dropped)}"))
    done = f"built {', '.join(built)}" if built else "nothing was missing" if not built.busy else "nothing was built"
    inform(escape(done))


Report = TypeVar("Report")


@maintain_app.command()
@with_context("collection", ..., *SERVER, *MODEL, "enrichment_model")
def enrich(
    context: Context,
    *,
    source: Source = None,
    concurrency: Annotated[int, integer("Number of parallel requests, 1 to 64.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what it would cost; send nothing.")] = False,
    yes: Yes = False,
) -> None:
    """Let a language model describe each chunk that has no description, so that searches find it better.

    The titles and the text of each chunk are sent to the model. The same command continues an interrupted run.
    """
    from semlex.ingest.enrichment import Enrichment, checked_enrichment

    settings = context.settings()
    name = settings.enrichment_model
    if name is None or checked_enrichment(name) is None:
        raise ConfigurationError("name the language model that describes chunks: --enrich MODEL, as for --chat-model")
    if not dry_run:
        refuse_unasked(name, yes=yes)
    with resumable(), context.opened(settings, with_choice=True) as retriever:
        if dry_run or not yes:
            report = retriever.documents.enrich(name, source=source, dry_run=True)
            if not (dry_run and context.as_json):
                _print_estimate(report)
            if dry_run or not _agreed(report):
                context.emit(report, lambda: None)
                return
        with context.progress() as progress:
            report = retriever.documents.enrich(
                Enrichment(name, concurrency=concurrency), source=source, progress=progress
            )
    context.emit(report, lambda: print_enrichment(report))
    if lacks_descriptions(report):
        raise typer.Exit(SOME_FILES)


def lacks_descriptions(report: EnrichmentReport | None) -> bool:
    """Return whether some chunks did not get the description that they should have got."""
    return report is not None and bool(report.failed or report.left)


def refuse_unasked(model: str, *, yes: bool) -> None:
    """Refuse an unusable model, and refuse to continue without --yes if no terminal can ask for consent."""
    from semlex.chat import choose_chat_model

    choose_chat_model(model)
    if not yes and not _can_ask():
        raise ConfigurationError(
            "sending texts to a language model can cost money, and without a terminal semlex cannot ask: estimate with "
            "semlex maintain enrich --dry-run, and confirm with --yes"
        )


def filled(
    settings: Settings,
    fill: Callable[[Enrichment | None], Report],
    run_of: Callable[[Report], IndexReport],
    *,
    yes: bool,
) -> Report:
    """Fill a collection; if chunks are to be described, first show the cost and ask (see `refuse_unasked`)."""
    from semlex.ingest.enrichment import Enrichment, checked_enrichment

    name = settings.enrichment_model
    if name is None or checked_enrichment(name) is None:
        return fill(None)
    if yes:
        return fill(Enrichment(name))
    # This call stores the files and sends nothing, so a second call finds them unchanged.
    report = fill(Enrichment(name, dry_run=True))
    lines = run_of(report).enrichment
    if lines is not None:
        _print_estimate(lines)
        if _agreed(lines):
            run_of(report).enrichment = run_of(fill(Enrichment(name))).enrichment
    return report


def _print_estimate(report: EnrichmentReport) -> None:
    estimate = report.estimate
    if estimate is not None:
        chunks = counted(estimate.chunks, "chunk")
        messages.print(
            f"descriptions of {chunks} by {escape(one_line(report.model))}: about {estimate.tokens_in:,} tokens are "
            f"sent, at most {estimate.tokens_out:,} come back, as this collection counts tokens"
        )


def _agreed(report: EnrichmentReport) -> bool:
    if report.chunks == 0:
        inform("every chunk has its description")
        return False
    return typer.confirm("Send these chunks to the model?", err=True)


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
