"""The command line: parse, call, print."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from semlex.cli.commands import sources
from semlex.cli.commands.config import config_app
from semlex.cli.commands.evaluate import evaluation_app
from semlex.cli.commands.models import doctor_app, models_app
from semlex.cli.commands.postgres import postgres_app
from semlex.cli.context import collection_names, opened
from semlex.cli.exit_codes import EXIT_CODES, SOME_FILES, exit_code
from semlex.cli.figures import print_collections, print_status
from semlex.cli.options import (
    INT,
    SECONDS,
    AsJson,
    ChunkTokens,
    CollectionName,
    Database,
    DataDir,
    Device,
    Dimensions,
    KeepAlive,
    Language,
    MainGroup,
    Model,
    OverlapTokens,
    QuestionCommand,
    Reranker,
    filter_mapping,
    seconds,
    whole_number,
)
from semlex.cli.output import print_json, print_report, print_results
from semlex.cli.progress_bar import progress_bar
from semlex.cli.terminal import counted, inform, messages, output, set_quiet, set_verbose
from semlex.errors import ConfigurationError, SemlexError

if TYPE_CHECKING:
    from semlex.settings.load import Settings

app = typer.Typer(
    name="semlex",
    help="Hybrid search on the Postgres you already have: vectors and words, fused, every score explained.\n\n"
    "The server is DATABASE_URL (or --database); without one, an embedded Postgres runs on this machine. What stays "
    "the same from run to run can come from the environment or a file: `semlex config` shows all settings.",
    epilog=EXIT_CODES,
    cls=MainGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models_app, name="models")
app.add_typer(doctor_app, name="doctor")
app.add_typer(evaluation_app, name="eval")
app.add_typer(config_app, name="config")
app.add_typer(postgres_app, name="postgres")
sources.register(app)

Question = Annotated[
    list[str],
    typer.Argument(
        help="What to look for; quotes around it are not needed. It may begin with '-'; after '--' all is the question."
    ),
]
Lexical = Annotated[
    str | None, typer.Option("--lexical", help="Keyword engine of a new collection: bm25 (default), tsvector, none, …")
]
Fusion = Annotated[str, typer.Option("--fusion", help="How the legs are put together: completed, rrf or linear.")]
TopK = Annotated[
    int, typer.Option("--top-k", "-k", parser=whole_number, metavar=INT, help="Number of results, 1 to 1,000.")
]
Mode = Annotated[
    str | None, typer.Option("--mode", help="vector, keyword or hybrid; default: hybrid where both are possible.")
]


def _existing(paths: list[Path]) -> list[Path]:
    """Absolute paths; refuses what is not there before anything is opened or made."""
    from semlex.ingest.files.discovery import checked_paths  # noqa: PLC0415 - `--help` should not load it

    return [path.resolve() for path in checked_paths(path.expanduser() for path in paths)]


def _settings(**arguments: Any) -> Settings:
    from semlex.settings.load import load_settings  # noqa: PLC0415 - `--help` should not load it

    return load_settings(**arguments)


def _show_version(wanted: bool) -> None:
    if wanted:
        from semlex import __version__  # noqa: PLC0415 - reads the package's metadata

        output.print(f"semlex {__version__}")
        raise typer.Exit


@app.callback()
def semlex(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Say which settings a collection does not follow; may stand behind a command, too."
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Only results, notes and errors, no progress; may stand behind a command, too."
        ),
    ] = False,
) -> None:
    """The options before a command."""
    del version
    if verbose and quiet:
        raise ConfigurationError("--verbose and --quiet exclude each other: give one of them")
    set_verbose(verbose)
    set_quiet(quiet)


@app.command("try", cls=QuestionCommand)
def try_folder(
    path: Annotated[Path, typer.Argument(help="File or folder with documents.")],
    question: Question,
    *,
    top_k: TopK = 5,
    mode: Mode = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    language: Language = None,
    as_json: AsJson = False,
) -> None:
    """Index a folder into a collection of its own and ask it a question.

    The second question to the same folder is quick: unchanged files are skipped.
    """
    [resolved] = _existing([path])
    # The folder's name is for people, the hash keeps folders of the same name apart.
    name = re.sub(r"[^a-z0-9]+", "_", resolved.name.lower()).strip("_")[:24]
    collection = f"try_{name}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}".replace("__", "_")
    settings = _settings(
        database_url=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        collection=collection,
        embedding_model=model,
        device=device,
        dimensions=dimensions,
        language=language,
    )
    with opened(settings, quiet=as_json, create=True, with_choice=True) as retriever:
        with progress_bar(shown=not as_json) as progress:
            report = retriever.index(
                resolved,
                progress=progress,
            )
        if not as_json:
            print_report(report, as_json=False)
        results = retriever.search(" ".join(question), top_k, mode=mode)
        print_results(results, as_json=as_json)
        if not as_json:
            again = f'semlex search "…" --collection {collection}'
            if database is not None:
                again += " --database …"  # it may hold a password
            if data_dir is not None:
                again += f" --data-dir {shlex.quote(str(data_dir))}"
            inform(f"[dim]ask again: {escape(again)}[/dim]")


@app.command()
def index(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    *,
    collection: CollectionName = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Name of the new source; default: its folder's name.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option("--include", help="Glob pattern of files to read; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Glob pattern to leave out; repeatable.")
    ] = None,
    recursive: Annotated[bool, typer.Option(help="Enter folders below.")] = True,
    chunk_tokens: ChunkTokens = None,
    overlap_tokens: OverlapTokens = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    language: Language = None,
    lexical: Lexical = None,
    as_json: AsJson = False,
) -> None:
    """Read files and folders, cut them, and store their chunks.

    Unchanged files are skipped; a changed file's chunks are replaced in one transaction. A file that cannot be read
    does not stop the run: it is listed at the end and the exit code is 5.
    """
    settings = _settings(
        database_url=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        collection=collection,
        embedding_model=model,
        device=device,
        dimensions=dimensions,
        language=language,
        lexical=lexical,
        chunk_tokens=chunk_tokens,
        overlap_tokens=overlap_tokens,
    )
    from semlex.ingest.files.roots import plan_places  # noqa: PLC0415 - `--help` should not load it

    found = _existing(paths)
    try:
        plan_places(found, {}, source)
    except ConfigurationError:  # the folders of a collection that is there may have other names
        if settings.collection not in collection_names(settings):
            raise
    with (
        opened(settings, quiet=as_json, create=True, with_choice=True) as retriever,
        progress_bar(shown=not as_json) as progress,
    ):
        report = retriever.index(
            *found,
            source=source,
            include=include or None,
            exclude=exclude or (),
            recursive=recursive,
            chunk_tokens=chunk_tokens,
            overlap_tokens=overlap_tokens,
            progress=progress,
        )
    print_report(report, as_json=as_json)
    if report.failed:
        raise typer.Exit(SOME_FILES)


@app.command(cls=QuestionCommand)
def search(
    question: Question,
    *,
    collection: CollectionName = None,
    top_k: TopK = 5,
    mode: Mode = None,
    fusion: Fusion = "completed",
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter", help="name=value; repeatable; all must hold. A number, true or false matches its text, too."
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            "--deadline", parser=seconds, metavar=SECONDS, help="Seconds; what has answered by then is the answer."
        ),
    ] = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    reranker: Reranker = None,
    as_json: AsJson = False,
) -> None:
    """Search a collection; prints place, scores of each leg, and an excerpt of every hit."""
    settings = _settings(
        database_url=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        collection=collection,
        embedding_model=model,
        reranker_model=reranker,
        device=device,
    )
    condition = filter_mapping(filters)
    with opened(settings, quiet=as_json) as retriever:
        results = retriever.search(" ".join(question), top_k, condition, mode=mode, fusion=fusion, deadline=deadline)
    print_results(results, as_json=as_json)


@app.command()
def embed(
    *,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    model: Model = None,
    device: Device = None,
    dimensions: Dimensions = None,
    as_json: AsJson = False,
) -> None:
    """Compute the vectors of chunks that have none, without reading the files again."""
    settings = _settings(
        database_url=database,
        data_dir=data_dir,
        keep_alive=keep_alive,
        collection=collection,
        embedding_model=model,
        device=device,
        dimensions=dimensions,
    )
    with opened(settings, quiet=as_json, with_choice=True) as retriever, progress_bar(shown=not as_json) as progress:
        written = retriever.embed_missing(progress=progress)
    if as_json:
        print_json({"embedded": written})
    else:
        inform(f"{counted(written, 'chunk')} embedded")


@app.command()
def optimize(
    *,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Merge a collection's keyword index to few, full segments; worth its time after a large load."""
    settings = _settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever, progress_bar(shown=not as_json) as progress:
        merged = retriever.optimize(progress=progress)
    if as_json:
        print_json({"merged": merged})
    else:
        inform(f"{counted(merged, 'segment')} merged")


@app.command()
def reindex(
    *,
    lexical: Annotated[bool, typer.Option("--lexical", help="The keyword index (engine bm25).")] = False,
    collection: CollectionName = None,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild an index from the stored texts, while the collection is searched and written."""
    if not lexical:
        raise ConfigurationError("say which index: --lexical")
    settings = _settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever, progress_bar(shown=not as_json) as progress:
        rebuilt = retriever.reindex_lexical(progress=progress)
    if as_json:
        print_json({"chunks": rebuilt.chunks, "segments": rebuilt.segments, "generation": rebuilt.generation})
    else:
        inform(f"{counted(rebuilt.chunks, 'chunk')} indexed anew, {counted(rebuilt.segments, 'segment')}")


@app.command()
def status(
    *,
    collection: CollectionName = None,
    exact: Annotated[bool, typer.Option("--exact", help="Count large tables, too, instead of estimating.")] = False,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Show a collection's figures: counts, model, server, the last run."""
    settings = _settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    with opened(settings, quiet=as_json) as retriever:
        figures = retriever.status(exact=exact)
    if as_json:
        print_json(figures)
        return
    print_status(figures)


@app.command()
def collections(
    *,
    header: Annotated[bool, typer.Option("--header/--no-header", help="Begin with the columns' titles.")] = True,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """List the collections with their documents, chunks, model and language."""
    from semlex.diagnostics.collections import list_counted  # noqa: PLC0415 - loads the driver; `--help` should not

    settings = _settings(database_url=database, data_dir=data_dir, keep_alive=keep_alive)
    found = list_counted(settings.url, settings.schema_name, settings.server_folder, settings.keep_alive)
    if not as_json:
        print_collections(found, header=header)
        return
    for entry in found:
        print_json(entry)


@app.command()
def drop(
    collection: Annotated[str, typer.Argument(help="Collection to drop.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    database: Database = None,
    data_dir: DataDir = None,
    keep_alive: KeepAlive = None,
    as_json: AsJson = False,
) -> None:
    """Drop a collection with everything in it."""
    settings = _settings(
        database_url=database, data_dir=data_dir, keep_alive=keep_alive, collection=collection, embedding_model="none"
    )
    if not yes:
        typer.confirm(f"Drop {collection} with everything in it?", abort=True, err=True)
    from semlex.diagnostics.collections import drop_one  # noqa: PLC0415 - loads the driver; `--help` should not

    drop_one(settings.url, settings.schema_name, collection, settings.server_folder, settings.keep_alive)
    if as_json:
        print_json({"collection": collection, "dropped": True})


def main() -> None:
    """Runs the command line; every error of ours becomes one line and its exit code."""
    try:
        app(prog_name="semlex")
    except SemlexError as error:
        messages.print(f"[red]error:[/red] {escape(str(error))}")
        raise SystemExit(exit_code(error)) from None
