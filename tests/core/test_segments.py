"""The keyword index's segments, through the binding: BM25 against a plain twin over dictionaries."""

import bisect
import math
import uuid
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import _core
from semlex.errors import AnalyzerVersionError, DamagedSegmentError, StoreError, ValidationError

LANGUAGES = ("english", "german")


def id_set(ids):
    return _core.IdSet(np.array(ids, np.int64))


@dataclass
class Tables:
    """What the database holds: dictionaries in the place of its tables, and its look-ups."""

    segments: list[tuple[bytes, str, _core.EncodedSegment]] = field(default_factory=list)
    tombstones: list[tuple[bytes, bytes]] = field(default_factory=list)

    def add(self, language, chunks):
        builder = _core.SegmentBuilder()
        for keyword_id, terms in chunks.items():
            builder.add_terms(keyword_id, terms)
        assert len(builder) == len(chunks)
        segment_id = uuid.uuid4().bytes
        self.segments.append((segment_id, language, builder.finish(segment_id)))

    def bury(self, ids):
        tombstone_id = uuid.uuid4().bytes
        self.tombstones.append((tombstone_id, _core.encode_tombstone(tombstone_id, id_set(ids))))

    def copy(self):
        return Tables(list(self.segments), list(self.tombstones))

    def snapshot(self, cache, plan):
        known, buried = set(plan.known_segments), set(plan.known_tombstones)
        rows = [
            (segment_id, term, *row_of(segment, term))
            for terms, cold in ((plan.cold, True), (plan.warm, False))
            for language, term in terms
            for segment_id, of, segment in self.segments
            if of == language and (cold or segment_id not in known)
        ]
        return cache.snapshot(
            plan,
            [(of, language, None if of in known else segment.header) for of, language, segment in self.segments],
            [(of, None if of in buried else data) for of, data in self.tombstones],
            rows,
        )

    def search(self, cache, queries, k, **options):
        return self.snapshot(cache, cache.plan(queries)).search(k, **options)


def row_of(segment, term):
    place = bisect.bisect_right(segment.first_terms, term) - 1
    return (None, None) if place < 0 else (segment.first_terms[place], segment.data[place])


def one_segment(chunks):
    """Tables with an English segment, its id, and itself."""
    tables = Tables()
    tables.add("english", chunks)
    return tables, tables.segments[0][0], tables.segments[0][2]


def bm25(chunks, queries, k1, b):
    """Scores of all chunks, 0 without a match, none for those that phrases or exclusions leave out."""
    by_language = {language: rest for language, *rest in queries}
    average = sum(len(terms) for _, terms in chunks.values()) / max(1, len(chunks))
    frequencies = Counter()
    for language, terms in chunks.values():
        frequencies.update(slot for slot, term in by_language[language][0] if term in terms)
    scores = {}
    for keyword_id, (language, terms) in chunks.items():
        wanted, phrases, excluded = by_language[language]
        if any(group[0] in terms for group in excluded if len(group) == 1):
            continue
        if not all(term in terms for phrase in phrases for term in phrase):
            continue
        counts, score = Counter(terms), 0.0
        for slot, term in wanted:
            if counts[term]:
                df = frequencies[slot]
                idf = math.log(1 + (len(chunks) - df + 0.5) / (df + 0.5))
                norm = k1 * (1 - b + b * len(terms) / average)
                score += idf * counts[term] * (k1 + 1) / (counts[term] + norm)
        scores[keyword_id] = score
    return scores


def assert_found(found, scores, k, score_ids, allowed=None):
    ids, values, others, _ = found
    assert (ids.dtype, values.dtype, others.dtype) == (np.int64, np.float64, np.float64)
    may = {of for of, score in scores.items() if score > 0 and (allowed is None or of in allowed)}
    expected = sorted((scores[of] for of in may), reverse=True)
    assert min(k, len(may)) <= len(ids) == len(set(ids.tolist()) & may)
    np.testing.assert_allclose(values, expected[: len(ids)], rtol=1e-9)
    np.testing.assert_allclose(values, [scores[of] for of in ids.tolist()], rtol=1e-9)
    assert [*zip(-values, ids, strict=True)] == sorted(zip(-values, ids, strict=True))
    assert len(set(values[max(0, k - 1) :])) <= 1 if k else len(ids) == 0
    np.testing.assert_allclose(others, [scores.get(of, math.nan) for of in score_ids], rtol=1e-9, equal_nan=True)


words = st.sampled_from([f"w{number}" for number in range(12)] + ["ß", "語", "x" * 128])
texts = st.lists(words, max_size=10)
chunk_lists = st.lists(st.tuples(st.sampled_from(LANGUAGES), texts, st.integers(0, 4), st.booleans()), max_size=40)
groups = st.lists(st.lists(words, max_size=2), max_size=2)
analysed = st.tuples(st.lists(words, max_size=6), groups, groups)


@settings(deadline=None)
@given(
    chunks=chunk_lists,
    questions=st.lists(st.tuples(analysed, analysed, st.integers(0, 45), st.booleans()), min_size=1, max_size=4),
    limit=st.sampled_from([0, 500, 1 << 20]),
    k1=st.floats(0, 3),
    b=st.floats(0, 1),
)
def test_search_equals_plain_bm25(chunks, questions, limit, k1, b):
    tables = Tables()
    for number in range(5):
        for language in LANGUAGES:
            own = [(3 * at, chunk[1]) for at, chunk in enumerate(chunks) if chunk[::2] == (language, number)]
            if own:
                tables.add(language, dict(own))
    dead = [3 * at for at, (_, _, _, died) in enumerate(chunks) if died]
    for part in (dead[::2], [*dead[1::2], *dead[:1]]):
        tables.bury(part)
    living = {3 * at: (of, terms) for at, (of, terms, _, died) in enumerate(chunks) if not died}
    cache = _core.PostingCache(limit)
    score_ids = [-1, *range(3 * len(chunks) + 3)]
    for *sides, k, restricted in questions:
        queries = [
            (language, [*enumerate(wanted)], phrases, excluded)
            for language, (wanted, phrases, excluded) in zip(LANGUAGES, sides, strict=True)
        ]
        allowed = score_ids[::2] if restricted else None
        options = {"k1": k1, "b": b, "score_ids": np.array(score_ids)}
        found = tables.search(cache, queries, k, **options, allowed=allowed and np.array(allowed[::-1]))
        assert_found(found, bm25(living, queries, k1, b), k, score_ids, allowed)
        assert cache.used_bytes <= limit


@settings(deadline=None)
@given(chunks=chunk_lists)
def test_merging_equals_building_from_scratch(chunks):
    tables = Tables()
    for number in range(5):
        tables.add("english", {at: terms for at, (_, terms, place, _) in enumerate(chunks) if place == number})
    dead = [at for at, (_, _, _, died) in enumerate(chunks) if died]
    merged_id = uuid.uuid4().bytes
    sources = [(of, part.header, [*zip(part.first_terms, part.data, strict=True)]) for of, _, part in tables.segments]
    merged = _core.merge_segments(merged_id, sources, id_set(dead))
    builder = _core.SegmentBuilder()
    for at, (_, terms, _, died) in reversed([*enumerate(chunks)]):
        if not died:
            builder.add_terms(at, terms)
    built = builder.finish(merged_id)
    assert (merged.header, merged.first_terms, merged.data) == (built.header, built.first_terms, built.data)
    assert (merged.chunks, merged.postings, merged.total_length) == (built.chunks, built.postings, built.total_length)
    living = [at for at, (_, _, _, died) in enumerate(chunks) if not died]
    assert _core.segment_ids(merged_id, merged.header).to_array().tolist() == living


def test_warm_searches_old_plans_and_languages_that_were_not_planned():
    tables = one_segment({1: ["a", "b"], 2: ["b"]})[0]
    cache, queries = _core.PostingCache(), [("english", [(0, "a"), (1, "never")], [], [])]
    tables.search(cache, queries, 5)
    assert (cache.hits, cache.misses) == (0, 2)
    tables.search(cache, queries, 5)
    assert (cache.hits, cache.misses) == (2, 2)
    assert cache.plan(queries).cold == []
    tables.add("english", {3: ["a"]})
    tables.bury([1])
    assert tables.search(cache, queries, 5)[0].tolist() == [3]
    assert (cache.hits, cache.misses) == (4, 4)
    del tables.segments[0]
    tables.search(cache, queries, 5)
    assert [*cache.plan(queries).known_segments] == [tables.segments[0][0]]
    used = cache.used_bytes
    cache.resize(used)
    assert cache.used_bytes == used
    cache.resize(used - 1)
    assert 0 < cache.used_bytes < used
    assert len(cache.plan(queries).cold) == 1
    with pytest.raises(ValueError, match="limit"):
        cache.resize(-1)
    cache.resize(used)
    tables.search(cache, queries, 5)
    cache.clear()
    assert cache.used_bytes == 0
    assert [term for _, term in cache.plan(queries).cold] == [b"a", b"never"]
    tables = one_segment({1: ["a"]})[0]
    cache, queries = _core.PostingCache(), [("english", [(0, "a")], [], [])]
    tables.search(cache, queries, 5)
    plan, old = cache.plan(queries), tables.copy()
    tables.segments.clear()
    tables.add("english", {2: ["a"]})
    assert tables.search(cache, queries, 5)[0].tolist() == [2]
    cache.clear()
    assert old.snapshot(cache, plan).search(5)[0].tolist() == [1]
    tables = one_segment({1: ["a"]})[0]
    tables.add("german", {2: ["a"]})
    cache = _core.PostingCache()
    snapshot = tables.snapshot(cache, cache.plan([("english", [(0, "a")], [], [])]))
    assert (snapshot.languages, snapshot.missing_languages) == (["english", "german"], ["german"])
    with pytest.raises(ValueError, match="languages"):
        snapshot.search(1)
    both = [(language, [(0, "a")], [], []) for language in LANGUAGES]
    plan = cache.plan(both)
    # English was read whole and is warm now; of the German segment only the header is known.
    assert (plan.warm, plan.cold) == ([("english", b"a")], [("german", b"a")])
    assert len(plan.known_segments) == 2
    assert tables.snapshot(cache, plan).search(1)[0].tolist() == [1, 2]


@pytest.mark.slow
def test_threads_share_a_cache():
    rng = np.random.default_rng(5)
    chunks = {of: ("english", [f"w{word}" for word in rng.zipf(1.3, 30) if word < 500]) for of in range(3000)}
    tables, states, living = Tables(), [], {}
    for first in range(0, 3000, 600):
        part = {of: chunks[of] for of in range(first, first + 600)}
        tables.add("english", {of: terms for of, (_, terms) in part.items()})
        dead = list(range(first + 3, first + 600, 97))
        tables.bury(dead)
        living = {of: chunk for of, chunk in (living | part).items() if of not in dead}
        states.append((tables.copy(), living))
    queries = [[("english", [*enumerate({f"w{word}" for word in rng.integers(1, 60, 4)})], [], [])] for _ in range(6)]
    expected = {(at, of): bm25(states[at][1], queries[of], 1.2, 0.75) for at in range(5) for of in range(6)}
    cache, score_ids = _core.PostingCache(20_000), [0, 3, 599, 2999]

    def work(seed):
        order = np.random.default_rng(seed)
        for _ in range(40):
            at, of = int(order.integers(5)), int(order.integers(6))
            found = states[at][0].search(cache, queries[of], 10, score_ids=np.array(score_ids))
            assert_found(found, expected[at, of], 10, score_ids)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, seed) for seed in range(4)]:
            done.result()
    assert cache.used_bytes <= 20_000


@given(data=st.data())
def test_damage_is_an_error_that_names_the_segment(data):
    segment_id, segment = one_segment({of: ["common", f"term{of}", *["often"] * of] for of in range(300)})[1:]
    parts = [segment.header, *segment.data]
    number = data.draw(st.integers(0, len(parts) - 1))
    place = data.draw(st.integers(0, len(parts[number]) - 1))
    damaged = parts[number][:place] + data.draw(st.binary(max_size=3)) + parts[number][place + 1 :]
    if damaged == parts[number]:
        return
    parts[number] = damaged
    source = (segment_id, parts[0], [*zip(segment.first_terms, parts[1:], strict=True)])
    with pytest.raises(DamagedSegmentError, match="semlex maintain reindex") as caught:
        _core.merge_segments(bytes(16), [source], id_set([]))
    assert caught.value.segment_id == str(uuid.UUID(bytes=segment_id))
    assert isinstance(caught.value, StoreError)


def test_bytes_of_another_key_or_version_large_tombstones_and_internal_errors():
    segment_id, segment = one_segment({of: ["common", f"term{of}"] for of in range(300)})[1:]
    cache, other = _core.PostingCache(), uuid.uuid4().bytes
    plan = cache.plan([("english", [(0, "term7")], [], [])])
    first, row = row_of(segment, b"term7")
    header, right = [(segment_id, "english", segment.header)], [(segment_id, b"term7", first, row)]
    data = _core.encode_tombstone(other, id_set([1]))
    for damaged in (
        lambda: cache.snapshot(plan, header, [], [(segment_id, b"term7", b"b", row)]),
        lambda: cache.snapshot(plan, header, [], [(segment_id, b"term7", first, segment.header)]),
        lambda: cache.snapshot(plan, [(other, "english", segment.header)], [], [(other, b"term7", first, row)]),
        lambda: _core.segment_ids(other, segment.header),
        lambda: _core.decode_tombstone(segment_id, data),
        lambda: cache.snapshot(plan, header, [(segment_id, data)], right),
    ):
        with pytest.raises(DamagedSegmentError):
            damaged()
    assert cache.snapshot(plan, header, [], right).search(3)[0].tolist() == [7]
    segment_id, segment = one_segment({1: ["a"]})[1:]
    content = segment.header[5:]
    covered = b"\x03\x01" + segment_id + (0).to_bytes(8, "little") + content
    newer = b"\x03" + zlib.crc32(covered).to_bytes(4, "little") + content
    with pytest.raises(AnalyzerVersionError, match="version 3 of its format, but this semlex reads version 2"):
        _core.segment_ids(segment_id, newer)
    tombstone_id = bytes(16)
    # One range: zigzag of 0, then 2**32 - 2 more ids.
    content = b"\x01\x00\xfe\xff\xff\xff\x0f"
    covered = b"\x02\x03" + tombstone_id + (0).to_bytes(8, "little") + content
    ids = _core.decode_tombstone(tombstone_id, b"\x02" + zlib.crc32(covered).to_bytes(4, "little") + content)
    assert ids.count == 2**32 - 1
    segment_id, segment = one_segment({of: ["a"] for of in (-1, 0, 7)})[1:]
    held = _core.segment_ids(segment_id, segment.header)
    assert (held - ids).to_array().tolist() == [-1]
    source = (segment_id, segment.header, [*zip(segment.first_terms, segment.data, strict=True)])
    assert _core.merge_segments(bytes(16), [source], ids).chunks == 1
    with pytest.raises(MemoryError, match="4294967295 ids"):
        ids.to_array()
    # A panic in Rust is none of Python's `BaseException`s; what it was in the midst of is not used any more.
    panic = _core._panic
    for options in ({}, {"held": True}):
        with pytest.raises(RuntimeError, match=r"internal error in semlex\._core: out of order; please report"):
            panic("out of order", **options)
    builder = _core.SegmentBuilder()
    builder.add_terms(1, ["a"])
    with pytest.raises(RuntimeError, match="in the midst"):
        panic("in the midst", builder=builder)
    for use in (lambda: builder.add_terms(2, ["a"]), lambda: builder.finish(bytes(16)), lambda: len(builder)):
        with pytest.raises(RuntimeError, match="half-done; build the segment with a new one"):
            use()


TEXTS = st.lists(st.text("aAbBrings ing-the.é", max_size=40), max_size=5)
CHOSEN = st.lists(st.sampled_from(["english", "german", "simple"]), min_size=1, max_size=3)


@settings(deadline=None)
@given(batches=st.lists(st.tuples(st.booleans(), TEXTS, CHOSEN), max_size=4))
def test_what_an_analyzer_remembers_changes_no_segment(batches):
    analyzers = {language: _core.Analyzer(language) for language in ("english", "german", "simple")}
    for leaves_another_open, texts, languages in batches:
        builder, plain, other = _core.SegmentBuilder(), _core.SegmentBuilder(), _core.SegmentBuilder()
        if leaves_another_open:
            other.add_texts(analyzers[languages[0]], np.arange(1), [["brings"]])
        for number, language in enumerate(languages):
            ids = np.arange(len(texts)) + number * 10
            builder.add_texts(analyzers[language], ids, [texts, texts[::-1]])
            for keyword_id, first, second in zip(ids.tolist(), texts, texts[::-1], strict=True):
                fresh = _core.Analyzer(language)
                plain.add_terms(keyword_id, fresh.terms(first) + fresh.terms(second))
        built, expected = builder.finish(bytes(16)), plain.finish(bytes(16))
        assert (built.header, built.first_terms, built.data) == (expected.header, expected.first_terms, expected.data)
        assert len(other) == leaves_another_open
        other.finish(bytes(16))


def test_coverage_and_arrays_that_are_not_aligned():
    tables = one_segment({1: ["a", "b"], 2: ["a"], 3: ["c"], 4: ["b"]})[0]
    tables.add("german", {5: ["b"]})
    tables.bury([4])
    cache = _core.PostingCache()
    wanted = [(0, "a"), (1, "b"), (2, "nowhere")]
    plan = cache.plan([("english", wanted, [], []), ("german", wanted[1:2], [], [])])
    snapshot = tables.snapshot(cache, plan)
    idf = [math.log(1 + (4 - df + 0.5) / (df + 0.5)) for df in (2, 2, 0)]
    shares = snapshot.coverage(np.array([5, 1, 2, 3, 4, 9, 1]))
    expected = [1, sum(idf[:2]) / sum(idf), idf[0] / sum(idf), 0, math.nan, math.nan, sum(idf[:2]) / sum(idf)]
    assert shares.tolist() == pytest.approx(expected, nan_ok=True)
    assert not np.signbit(shares[3])
    assert shares[0] == 1
    plan = cache.plan([("english", wanted, [], []), ("german", [], [], [])])
    assert np.isnan(tables.snapshot(cache, plan).coverage(np.array([5]))).all()
    plan = cache.plan([("english", wanted, [], [])])
    with pytest.raises(ValueError, match="lacks languages"):
        tables.snapshot(cache, plan).coverage(np.array([1]))
    tables, cache = one_segment({of: ["a"] for of in range(5)})[0], _core.PostingCache()
    snapshot = tables.snapshot(cache, cache.plan([("english", [(0, "a")], [], [])]))
    ids = np.arange(1, 4)
    shifted = np.frombuffer(b"\0" + ids.tobytes(), np.uint8)[1:].view(np.int64)
    assert not shifted.flags.aligned
    assert snapshot.search(9, allowed=shifted)[0].tolist() == [1, 2, 3]
    assert snapshot.coverage(shifted).tolist() == [1, 1, 1]
    fused = _core.reciprocal_rank_fusion([shifted])
    assert fused[0].tolist() == [1, 2, 3]
    rows = np.frombuffer(b"\0" + np.ones((2, 3), np.float32).tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    assert not rows.flags.aligned
    assert _core.normalise_rows(rows, 2).shape == (2, 2)
    with pytest.raises(ValidationError, match="ascontiguousarray") as caught:
        _core.CopyEncoder([("v", "vector", rows)])
    assert [error.code for error in caught.value.errors] == ["wrong_layout"]


IDS = st.lists(st.integers(-5, 30))


@given(one=IDS, other=IDS, dead=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 30)))
def test_sets_of_ids_and_tombstones(one, other, dead):
    data = _core.encode_tombstone(bytes(range(16)), id_set(dead))
    assert _core.decode_tombstone(bytes(range(16)), data).to_array().tolist() == sorted(set(dead))
    left, right = id_set(one), id_set(other)
    assert (left & right).to_array().tolist() == sorted(set(one) & set(other))
    assert (left - right).to_array().tolist() == sorted(set(one) - set(other))
    assert _core.IdSet.union([left, right]).to_array().tolist() == sorted({*one, *other})
    assert (left.count, bool(left), repr(left)) == (len(set(one)), bool(one), f"IdSet({len(set(one))} ids)")
    assert not _core.IdSet()


def test_misuse_is_refused():
    builder, cache = _core.SegmentBuilder(), _core.PostingCache()
    for _ in range(2):
        builder.add_terms(1, ["a"])
    for call, what in (
        (lambda: builder.add_terms(1, [""]), "1 to 128 bytes"),
        (lambda: builder.add_terms(1, ["x" * 129]), "1 to 128 bytes"),
        (lambda: builder.finish(b"short"), "16 bytes"),
        (lambda: builder.finish(bytes(16)), "twice"),
        (lambda: cache.plan([("english", [], [], [])] * 2), "named twice"),
        (lambda: cache.plan([("english", [(0, "a"), (0, "b")], [], [])]), "two terms"),
    ):
        with pytest.raises(ValueError, match=what):
            call()
    plan = cache.plan([("english", [(0, "a")], [], [])])
    tables, segment_id, segment = one_segment({1: ["a"]})
    own = [(segment_id, "english", segment.header)]
    for segments, tombstones, rows, what in (
        ([(segment_id, "english", None)], [], [], "header"), ([], [(segment_id, None)], [], "tombstones"),
        (own, [], [], "must be given"), (own * 2, [], [], "listed twice"),
        ([], [], [(segment_id, b"a", None, None)], "not in segments"),
        (own, [], [(segment_id, b"a", b"b", b"")], "greater than the term"),
        (own, [], [(segment_id, b"a", b"a", None)], "both be None"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=what):
            cache.snapshot(plan, segments, tombstones, rows)
    snapshot = tables.snapshot(cache, plan)
    for k, k1, b in ((-1, 1.2, 0.5), (1, -0.1, 0.5), (1, math.nan, 0.5), (1, 1.2, 1.1), (1, math.inf, 0.5)):
        with pytest.raises(ValueError, match="k"):
            snapshot.search(k, k1=k1, b=b)
    with pytest.raises(ValueError, match="allowed"):
        snapshot.search(1, allowed=np.array([1.0]))
