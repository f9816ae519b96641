"""What is asked about a chunk cannot be ended by it, and what is kept of the answer is one bounded line."""

import re

from hypothesis import given
from hypothesis import strategies as st

from semlex.chat import drawn_mark, visible
from semlex.ingest.enrichment import (
    INSTRUCTIONS,
    MAX_LINE_CHARACTERS,
    MAX_LINE_TOKENS,
    MAX_TEXT_CHARACTERS,
    asked_line,
    bounded_line,
    clean_line,
    messages_for,
)
from semlex.models.tokenizer import TokenEstimate, WordCounter
from tests.support.line_models import LineModel, asked_passage

ANY = st.text(st.characters(exclude_categories=()) | st.sampled_from("\0\x1b\u202e\u2028\r\n \ud800<>"))
COUNTERS = st.sampled_from([WordCounter(), TokenEstimate()])


@given(titles=ANY, text=ANY)
def test_titles_and_text_arrive_as_they_are(titles, text):
    mark = drawn_mark()
    system, user = messages_for(titles, text, mark)
    assert system["content"] == INSTRUCTIONS
    assert asked_passage(user["content"]) == (visible(titles), visible(text)[:MAX_TEXT_CHARACTERS])


@given(line=ANY, times=st.integers(1, 400), counter=COUNTERS)
def test_a_line_is_bounded_and_a_beginning_of_what_was_written(line, times, counter):
    cleaned = clean_line(line * times)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", cleaned)
    cleaned.encode()
    kept = bounded_line(cleaned, counter)
    assert cleaned.startswith(kept)
    assert len(kept) <= MAX_LINE_CHARACTERS
    assert int(counter.count_tokens([kept])[0]) <= MAX_LINE_TOKENS
    assert bool(kept) == bool(cleaned)
    assert bounded_line(kept, counter) == kept


@given(line=st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=20))
def test_what_a_model_puts_around_its_answer(line):
    class Around(LineModel):
        def stream(self, messages, schema=None):
            *_, last = super().stream(messages, schema)
            yield f'<think>{{"line": 7}}</think>\n```json\n{last.text}\n```'
            yield last

    assert asked_line(Around(lambda _: f' *"{line}"*\n'), "", "text", drawn_mark())[0] == line
