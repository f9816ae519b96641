"""Judged sets on disk: BEIR's layout, or the files of TREC; every file may be gzipped.

::

    corpus.jsonl      {"_id": "d1", "title": "…", "text": "…"}, one a line
    queries.jsonl     {"_id": "q1", "text": "…"}, one a line; or queries.tsv / topics.tsv: id, tab, text
    qrels/test.tsv    query id, document id, relevance (a header is skipped); or TREC's four columns: query id, 0,
                      document id, relevance. Also read: qrels.tsv, qrels.txt
"""

from __future__ import annotations

import gzip
import json
import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.types.documents import Document
from semlex.validation import check_range
from semlex.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


CORPUS = ("corpus.jsonl",)
QUERIES = ("queries.jsonl", "queries.tsv", "topics.jsonl", "topics.tsv", "topics.txt")
QRELS = ("qrels.tsv", "qrels/test.tsv", "qrels.txt", "qrels")
_ID_NAMES = ("_id", "id", "doc_id", "docid", "docno", "query_id", "qid")
_TEXT_NAMES = ("text", "contents", "content", "body", "query", "title")
_OF_NUMBERS = " +-.,0123456789"  # 0.5 in the first line is a relevance that cannot be used, not a header
_SEED = 1


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """Queries (id -> text) with relevance (query id -> document id -> number, relevant from 1), in the same order."""

    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]
    left_out: tuple[str, ...] = ()  # why queries or judgements were left out

    def limited(self, count: int | None) -> JudgedSet:
        """Return a random sample of `count` queries, the same one every time; all queries for None."""
        if count is None or count >= len(self.queries):
            return self
        check_range("the number of queries", count, 1)
        chosen = set(random.Random(_SEED).sample(sorted(self.queries), count))  # noqa: S311 - no secret
        queries = {query: text for query, text in self.queries.items() if query in chosen}
        return replace(self, queries=queries, judgements={query: self.judgements[query] for query in queries})


def read_judged_set(
    folder: Path | None = None,
    *,
    queries: Path | None = None,
    judgements: Path | None = None,
    unanswerable: bool = False,
) -> JudgedSet:
    """Read queries and judgements; without `unanswerable`, leave out queries that have no relevant document."""
    texts = read_queries(queries or _find(folder, QUERIES, "queries"))
    judged = read_judgements(judgements or _find(folder, QRELS, "judgements"))
    answerable = {query for query, documents in judged.items() if any(value > 0 for value in documents.values())}
    wanted = judged.keys() if unanswerable else answerable
    usable = {query: text for query, text in texts.items() if query in wanted}
    left_out = [
        f"{count} of {total} {why}"
        for count, total, why in (
            (sum(query not in judged for query in texts), len(texts), "queries: not judged, left out"),
            (
                sum(query in judged and query not in wanted for query in texts),
                len(texts),
                "queries: no relevant document, left out",
            ),
            (sum(query not in texts for query in answerable), len(answerable), "judged queries: no text, left out"),
        )
        if count
    ]
    if not usable:
        raise ConfigurationError(
            f"no query has both a text and a relevant document: {len(texts)} texts were read, and judgements of "
            f"{len(judged)} queries, {len(answerable)} of them with a relevant document"
            + ("; are the ids the same in both files?" if texts and answerable else "")
        )
    return JudgedSet(usable, {query: judged[query] for query in usable}, tuple(left_out))


def read_corpus(folder: Path) -> Iterator[Document]:
    """Yield the documents of a set, title and text joined, in the order of the file; empty ones are left out."""
    path = _find(folder, CORPUS, "corpus")
    empty = True
    for number, entry in _objects(path):
        identifier = _field(entry, _ID_NAMES, path, number)
        parts = (entry.get("title"), next((entry[name] for name in _TEXT_NAMES[:-1] if name in entry), None))
        content = "\n".join(part for part in parts if isinstance(part, str) and part.strip())
        if content:
            empty = False
            yield Document(content, id=identifier)
    if empty:
        raise ConfigurationError(f"{path} holds no document with a text")


def read_queries(path: Path) -> dict[str, str]:
    """Read query id -> text, from JSON lines or from lines of id, tab, text."""
    if ".json" in path.name:
        return {
            _field(entry, _ID_NAMES, path, number): _field(entry, _TEXT_NAMES, path, number)
            for number, entry in _objects(path)
        }
    found = {}
    for number, line in _lines(path):
        identifier, tab, text = line.partition("\t")
        if not tab or not text.strip():
            raise ConfigurationError(f"{path.name}, line {number}: expected a query's id, a tab and its text")
        found[identifier.strip()] = text.strip()
    return found


def read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Read query id -> document id -> relevance, from BEIR's three columns or TREC's four."""
    found: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        columns = line.split("\t") if "\t" in line else line.split()
        shape_known = len(columns) in (3, 4)
        try:
            relevance = int(columns[-1]) if shape_known else None
        except ValueError:
            if number == 1 and columns[-1].strip(_OF_NUMBERS):
                continue  # the header
            relevance = None
        if relevance is None:
            raise ConfigurationError(
                f"{path.name}, line {number}: expected query id, document id and relevance (a whole number), or TREC's "
                "four columns"
            )
        found.setdefault(columns[0].strip(), {})[columns[-2].strip()] = relevance
    return found


def _find(folder: Path | None, names: tuple[str, ...], what: str) -> Path:
    if folder is None:
        raise ConfigurationError(f"the {what} are missing: give a folder, or the file")
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    for name in names:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise ConfigurationError(f"{folder} holds no {what}: looked for {', '.join(names)}, also with .gz")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigurationError(f"{path} cannot be read: {reason}") from None


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _lines(path):
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise ConfigurationError(f"{path.name}, line {number}: expected a JSON object")
        yield number, entry


def _field(entry: dict[str, Any], names: tuple[str, ...], path: Path, number: int) -> str:
    for name in names:
        value = entry.get(name)
        if isinstance(value, (str, int)) and str(value).strip():
            return str(value)
    raise ConfigurationError(f"{path.name}, line {number}: expected one of the fields {', '.join(names)}")


QUERIES_FILE, QRELS_FILE = "queries.tsv", "qrels.tsv"
HEADER = "query-id\tcorpus-id\tscore"
MAX_RELEVANCE = 3
_NUMBERED = re.compile(r"q([0-9]{1,9})")


class JudgementFolder:
    """A folder with ``queries.tsv`` and ``qrels.tsv``; one process at a time writes it, each file atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, dict[str, int]]:
        """Return question -> id -> relevance, for all judgements in the folder."""
        queries, judged = self._read()
        return {text: judged[query] for query, text in queries.items() if query in judged}

    def note(self, question: str, relevance: Mapping[str, int | None]) -> dict[str, int]:
        """Store judgements of a question, or delete those that are None; return all judgements of this question."""
        check_judgements(question, relevance)
        text = question_text(question)
        queries, judgements = self._read()
        query = next((one for one, known in queries.items() if known == text), None)
        if query is None:
            taken = [int(match[1]) for one in queries if (match := _NUMBERED.fullmatch(one))]
            query = f"q{max(taken, default=0) + 1}"
        own: dict[str, int | None] = {**judgements.get(query, {}), **relevance}
        kept = {judged: value for judged, value in own.items() if value is not None}
        if kept:
            queries[query], judgements[query] = text, kept
        else:
            queries.pop(query, None)
            judgements.pop(query, None)
        self._write(queries, judgements)
        return kept

    def _read(self) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
        queries, qrels = self.path / QUERIES_FILE, self.path / QRELS_FILE
        return (read_queries(queries) if queries.is_file() else {}, read_judgements(qrels) if qrels.is_file() else {})

    def _write(self, queries: Mapping[str, str], judgements: Mapping[str, Mapping[str, int]]) -> None:
        rows = [f"{query}\t{one}\t{value}" for query, own in judgements.items() for one, value in own.items()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path / QUERIES_FILE) as file:
                file.writelines(f"{query}\t{text}\n" for query, text in queries.items())
            with whole_file(self.path / QRELS_FILE) as file:
                file.writelines(f"{line}\n" for line in (HEADER, *rows))
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigurationError(f"{self.path} cannot be written: {reason}") from None


def check_judgements(question: str, relevance: Mapping[str, int | None]) -> None:
    """Refuse ids and questions that the files cannot contain."""
    for judged, value in relevance.items():
        if not is_column(judged):
            raise ConfigurationError(
                f"the id {judged[:80]!a} cannot be written to {QRELS_FILE}: it contains a tab or a line break, or "
                "begins or ends with a blank"
            )
        if value is not None:
            check_range("relevance", value, 0, MAX_RELEVANCE)
    if not question_text(question):
        raise ConfigurationError("a question must not be blank")


def question_text(question: str) -> str:
    """Return a question on one line, as in the file."""
    return " ".join(question.replace("\ufeff", " ").split())


def is_column(text: str) -> bool:
    """Return whether a file's column can store a text unchanged."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return text != "" and text == text.strip() and not any(mark in text for mark in "\t\r\n")
