"""Judgements that people make one after another, in the files that `read_judged_set` reads."""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.evaluation.datasets import read_judgements, read_queries
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

QUERIES, QRELS = "queries.tsv", "qrels.tsv"
HEADER = "query-id\tcorpus-id\tscore"
MAX_RELEVANCE = 3
_NUMBERED = re.compile(r"q([0-9]{1,9})")


class JudgementFolder:
    """A folder with ``queries.tsv`` and ``qrels.tsv``, made when the first judgement is noted.

    One process writes it at a time; each file is replaced as a whole, the queries first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, dict[str, int]]:
        """Question -> id -> relevance, of all that was noted."""
        queries, judged = self._read()
        return {text: judged[query] for query, text in queries.items() if query in judged}

    def note(self, question: str, relevance: Mapping[str, int | None]) -> dict[str, int]:
        """Notes what was judged for a question, and returns all that is judged for it."""
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
        queries, qrels = self.path / QUERIES, self.path / QRELS
        return (
            read_queries(queries) if queries.is_file() else {},
            read_judgements(qrels) if qrels.is_file() else {},
        )

    def _write(self, queries: Mapping[str, str], judgements: Mapping[str, Mapping[str, int]]) -> None:
        rows = [f"{query}\t{one}\t{value}" for query, own in judgements.items() for one, value in own.items()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _replace(self.path / QUERIES, [f"{query}\t{text}" for query, text in queries.items()])
            _replace(self.path / QRELS, [HEADER, *rows])
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigurationError(f"{self.path} cannot be written: {reason}") from None


def check_judgements(question: str, relevance: Mapping[str, int | None]) -> None:
    """Refuses what cannot stand in the files."""
    for judged, value in relevance.items():
        if not is_column(judged):
            raise ConfigurationError(
                f"the id {judged[:80]!a} cannot stand in {QRELS}: it has a tab, a line break, or blanks at an end"
            )
        if value is not None:
            check_range("relevance", value, 0, MAX_RELEVANCE)
    if not question_text(question):
        raise ConfigurationError("a question must not be blank")


def question_text(question: str) -> str:
    """A question on one line, as it stands in the file."""
    return " ".join(question.replace("\ufeff", " ").split())


def is_column(text: str) -> bool:
    """Whether a text comes back as it is from a column of a file."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return text != "" and text == text.strip() and not any(mark in text for mark in "\t\r\n")


def _replace(path: Path, lines: list[str]) -> None:
    """Writes a file as a whole: whoever reads it sees the old one or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{line}\n" for line in lines)
        os.replace(name, path)  # noqa: PTH105 - of two texts
    except BaseException:
        os.unlink(name)  # noqa: PTH108 - likewise
        raise
