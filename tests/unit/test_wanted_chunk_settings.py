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


@given(said=SETTINGS, defaults=SETTINGS, names=NAMES)
def test_defaults_fit_what_is_said(said, defaults, names):
    given_defaults = some(defaults, names)
    cut = WantedOptions.checked({"chunk_tokens": said.chunk_tokens}, given_defaults).chunk_settings()
    cut.check()
    assert cut.chunk_tokens == said.chunk_tokens
    assert cut.overlap_tokens <= given_defaults.get("overlap_tokens", 50)
    assert cut.min_tokens <= given_defaults.get("min_tokens", 32)


def test_defaults_that_contradict_each_other_are_refused():
    both = {"chunk_tokens": 100, "overlap_tokens": 60}
    with pytest.raises(ConfigurationError, match="overlap_tokens must be between 0 and 49"):
        WantedOptions.checked({}, both)
    assert WantedOptions.checked({"chunk_tokens": 100}, both).chunk_settings().overlap_tokens == 49


@given(said=SETTINGS)
def test_what_is_said_is_taken(said):
    assert WantedOptions.checked(said._asdict(), {}).chunk_settings() == said


@given(stored=SETTINGS, said=SETTINGS, names=NAMES)
def test_what_is_stored_stays_where_it_fits(stored, said, names):
    # What is said of one alone may contradict the stored size, which is refused elsewhere.
    wanted = WantedOptions.checked(some(said, names | {"chunk_tokens"}), {}).rechunk_settings(stored)
    wanted.check()
    assert some(wanted, names) == some(said, names)
    assert "overlap_tokens" in names or wanted.overlap_tokens <= stored.overlap_tokens
    if "min_tokens" not in names:
        was_default = stored.min_tokens == default_min(stored.chunk_tokens)
        expected = default_min(said.chunk_tokens) if was_default else min(stored.min_tokens, said.chunk_tokens // 2)
        assert wanted.min_tokens == expected


@given(stored=SETTINGS)
def test_saying_nothing_changes_nothing(stored):
    assert WantedOptions.checked({}, {}).rechunk_settings(stored) == stored
