"""A context out of hits: no character twice, none of a hit missing, and never a token above the budget."""

import re
import uuid
from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import chat
from semlex.answering.context import Assembly, ContextPlan, Counting, context_text
from semlex.chat import MAX_SHOWN, drawn_mark, one_line, visible
from semlex.errors import ConfigurationError
from semlex.ingest import enrichment
from semlex.models.tokenizer import TokenEstimate, WordCounter
from semlex.search.passages import Around, PlacedHit, placed
from semlex.store.query.surroundings import PlacedChunk
from semlex.types.answers import ContextSource
from semlex.types.results import SearchResult, SearchResults
from tests.support.line_models import LineModel, asked_passage
from tests.support.placed_documents import AROUND, hit_of, near, searches, stored
from tests.unit.test_postprocess import SETTINGS, is_same_but_blanks

# Ten thousand examples of whole documents take minutes.
pytestmark = pytest.mark.timeout(1800)

COUNTERS = [
    Counting.of(WordCounter()),
    Counting.of(TokenEstimate()),
    Counting(len),
    Counting(lambda text: np.int64(len(text.encode()) // 3 + 7)),  # a text costs more than its parts, or less
    Counting(lambda text: len(text) // 10 if len(text) % 2 else len(text) // 7),  # a longer text may be cheaper
]
NONE_AROUND = Around()
OPTIONS = st.builds(
    ContextPlan,
    tokens=st.integers(1, 400) | st.sampled_from([2000, 10_000_000]),
    around=AROUND,
    order=st.sampled_from(["score", "document"]),
)


def check(made, counting, options, found, mark):
    stored_documents, hits = found
    by_name = {document.name: document for document in stored_documents}
    assert made.tokens == (counting(made.text) if made.text else 0) <= options.tokens
    assert made.text == context_text(made.sources, mark)
    assert [source.number for source in made.sources] == list(range(1, len(made.sources) + 1))
    shown = [hit for source in made.sources for hit in source.hits]
    # Every hit is in one passage or did not fit.
    assert sorted(hit.rank for hit in (*shown, *made.left_out)) == [hit.rank for hit in hits]
    seen = {document.name: set() for document in stored_documents}
    is_cut = any("cut" in warning for warning in made.warnings)
    for source in made.sources:
        document = by_name[source.document]
        span = range(source.char_start, source.char_end)
        assert is_same_but_blanks(source.text, document.text[source.char_start : source.char_end])
        assert source.line == document.text.count("\n", 0, source.char_start) + 1 or "\r" in document.text
        check_places(source, document)
        assert seen[source.document].isdisjoint(span), "a character stands twice"
        seen[source.document].update(span)
        assert visible(source.text) in made.text
        assert [hit.rank for hit in source.hits] == sorted(hit.rank for hit in source.hits)
        for hit in source.hits:
            assert hit.id in source.chunk_ids
            if not (is_cut and hit is hits[0]):
                assert set(range(hit.char_start, hit.char_end)) <= set(span), "a part of a hit is missing"
    return shown


def check_places(source, document):
    """Every word, and the whole, is cited with its own characters, line and pages."""
    words = [found.span() for found in re.finditer(r"\S+", source.text)]
    for start, end in [*words, (0, len(source.text))]:
        cited = source.cite(start, end)
        at, last = source.char_start + start, source.char_start + end - 1
        assert (cited.quote, cited.char_start, cited.char_end) == (source.text[start:end], at, last + 1)
        assert cited.line == document.text.count("\n", 0, at) + 1 or "\r" in document.text
        page, last_page = bisect_right(document.pages, at), bisect_right(document.pages, last)
        if not page:
            assert (cited.page, cited.place) == (None, f"line {cited.line}")
        elif document.text[last].isspace():  # behind the last chunk on that page
            assert cited.page == page
        else:
            assert (cited.page, cited.place) == (page, f"p. {page}" if page == last_page else f"p. {page}-{last_page}")
    assert (cited.line, cited.page, cited.place) == (source.line, source.page, source.place)


@given(searches(), OPTIONS, st.sampled_from(COUNTERS))
def test_no_character_twice_none_of_a_hit_missing_no_token_too_many(found, options, counting):
    stored_documents, hits = found
    placed_hits = placed(hits, near(stored_documents, hits, options.around), options.around)
    assembly = Assembly(options, counting, {})
    made = assembly.assembled(placed_hits, SearchResults())
    shown = check(made, counting, options, found, assembly.mark)
    firsts = [source.hits[0].rank for source in made.sources if source.hits]
    if options.order == "document":
        names = [source.document for source in made.sources]
        assert names == sorted(names, key=names.index)  # those of one document together
        for name in set(names):
            starts = [source.char_start for source in made.sources if source.document == name]
            assert starts == sorted(starts)
    elif not options.around.parents:
        assert firsts == sorted(firsts)
    if options.tokens == 10_000_000:
        assert len(shown) == len(hits)
        assert not made.warnings
        chunks = {chunk.key[1] for one in placed_hits for chunk in (one.chunk, *one.around)}
        assert {chunk_id for source in made.sources for chunk_id in source.chunk_ids} == chunks


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60), max_size=8))
def test_what_was_made_without_a_bound_fits_into_its_own_count(texts):
    # Of words the sum of parts is the whole, and added documents never become one passage.
    counting = COUNTERS[0]
    hits = [
        PlacedHit(SearchResult(text, id=f"d{n}", rank=n + 1), PlacedChunk((uuid.UUID(int=n), f"d{n}"), 0, text))
        for n, text in enumerate(texts)
    ]
    whole = made_of(hits, ContextPlan(10_000_000, NONE_AROUND), counting)
    assert [source.text for source in whole.sources] == texts
    if texts:
        again = made_of(hits, ContextPlan(whole.tokens, NONE_AROUND), counting)
        assert (again.sources, again.tokens) == (whole.sources, whole.tokens)
        less = made_of(hits, ContextPlan(whole.tokens - 1, NONE_AROUND), counting)
        assert less.left_out or less.warnings


DOCUMENT = stored(0, "# A\n\n" + " ".join(f"Sentence {n} says so." for n in range(200)), "markdown", SETTINGS)
HITS = [hit_of(DOCUMENT.chunks[place], rank) for rank, place in enumerate((20, 2, 3, 40), 1)]
LENGTH = Counting(len)


def assembled(hits, tokens, around=NONE_AROUND, counting=LENGTH, same=None, **options):
    return made_of(placed(hits, DOCUMENT.chunks, around), ContextPlan(tokens, around, **options), counting, same)


def made_of(placed_hits, plan, counting=LENGTH, same=None):
    return Assembly(plan, counting, same or {}).assembled(placed_hits, SearchResults())


UNSEEN = "\0\x08\x1b\x7f\x85\u202e\u2066\u200b\ufeff\U000e0041\u00ad\u2028\r"


@given(st.text() | st.text(st.characters(max_codepoint=127)) | st.text("a\r\n\t\x1c\x00\u00ad\u2028"), st.text())
def test_nobody_sees_less_than_is_there(text, title):
    source = ContextSource(1, title, title, text, ("a",))
    mark = drawn_mark()
    made = context_text([source], mark)
    lines = made.split("\n")
    assert (lines[3], lines[-1]) == (f"<<< {mark}", f">>> {mark}")
    assert "\n".join(lines[4:-1]) == visible(text) == visible(visible(text))
    assert lines[2].startswith("[1] ")
    assert len(lines[2]) <= 2 * MAX_SHOWN + 10
    assert not set(UNSEEN) & set(made)
    assert source.text == text
    assert visible(text) == chat.UNSEEN.sub("", chat.LINE_ENDS.sub("\n", text))


def test_lines_stay_lines_and_hits_fit():
    assert visible("a\r\nb\rc\u2028d\x0ce") == "a\nb\nc\nd\ne"
    joined = "👩\u200d👧 \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\ta"
    assert visible(joined) == joined
    assert one_line(" a\n[2] b\t c\u2029d ") == "a [2] b c d"
    assert one_line("a" * 150 + "b" * 150) == "a" * 99 + "…" + "b" * 100
    alone = assembled(HITS[:1], 10_000)
    around = Around(2)
    with_neighbours = assembled(HITS[:1], 10_000, around)
    assert len(with_neighbours.sources[0].chunk_ids) == 5
    assert assembled(HITS[:1], with_neighbours.tokens - 1, around).sources == alone.sources
    one, two = placed(HITS[:2], DOCUMENT.chunks, NONE_AROUND)
    short = PlacedChunk((uuid.UUID(int=9), "short"), 0, "Short.")
    third = PlacedHit(SearchResult("Short.", id="short", rank=3), short)
    made = made_of([one, two, third], ContextPlan(alone.tokens + 100, NONE_AROUND))
    assert [hit.rank for source in made.sources for hit in source.hits] == [1, 3]
    assert [hit.rank for hit in made.left_out] == [2]
    text = " ".join(f"Sentence {n} is 3.5 words (or so.) long!" for n in range(50))
    hit = SearchResult(text, id="long", rank=1)
    other = PlacedHit(SearchResult("Short.", id="short", rank=2), short)
    one = PlacedHit(hit, PlacedChunk((uuid.UUID(int=8), "long"), 0, text, char_start=10, char_end=10 + len(text)))
    made = made_of([one, other], ContextPlan(700, NONE_AROUND))
    [source] = made.sources
    assert text.startswith(source.text)
    assert source.text.endswith(("!", ".)"))
    assert (source.char_start, source.char_end) == (10, 10 + len(source.text))
    assert 640 < made.tokens <= 700
    assert (made.left_out, source.hits) == ((other.hit,), (hit,))
    assert made.warnings == ("the best hit alone is longer than the budget: it was cut after a sentence",)
    # A second one is never cut.
    made = made_of([other, one], ContextPlan(700, NONE_AROUND))
    assert [source.text for source in made.sources] == ["Short."]
    assert made.left_out == (hit,)
    for tokens in [1, 150, 240]:
        made = assembled([HITS[0]], tokens)
        assert (made.text, made.sources, made.tokens, made.left_out) == ("", (), 0, (HITS[0],))
        assert made.warnings == (f"no hit fits into {tokens} tokens together with its place: raise tokens",)
    for number in [None, "5", -1, 1.5, object()]:
        with pytest.raises(ConfigurationError, match="count must return a text"):
            assembled(HITS, 100, counting=Counting(lambda _, number=number: number))
    made = assembled(HITS, 10_000)
    assert [[hit.rank for hit in source.hits] for source in made.sources] == [[1], [2, 3], [4]]
    made = assembled(HITS, 10_000, order="document")
    assert [[hit.rank for hit in source.hits] for source in made.sources] == [[2, 3], [1], [4]]
    like = [SearchResult("t", id="x", source_document="b.pdf", place="p. 3"), SearchResult("t", id="y")]
    made = assembled(HITS[:1], 10_000, same={HITS[0].id: like})
    assert made.sources[0].same_as == ("b.pdf, p. 3", "y")
    made = assembled([], 100)
    assert (made.text, made.sources, made.tokens, made.warnings) == ("", (), 0, ())


ANY = st.text(st.characters(exclude_categories=()) | st.sampled_from("\0\x1b\u202e\u2028\r\n \ud800<>"))


@given(titles=ANY, text=ANY)
def test_titles_and_text_arrive_as_they_are(titles, text):
    mark = drawn_mark()
    system, user = enrichment.messages_for(titles, text, mark)
    assert system["content"] == enrichment.INSTRUCTIONS
    assert asked_passage(user["content"]) == (visible(titles), visible(text)[: enrichment.MAX_TEXT_CHARACTERS])


@given(line=ANY, times=st.integers(1, 400), counter=st.sampled_from([WordCounter(), TokenEstimate()]))
def test_a_line_is_bounded_and_a_beginning_of_what_was_written(line, times, counter):
    cleaned = enrichment.clean_line(line * times)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", cleaned)
    cleaned.encode()
    kept = enrichment.bounded_line(cleaned, counter)
    assert cleaned.startswith(kept)
    assert len(kept) <= enrichment.MAX_LINE_CHARACTERS
    assert int(counter.count_tokens([kept])[0]) <= enrichment.MAX_LINE_TOKENS
    assert bool(kept) == bool(cleaned)
    assert enrichment.bounded_line(kept, counter) == kept


@given(line=st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=20))
def test_what_a_model_puts_around_its_answer(line):
    class Around(LineModel):
        def stream(self, messages, schema=None):
            *_, last = super().stream(messages, schema)
            yield f'<think>{{"line": 7}}</think>\n```json\n{last.text}\n```'
            yield last

    assert enrichment.asked_line(Around(lambda _: f' *"{line}"*\n'), "", "text", drawn_mark())[0] == line
