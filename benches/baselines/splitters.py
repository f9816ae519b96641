"""Runs in an environment of its own: cuts texts with langchain-text-splitters and with semantic-text-splitter.

The first line of stdin is a JSON object: `texts`, a file with lists of texts by their format; `tokenizer`, a file; and
`tokens` and `overlap`. Every further line names a `splitter` and a `format`, and is answered by a line with the wall
and processor seconds that the cutting took, and the chunks.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_text_splitters import MarkdownHeaderTextSplitter, RecursiveCharacterTextSplitter
from semantic_text_splitter import MarkdownSplitter, TextSplitter
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

HEADINGS = [("#" * level, f"heading {level}") for level in range(1, 7)]


def splitters(tokenizer: Tokenizer, tokens: int, overlap: int) -> dict[tuple[str, str], Callable[[str], list[str]]]:
    """What cuts one text, by the splitter's name and the format."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    # The same as `from_huggingface_tokenizer`, which asks transformers and so takes longer.
    recursive = RecursiveCharacterTextSplitter(chunk_size=tokens, chunk_overlap=overlap, length_function=count)
    by_headings = MarkdownHeaderTextSplitter(HEADINGS, strip_headers=False)

    def markdown(text: str) -> list[str]:
        return [part.page_content for part in recursive.split_documents(by_headings.split_text(text))]

    return {
        ("langchain", "plain"): recursive.split_text,
        ("langchain", "markdown"): markdown,
        ("semantic-text-splitter", "plain"): TextSplitter.from_huggingface_tokenizer(tokenizer, tokens, overlap).chunks,
        ("semantic-text-splitter", "markdown"): MarkdownSplitter.from_huggingface_tokenizer(
            tokenizer, tokens, overlap
        ).chunks,
    }


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    texts = json.loads(Path(asked["texts"]).read_text())
    cutters = splitters(Tokenizer.from_file(asked["tokenizer"]), asked["tokens"], asked["overlap"])
    for line in sys.stdin:
        run = json.loads(line)
        cut = cutters[run["splitter"], run["format"]]
        started, processor = time.perf_counter(), time.process_time()
        chunks = [cut(text) for text in texts[run["format"]]]
        wall, processor = time.perf_counter() - started, time.process_time() - processor
        print(json.dumps([wall, processor, [chunk for own in chunks for chunk in own]]), flush=True)


if __name__ == "__main__":
    main()
