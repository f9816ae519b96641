"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Database = Annotated[
    str | None, typer.Option("--database", help="libpq URL of the server; default: DATABASE_URL, else embedded.")
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder for the data of the embedded Postgres.")]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", help="Embedding model: name, folder, server (openai:NAME, …), 'static', or 'none' for keywords only."
    ),
]
Language = Annotated[str | None, typer.Option("--language", help="Language of a new collection's texts.")]
Device = Annotated[str | None, typer.Option("--device", help="mps, cuda or cpu; default: the best of this machine.")]
Dimensions = Annotated[
    int | None, typer.Option("--dimensions", help="Length of the vectors: they are cut to it; for static ones a check.")
]
Reranker = Annotated[
    str | None, typer.Option("--reranker", help="Name or folder of a reranker, score, none or auto; see the docs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, and no progress.")]
