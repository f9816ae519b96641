"""Run by the interpreter of the baseline's environment: ranks documents with bm25s.

Reads one JSON object from stdin: language (ISO 639-1), stemmer (name of a Snowball algorithm or null), documents and
queries (id -> text), k. Writes query id -> document id -> score to stdout.
"""

from __future__ import annotations

import json
import sys

import bm25s
import Stemmer

# Languages whose stop words bm25s has.
STOP_WORDS = {"da", "de", "en", "es", "fr", "it", "nl", "no", "pt", "ru", "sv", "tr"}


def main() -> None:
    """Reads, ranks and writes."""
    asked = json.load(sys.stdin)
    language, documents, queries = asked["language"], asked["documents"], asked["queries"]
    stemmer = Stemmer.Stemmer(asked["stemmer"]) if asked["stemmer"] else None
    stop_words = language if language in STOP_WORDS else []

    def tokens(texts: list[str], *, return_ids: bool) -> object:
        return bm25s.tokenize(texts, stopwords=stop_words, stemmer=stemmer, show_progress=False, return_ids=return_ids)

    index = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    index.index(tokens(list(documents.values()), return_ids=True), show_progress=False)
    names, run = list(documents), {}
    for query, text in queries.items():
        words = tokens([text], return_ids=False)
        found, scores = index.retrieve(words, k=min(asked["k"], len(names)), show_progress=False)
        pairs = zip(found[0].tolist(), scores[0].tolist(), strict=True)
        run[query] = {names[number]: score for number, score in pairs if score > 0}
    json.dump(run, sys.stdout)


if __name__ == "__main__":
    main()
