"""Tokens.

Ids and counts of tokens of chunks of Django's manual, on one core, with a vocabulary of 150,000: the tokenizer in Rust
against the tokenizers library and transformers. All make the same ids.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from benches.measuring import Bench, paired
from benches.training import django_source, texts, tokenizer_file
from semlex import _core
from semlex.ingest.document_chunks import Chunker
from semlex.models.tokenizer import TextTokenizer, text_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

BARS = {"encode_batch": 8.0, "encode_batch_fast": 8.0, "transformers": 10.0, "counts": 10.0}


def manual_chunks(state: Path, tokenizer: TextTokenizer, number: int) -> list[str]:
    """Chunks of at most 500 tokens, as documents are indexed."""
    chunker = Chunker(tokenizer)

    def chunks() -> Iterator[str]:
        for page in texts(django_source(state), (".txt",)):
            for chunk in chunker.cut(page).chunks:
                yield chunk.text

    return [chunk for chunk, _ in zip(chunks(), range(number), strict=False)]


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    file = tokenizer_file(state)
    if not file.exists():
        for name, bar in BARS.items():
            bench.unmeasured(name, "tokens/s", bar, "run ./x bench --prepare")
        return
    # The library would share a batch among all cores, as the caller's threads can do with ours.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    ours = text_tokenizer(_core.BpeTokenizer(file.read_bytes()), "rust")
    library, auto = Tokenizer.from_file(str(file)), AutoTokenizer.from_pretrained(file.parent)
    chunks = manual_chunks(state, ours, 500 if quick else 2_000)
    rows = ours.encode(chunks)
    expected = [encoding.ids for encoding in library.encode_batch_fast(chunks, add_special_tokens=False)]
    assert rows.ids.tolist() == [token for ids in expected for token in ids]
    assert auto(chunks, add_special_tokens=False)["input_ids"] == expected
    baselines = {
        "encode_batch": lambda: library.encode_batch(chunks, add_special_tokens=False),
        "encode_batch_fast": lambda: library.encode_batch_fast(chunks, add_special_tokens=False),
        "transformers": lambda: auto(chunks, add_special_tokens=False),
    }
    runs = 5 if quick else 9
    for name, baseline in baselines.items():
        fast, slow = paired(lambda: ours.encode(chunks), baseline, runs)
        bench.speed(name, fast, slow, amount=rows.ids.size, unit="tokens/s", bar=BARS[name])

    def count() -> NDArray[np.int64]:
        encodings = library.encode_batch_fast(chunks, add_special_tokens=False)
        return np.array([len(encoding) for encoding in encodings], dtype=np.int64)

    fast, slow = paired(lambda: ours.count_tokens(chunks), count, runs)
    bench.speed("counts", fast, slow, amount=rows.ids.size, unit="tokens/s", bar=BARS["counts"])

    def offsets() -> list[object]:
        return [library.encode(chunk, add_special_tokens=False).offsets for chunk in chunks]

    fast, slow = paired(lambda: [ours.token_offsets(chunk) for chunk in chunks], offsets, runs)
    bench.speed("offsets", fast, slow, amount=rows.ids.size, unit="tokens/s", bar=None)
