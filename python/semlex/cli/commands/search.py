"""The commands that answer questions: ``semlex try`` and ``semlex search``."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from semlex.cli.context import load_settings, opened
from semlex.cli.options import (
    INT,
    SECONDS,
    AsJson,
    CollectionName,
    Database,
    DataDir,
    Device,
    Dimensions,
    KeepAlive,
    Language,
    Model,
    Reranker,
    existing_paths,
    filter_mapping,
    seconds,
    whole_number,
)
from semlex.cli.output import print_report, print_results
from semlex.cli.progress_bar import progress_bar
from semlex.cli.terminal import inform

Question = Annotated[
    list[str],
    typer.Argument(
        help="What to look for; quotes around it are not needed. It may begin with '-'; after '--' all is the question."
    ),
]
Fusion = Annotated[str, typer.Option("--fusion", help="How the legs are put together: completed, rrf or linear.")]
TopK = Annotated[
    int, typer.Option("--top-k", "-k", parser=whole_number, metavar=INT, help="Number of results, 1 to 1,000.")
]
Mode = Annotated[
    str | None, typer.Option("--mode", help="vector, keyword or hybrid; default: hybrid where both are possible.")
]


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
    [resolved] = existing_paths([path])
    # The folder's name is for people, the hash keeps folders of the same name apart.
    name = re.sub(r"[^a-z0-9]+", "_", resolved.name.lower()).strip("_")[:24]
    collection = f"try_{name}_{hashlib.sha256(str(resolved).encode()).hexdigest()[:8]}".replace("__", "_")
    settings = load_settings(
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
    settings = load_settings(
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
