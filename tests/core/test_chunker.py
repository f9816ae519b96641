"""Finished chunks fit by their own count, whatever counts them."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from semlex.errors import ConfigurationError, ValidationError
from semlex.ingest.document_chunks import Chunker
from semlex.models.tokenizer import TokenEstimate, WordCounter
from semlex.options.collection import ChunkSettings
from tests.support.markdown_texts import STRUCTURES, TEXT


class TrainedCounter:
    """A byte-level BPE tokenizer, trained on a sentence: most characters take several tokens."""

    counter_name = "bpe/test"

    def __init__(self):
        self._tokenizer = Tokenizer(models.BPE())
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, initial_alphabet=sorted(alphabet))
        self._tokenizer.train_from_iterator(["a word and another word and the end of a sentence"] * 3, trainer)

    def token_offsets(self, text):
        offsets = np.array(self._tokenizer.encode(text).offsets, dtype=np.int64).reshape(-1, 2)
        return np.maximum.accumulate(offsets, axis=0)

    def count_tokens(self, texts):
        return np.array([len(self._tokenizer.encode(text).ids) for text in texts], dtype=np.int64)


class HonestOnlyAlone:
    """Counts half of the characters inside a text and all of them in a chunk: every full chunk is too long."""

    counter_name = "alone/test"

    def token_offsets(self, text):
        return np.array([(place, place + 1) for place in range(0, len(text), 2)], dtype=np.int64).reshape(-1, 2)

    def count_tokens(self, texts):
        return np.array([len(text) for text in texts], dtype=np.int64)


class WordsButTwo(WordCounter):
    """A user's counter that has something of words: the start of each is a token of its own, if it stands alone."""

    counter_name = "but-two/test"

    def count_tokens(self, texts):
        return super().count_tokens(texts) + 2


COUNTERS = {
    "words": WordCounter,
    "estimate": TokenEstimate,
    "trained": TrainedCounter,
    "alone": HonestOnlyAlone,
    "derived": WordsButTwo,
}


@pytest.fixture(scope="module", params=COUNTERS)
def counter(request):
    return COUNTERS[request.param]()


@given(data=st.data(), text=TEXT, chunk_tokens=st.integers(16, 60), structure=st.sampled_from(STRUCTURES))
def test_finished_chunks_fit_by_their_own_count(counter, data, text, chunk_tokens, structure):
    overlap = data.draw(st.integers(0, (chunk_tokens - 1) // 2))
    least = data.draw(st.integers(0, chunk_tokens // 2))
    chunks = Chunker(counter, ChunkSettings(chunk_tokens, overlap, least)).cut(text, structure).chunks
    assert [chunk.chunk_no for chunk in chunks] == list(range(len(chunks)))
    covered = set()
    for chunk in chunks:
        assert chunk.text == text[chunk.char_start : chunk.char_end]
        assert chunk.text.strip()
        assert chunk.token_count == counter.count_tokens([chunk.text])[0]
        assert chunk.token_count <= chunk_tokens or len(chunk.text) == 1
        assert chunk.line == 1 + len(re.findall(r"\r\n|\r|\n", text[: chunk.char_start]))
        covered.update(range(chunk.char_start, chunk.char_end))
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
    for before, after in pairwise(chunks):
        assert before.char_start < after.char_start
        assert before.char_end < after.char_end
    for before, after in zip(chunks, chunks[2:], strict=False):
        assert before.char_end <= after.char_start


@pytest.mark.parametrize(("options", "message"), [
    ({"chunk_tokens": 15}, "chunk_tokens must be between 16 and 2,000; got 15"),
    ({"chunk_tokens": 2001}, "chunk_tokens"),
    ({"chunk_tokens": True}, "chunk_tokens"),
    ({"chunk_tokens": 100.0}, "chunk_tokens"),
    ({"overlap_tokens": 250}, "overlap_tokens must be between 0 and 249; got 250"),
    ({"overlap_tokens": -1}, "overlap_tokens"),
    ({"min_tokens": 251}, "min_tokens must be between 0 and 250; got 251"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 30.0}, "min_tokens"),
])  # fmt: skip
def test_the_chunker_refuses_what_is_out_of_range(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Chunker(WordCounter(), ChunkSettings(**options))


@pytest.mark.parametrize(("text", "code"), [(b"bytes", "wrong_type"), ("a\udc80", "lone_surrogate")])
def test_the_chunker_refuses_what_is_no_text(text, code):
    with pytest.raises(ValidationError) as refused:
        Chunker(WordCounter()).cut(text)
    assert [(error.field, error.code) for error in refused.value.errors] == [("text", code)]


@pytest.mark.parametrize("text", ["", " \n\t\x1c", "\u3000"])
def test_blank_texts_have_no_chunks(text):
    assert Chunker(WordCounter()).cut(text).chunks == []
