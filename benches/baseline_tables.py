"""Tables of other libraries: each is made by its library and filled from ours, on the same server, with the same rows.

A baseline is a module that runs in an environment of its own: it reads a JSON object from stdin, with ``do``, ``url``,
``table`` and ``dimensions`` and what else it needs, and writes JSON as its last line. ``do`` is ``create`` (the table
without what takes long to keep up to date), ``index`` (what was left out) or ``search``.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from benches.servers import vacuum
from semlex.store.schema.names import Names

ENVIRONMENT = {
    "PYTHONWARNINGS": "ignore",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    # Building an index that does not fit takes many times longer, and is not what is measured.
    "PGOPTIONS": "-c maintenance_work_mem=1GB",
}


@dataclass(frozen=True, slots=True)
class BaselineTable:
    """A table of another library.

    Attributes:
        python: Interpreter of the library's environment.
        module: What runs there.
        name: Of the table.
        columns: Of the table, each with what fills it from a row `r` of ours: id, content, embedding, metadata.
        options: What the module needs besides.
    """

    python: Path
    module: str
    name: str
    columns: dict[str, sql.Composable]
    options: dict[str, Any] = field(default_factory=dict)

    def ask(self, url: str, do: str, **asked: Any) -> Any:
        """What the module answers."""
        done = subprocess.run(
            [str(self.python), "-m", f"benches.baselines.{self.module}"],
            input=json.dumps({"do": do, "url": url, "table": self.name} | self.options | asked),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=Path(__file__).resolve().parent.parent,
            env=os.environ | ENVIRONMENT,
        )
        return json.loads(done.stdout.splitlines()[-1])

    def fill(self, url: str, collection: str) -> None:
        """Makes the table, unless it holds the rows of this collection already."""
        table = sql.Identifier(self.name)
        with psycopg.connect(url, autocommit=True) as connection:
            held, rows, dimensions = _source(connection, collection)
            mark = f"{held} {json.dumps(self.options, sort_keys=True)}"
            found = connection.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", [self.name]).fetchone()
            if found == (mark,):
                return
            print(f"  filling the table of {self.module}, for this run and later ones", flush=True)
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
            self.ask(url, "create", dimensions=dimensions)
            names = sql.SQL(", ").join(map(sql.Identifier, self.columns))
            values = sql.SQL(", ").join(self.columns.values())
            connection.execute(sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} AS r").format(table, names, values, rows))
            self.ask(url, "index", dimensions=dimensions)
            vacuum(url)
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, mark))


def _source(connection: psycopg.Connection[Any], collection: str) -> tuple[str, sql.Composed, int]:
    """Which collection it is, never the same for two, its rows, and their dimensions."""
    names = Names("semlex", collection)
    found = connection.execute(
        sql.SQL(
            "SELECT c.collection_id, v.version, v.dimensions FROM {} AS c JOIN {} AS v "
            "ON v.name = c.name AND v.version = c.embedding_version WHERE c.name = %s"
        ).format(names.registry, sql.Identifier(names.schema, "embedding_version")),
        [collection],
    ).fetchone()
    assert found is not None
    rows = sql.SQL(
        "(SELECT c.chunk_id AS id, c.chunk_text AS content, e.embedding::vector AS embedding, c.metadata "
        "FROM {} AS c JOIN {} AS e USING (document_id, chunk_id))"
    ).format(names.chunk, names.embedding(found[1]))
    return str(found[0]), rows, found[2]
