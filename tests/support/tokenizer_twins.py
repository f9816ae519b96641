"""A tokenizer of the core, and that of the tokenizers library from the same file, which is its specification."""

from tokenizers import Tokenizer

from semlex import _core
from semlex.models.tokenizer import text_tokenizer


def pair(content, *, as_text=False):
    """Ours, and the twin that is the specification; they may read special tokens as text."""
    ours = text_tokenizer(_core.BpeTokenizer(content), "ours")
    assert ours.engine == "rust"
    engines = ours, text_tokenizer(Tokenizer.from_buffer(content), "theirs")
    for engine in engines if as_text else ():
        engine.read_special_tokens_as_text()
    return engines


def assert_equal(engines, texts, *, offsets=True):
    ours, theirs = engines
    found, expected = ours.encode(texts), theirs.encode(texts)
    wrong = [text for row, text in enumerate(texts) if found[row].tolist() != expected[row].tolist()]
    assert not wrong, [ascii(text) for text in wrong[:3]]
    assert ours.count_tokens(texts).tolist() == found.lengths.tolist()
    for text in texts if offsets else []:
        assert ours.token_offsets(text).tolist() == theirs.token_offsets(text).tolist(), ascii(text)
