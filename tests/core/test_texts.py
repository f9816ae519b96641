"""Terms, sentences and shingles of texts, and identities of rows, against slow twins and their documented rules."""

import hashlib
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from semlex._core import ANALYZER_LANGUAGES, ANALYZER_VERSION, Analyzer, excerpts, language_named

WORDS = st.sampled_from(["a", "A", "b", "été", "漢字", "3.5", "key", "-", "  ", "\n", "👩‍👧"])
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), max_size=6)


def slow_shingles(text):
    words = [text[start:end].lower() for start, end in _core.word_offsets(text).tolist()]
    if not words:
        return {("", text.strip())}
    return {tuple(words[place : place + 5]) for place in range(max(1, len(words) - 4))}


@given(TEXTS)
def test_shares_of_shingles_equal_the_definition(texts):
    sets = [slow_shingles(text) for text in texts]
    found = _core.shared_shingles(texts)
    assert (found.shape, found.dtype) == ((len(texts), len(texts)), np.float64)
    assert found.tolist() == [[len(one & other) / len(one) for other in sets] for one in sets]


def test_refused_arguments_offsets_in_characters_and_titles_of_sentences():
    for wrong in ([1], ["a", None], "abc\ud800", 5):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            _core.shared_shingles(wrong)
    with pytest.raises(ValueError, match="expected 2 texts in each, found 1"):
        _core.hash_rows("x", [["a", "b"], ["c"]])
    with pytest.raises(UnicodeEncodeError):
        _core.hash_rows("x", [["\ud800"]])
    assert _core.hash_rows("x", []) == _core.hash_rows("x", [[]]) == []
    for wrong in ["\udfff", 3]:
        for call in (_core.split_sentences, lambda text: _core.rank_sentences(ENGLISH, text, [])):
            with pytest.raises((ValueError, TypeError)):
                call(wrong)
    text = "\U0001d538 lion sleeps. It hunts at night."
    sentences = [text[start:end] for start, end, _ in _core.split_sentences(text)]
    assert sentences == ["\U0001d538 lion sleeps.", "It hunts at night."]
    passages = [("It takes three days.", "Bananas"), ("It takes four days.", "Key rotation")]
    scores = [one[4] for one in _core.rank_sentences(ENGLISH, "how long does key rotation take", passages)]
    assert scores[1] > scores[0]


ENGLISH = _core.Analyzer("en")
PROSE = st.text(st.sampled_from("abé 。.!?\n#-*|`:=\U0001d538\u0301"), max_size=60)
PASSAGES = st.lists(st.tuples(PROSE, PROSE), max_size=4)


@given(PROSE)
def test_sentences_are_slices_in_order_without_blanks_at_their_ends(text):
    end = 0
    for start, stop, kind in _core.split_sentences(text):
        assert end <= start < stop <= len(text)
        assert text[start:stop] == text[start:stop].strip()
        assert kind in {"prose", "heading", "code"}
        end = stop


@given(st.text(st.sampled_from("ab é.\n"), max_size=20), PASSAGES)
def test_every_sentence_is_scored_once_at_its_place(question, passages):
    ranked = _core.rank_sentences(ENGLISH, question, passages)
    places = [(number, *place) for number, (text, _) in enumerate(passages) for place in _core.split_sentences(text)]
    assert [one[:4] for one in ranked] == places
    assert all(score >= 0 and 0 <= own <= 1 + 1e-9 for *_, score, own in ranked)
    assert ranked == _core.rank_sentences(ENGLISH, question, passages)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def twin(label, fields):
    return hashlib.sha256(b"\0".join(part.encode() for part in (label, *fields))).digest()[:16]


@given(TEXT, st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=20))
def test_identities_equal_those_of_plain_python(label, rows):
    columns = [[row[number] for row in rows] for number in range(3)]
    assert _core.hash_rows(label, columns) == [twin(label, list(row)) for row in rows]
    assert [_core.hash_rows(label, [[field] for field in row])[0] for row in rows] == _core.hash_rows(label, columns)


ODD = ["naïve", "ÉTÉ", "手机", "ภาษาไทย", "하나", "नमस्ते", "مُحَمَّد", "snake_case", "v1.2", '-"x y"', "e\u0301", "\u200d"]
PIECES = st.text(max_size=12) | st.text("abcDEF012._-/@:,'#+ \"“”„«»-", max_size=16) | st.sampled_from(ODD)
ANALYSED = st.lists(PIECES, max_size=8).map(" ".join)
LANGUAGES = st.sampled_from(ANALYZER_LANGUAGES)

SIMPLE = Analyzer("simple")


def test_languages_accents_units_and_bounds():
    assert ANALYZER_VERSION == 2
    assert sorted(ANALYZER_LANGUAGES) == ANALYZER_LANGUAGES
    assert {"simple", "english", "chinese", "thai", "czech"} <= set(ANALYZER_LANGUAGES)
    for language in ANALYZER_LANGUAGES:
        assert Analyzer(language.upper()).language == language_named(language) == language
    codes = {"de": "german", "es": "spanish", "ja": "japanese", "nn": "norwegian", "th": "thai"}
    assert {code: language_named(code) for code in codes} == codes
    assert repr(ENGLISH) == 'Analyzer("english")'
    unknown = r"^language: unknown \"klingon\"; known languages, also by .* codes: arabic, .*, yiddish$"
    for call in (Analyzer, language_named):
        with pytest.raises(ValueError, match=unknown):
            call("klingon")
    for call in (SIMPLE.terms, SIMPLE.query):
        with pytest.raises(UnicodeEncodeError):
            call("a\ud800")
    assert SIMPLE.terms("Café cafe niño") == ["cafe", "=café", "cafe", "nino", "=niño"]
    assert SIMPLE.terms("ΛΌΓΟΣ λογος naïve ASCII")[2:] == ["λογοσ", "naive", "=naïve", "ascii"]
    # Where the stemmer drops them, they tell no words apart.
    assert Analyzer("spanish").terms("canción año") == ["cancion", "ano", "=año"]
    assert Analyzer("german").terms("Häuser Straße") == ["haus", "strass"]
    query = SIMPLE.query("má ma", 1)
    (folded, _), (typed, _) = query.wanted
    assert [term for _, term in query.wanted] == ["ma", "=má"]
    assert (typed, query.total) == (folded | 1 << 31, 1)
    assert SIMPLE.query('"má"', 9).phrases == [["ma"]]
    assert SIMPLE.query("x -má", 9).excluded == [["ma"]]
    assert excerpts(["Một má."], SIMPLE, ["ma", "=má"]) == [("Một **má**.", 4)]
    query = ENGLISH.query("the getName of the names and cars")
    assert query.wanted == [(1 << 32, "getnam"), (1 << 32 | 1, "get"), (1 << 32 | 2, "name"), (6 << 32, "car")]
    assert query.total == 4
    query = SIMPLE.query("a b c a", 2)
    assert ([term for _, term in query.wanted], query.total) == (["a", "b"], 3)
    assert repr(query) == "Query(2 terms, 0 phrases, 0 exclusions)"
    with pytest.raises(ValueError, match="max_terms: must be at least 0, found -1"):
        SIMPLE.query("a", -1)
    for most, phrases, excluded in ((5, [["a", "b"]], [["c"], ["d", "e"]]), (4, [], [])):  # one bound for both
        query = SIMPLE.query('"a b" -c -"d e"', most)
        assert (query.conditions, query.phrases, query.excluded) == (5, phrases, excluded)


@given(language=LANGUAGES, stop_words=st.booleans(), text=ANALYSED)
def test_a_query_finds_the_text_that_it_is_and_stop_words_only_leave_out(language, stop_words, text):
    analyzer = Analyzer(language, stop_words)
    document = analyzer.terms(text)
    query = analyzer.query(text, 10_000)
    terms = [term for _, term in query.wanted]
    folded = [term for term in terms if not term.startswith("=")]
    assert query.total == len(folded) == len(set(folded))
    assert set(terms) <= set(document)
    if not query.excluded:
        assert folded == list(dict.fromkeys(term for term in document if not term.startswith("=")))
    assert analyzer.matches([text], query.phrases).tolist() == [True]
    assert set(ENGLISH.terms(text)) <= set(Analyzer("english", stop_words=False).terms(text))


@given(left=LANGUAGES, right=LANGUAGES, text=st.text("abcdefghi áéíSTn", max_size=60))
def test_a_word_has_the_same_unit_in_every_language(left, right, text):
    words = text.split()
    for language in (left, right):
        for slot, term in Analyzer(language, stop_words=False).query(text).wanted:
            number = slot >> 32
            assert term in Analyzer(language, stop_words=False).terms(words[number])


@given(texts=st.lists(ANALYSED, max_size=4), query=ANALYSED)
def test_batches_are_maps(texts, query):
    terms = [term for _, term in ENGLISH.query(query).wanted]
    assert excerpts(texts, ENGLISH, terms) == [excerpts([text], ENGLISH, terms)[0] for text in texts]
    phrases, excluded = [terms[:2]], [terms[2:3]] if len(terms) > 2 else []
    found = ENGLISH.matches(texts, phrases, excluded).tolist()
    assert found == [ENGLISH.matches([text], phrases, excluded)[0] for text in texts]


@given(text=st.text(st.characters(codec="utf-8", categories=("Ll", "Lo", "Zs"), max_codepoint=0x52F)))
def test_accents_and_forms_are_one(text):
    forms = [SIMPLE.terms(unicodedata.normalize(form, text)) for form in ("NFD", "NFC")]
    assert forms == [SIMPLE.terms(text)] * 2


def test_queries_phrases_matches_and_excerpts():
    for text, wanted, phrases, excluded in [
        ("", [], [], []), ("--", [], [], []), ("fast cars", ["fast", "cars"], [], []),
        ('"new york" city', ["new", "york", "city"], [["new", "york"]], []),
        ("“new york” „new york“ «new york» »new york«", ["new", "york"], [["new", "york"]] * 4, []),
        ('an "open quote', ["an", "open", "quote"], [], []),
        ('a 5" pipe and 6" more', ["a", "5", "pipe", "and", "6", "more"], [], []),
        ("jaguar -car", ["jaguar"], [], [["car"]]),
        ('jaguar -"sports car" speed', ["jaguar", "speed"], [], [["sports", "car"]]),
        ("-car", [], [], [["car"]]), ("jaguar -sports-car", ["jaguar"], [], [["sports", "car"]]),
        ("state-of-art", ["stateofart", "state", "of", "art"], [], []),
        ("- item -- b", ["item", "b"], [], []), ("-5 degrees", ["5", "degrees"], [], []),
        ('degrees -"5"', ["degrees"], [], [["5"]]), ("a\t-b\n-c", ["a"], [], [["b"], ["c"]]),
        ('"" "." -"!" -…', [], [], []), ('"手机"', ["手机", "手", "机"], [["手机", "机"]], []),
        ('"C++ e-mail"', ["c++", "c", "email", "e", "mail"], [["c++", "e", "mail"]], []),
    ]:  # fmt: skip
        query = SIMPLE.query(text)
        assert ([term for _, term in query.wanted], query.phrases, query.excluded) == (wanted, phrases, excluded)
    for phrase, text, found in [
        ("new york", "in New York.", True), ("new york", "York, new", False), ("new york", "new, old York", False),
        ("bank of america", "the Bank America", True),
        ("state of the art", "state-of-the-art work", True),
        ("state-of-the-art", "state of the art", True), ("email server", "an e-mail server", True),
        ("github actions", "GitHub Actions", True),
        ("running shoes", "a runner ran in running shoe", True),
        ("手机号", "我的手机号码", True), ("手机号", "手机 号码", False), ("手机 号", "手机号码", True),
        ("手号", "手机号", False), ("ภาษาไทย", "เรียนภาษาไทยกัน", True),
    ]:  # fmt: skip
        phrases = ENGLISH.query(f'"{phrase}"').phrases
        assert ENGLISH.matches([text], phrases).tolist() == [found]
        assert ENGLISH.matches([text], [], phrases).tolist() == [not found]
    for text, terms, place in [
        ("the été of cats", ["cat"], 11), ("cat", ["dog"], None), ("a dog, a cat", ["cat", "dog"], 2),
        ("我的手机号码", ["手机", "手", "机"], 2), ("手 手机", ["手机", "手", "机"], 0),
        ("", ["cat"], None), ("cat", [], None),
    ]:  # fmt: skip
        assert [match for _, match in excerpts([text, text], ENGLISH, terms)] == [place, place]
    for text, terms, marked in [
        ("", ["a"], ""), ("  The Cats sat.\n", ["cat"], "The **Cats** sat."),
        ("_cats_ and _dogs_", ["cat", "dog"], "_**cats**_ and _**dogs**_"),
        ("nothing here but words", ["cat"], "nothing here but words"),
        ("Katzen 🐈 cat", ["cat"], "Katzen 🐈 **cat**"),
        ("我的手机号码是机密", ["手机", "手", "机"], "我的**手机**号码是机密"), ("最近的飞", ["飞"], "最近的**飞**"),
    ]:  # fmt: skip
        [(shown, _)] = excerpts([text], ENGLISH, terms)
        assert shown == marked
