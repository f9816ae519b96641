"""sqlite-vec and FTS5 in one database: any of the words, reciprocal ranks by hand; vectors are compared one by one."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pysqlite3
import sqlite_vec

from benches.baselines.peers.protocol import DEPTH, RRF_K, TOP, Peer, Rows, Where

if TYPE_CHECKING:
    import numpy as np


def opened(place: str, name: str) -> SqliteTables:
    """A database in a folder."""
    return SqliteTables(place, name)


class SqliteTables(Peer):
    """A table, its full-text index, and its vectors; a connection for each thread."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)
        self._connections = threading.local()

    def _connection(self) -> Any:
        if not hasattr(self._connections, "one"):
            connection = pysqlite3.connect(Path(self.place) / f"{self.name}.db")
            connection.enable_load_extension(True)
            sqlite_vec.load(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA mmap_size = 1000000000")
            self._connections.one = connection
        return self._connections.one

    def load(self, rows: Rows) -> None:
        connection = self._connection()
        dimensions = rows.vectors.shape[1]
        fields = "".join(f", {field} integer" for field in rows.fields)
        connection.execute("CREATE TABLE texts (id integer PRIMARY KEY, body text)")
        connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5(body, content='texts', content_rowid='id', tokenize='porter')"
        )
        connection.execute(
            f"CREATE VIRTUAL TABLE vectors USING vec0(embedding float[{dimensions}] distance_metric=cosine{fields})"
        )
        connection.executemany("INSERT INTO texts VALUES (?, ?)", enumerate(rows.texts))
        connection.executemany("INSERT INTO words (rowid, body) VALUES (?, ?)", enumerate(rows.texts))
        marks = ", ?" * (1 + len(rows.fields))
        columns = "".join(f", {field}" for field in rows.fields)
        connection.executemany(
            f"INSERT INTO vectors (rowid, embedding{columns}) VALUES (?{marks})",  # noqa: S608 - our own names
            ((row, vector.tobytes(), *rows.of(row).values()) for row, vector in enumerate(rows.vectors)),
        )
        connection.commit()

    def index(self, rows: Rows) -> None:
        self._connection().execute("INSERT INTO words (words) VALUES ('optimize')")
        self._connection().commit()

    def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[int]:
        wanted = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))
        by_words = self._connection().execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", [wanted, DEPTH]
        )
        scores: dict[int, float] = defaultdict(float)
        for ranked in ([row for (row,) in by_words.fetchall()], self._nearest(vector, DEPTH, None)):
            for rank, row in enumerate(ranked, start=1):
                scores[row] += 1 / (RRF_K + rank)
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:TOP]
        marks = ", ".join("?" * len(best))
        texts = f"SELECT id, body FROM texts WHERE id IN ({marks})"  # noqa: S608 - marks of parameters
        self._connection().execute(texts, best).fetchall()
        return best

    def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[int]:
        return self._nearest(vector, TOP, where)

    def _nearest(self, vector: np.ndarray[Any, Any], number: int, where: Where) -> list[int]:
        condition = "" if where is None else f" AND {where[0]} = ?"
        statement = f"SELECT rowid FROM vectors WHERE embedding MATCH ? AND k = ?{condition}"  # noqa: S608 - a name
        found = self._connection().execute(
            f"{statement} ORDER BY distance", [vector.tobytes(), number, *([] if where is None else [where[1]])]
        )
        return [row for (row,) in found.fetchall()]
