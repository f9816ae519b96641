"""How texts are to be cut, of what users say: always within bounds, and nothing is changed unasked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.options.collection import MAX_CHUNK_TOKENS, MIN_CHUNK_TOKENS, ChunkSettings, WantedOptions, default_min

SIZES = st.integers(MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS)


@st.composite
def settings(draw):
    most = draw(SIZES)
    return ChunkSettings(most, draw(st.integers(0, (most - 1) // 2)), draw(st.integers(0, most // 2)))


SETTINGS = settings()
NAMES = st.sets(st.sampled_from(ChunkSettings._fields))


def some(of, names):
    return {name: number for name, number in of._asdict().items() if name in names}


@given(said=SETTINGS, other=SETTINGS, names=NAMES)
def test_what_is_said_is_taken_and_defaults_or_what_is_stored_fit_it(said, other, names):
    assert WantedOptions.checked(said._asdict(), {}).chunk_settings() == said
    assert WantedOptions.checked({}, {}).rechunk_settings(other) == other
    defaults = some(other, names)
    cut = WantedOptions.checked({"chunk_tokens": said.chunk_tokens}, defaults).chunk_settings()
    cut.check()
    assert cut.chunk_tokens == said.chunk_tokens
    assert cut.overlap_tokens <= defaults.get("overlap_tokens", 50)
    assert cut.min_tokens <= defaults.get("min_tokens", 32)
    # What is said of one alone may contradict the stored size, which is refused elsewhere.
    wanted = WantedOptions.checked(some(said, names | {"chunk_tokens"}), {}).rechunk_settings(other)
    wanted.check()
    assert some(wanted, names) == some(said, names)
    assert "overlap_tokens" in names or wanted.overlap_tokens <= other.overlap_tokens
    if "min_tokens" not in names:
        was_default = other.min_tokens == default_min(other.chunk_tokens)
        expected = default_min(said.chunk_tokens) if was_default else min(other.min_tokens, said.chunk_tokens // 2)
        assert wanted.min_tokens == expected


def test_defaults_that_contradict_each_other_are_refused():
    both = {"chunk_tokens": 100, "overlap_tokens": 60}
    with pytest.raises(ConfigurationError, match="overlap_tokens must be between 0 and 49"):
        WantedOptions.checked({}, both)
    assert WantedOptions.checked({"chunk_tokens": 100}, both).chunk_settings().overlap_tokens == 49
