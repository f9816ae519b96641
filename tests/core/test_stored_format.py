"""What the keyword index stores is what docs/design/stored-format.md says: a plain reader of it finds the same."""

import bisect
import json
import re
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semlex import _core
from semlex.errors import DamagedSegmentError
from tests.support import stored_format_files
from tests.support import stored_format_reader as plain
from tests.support.stored_format_files import CHUNKS, DEAD, FOLDER, SEGMENT_ID, TOMBSTONE_ID

CONTENTS = json.loads((FOLDER / "contents.json").read_text(encoding="utf-8"))
GOLDEN_HEADER = (FOLDER / "header.bin").read_bytes()
GOLDEN_TOMBSTONE = (FOLDER / "tombstone.bin").read_bytes()
KEYS = [bytes.fromhex(key) for key in CONTENTS["keys"]]
GOLDEN_ROWS = [(key, (FOLDER / f"row-{number}.bin").read_bytes()) for number, key in enumerate(KEYS)]
# Kind, owner, key and blob of each golden file.
GOLDEN_BLOBS = [
    (plain.HEADER, SEGMENT_ID, b"", GOLDEN_HEADER),
    (plain.TOMBSTONE, TOMBSTONE_ID, b"", GOLDEN_TOMBSTONE),
    *((plain.ROW, SEGMENT_ID, key, data) for key, data in GOLDEN_ROWS),
]


def build(chunks):
    builder = _core.SegmentBuilder()
    for keyword_id, terms in chunks.items():
        builder.add_terms(keyword_id, terms)
    encoded = builder.finish(SEGMENT_ID)
    return encoded.header, list(zip(encoded.first_terms, encoded.data, strict=True))


def holding(chunks):
    """What a segment of these chunks holds; a term that keeps its accents (=) does not count in the length."""
    terms = {}
    for keyword_id in sorted(chunks):
        for term, frequency in Counter(chunks[keyword_id]).items():
            terms.setdefault(term.encode(), []).append((keyword_id, frequency))
    lengths = {keyword_id: sum(not term.startswith("=") for term in own) for keyword_id, own in chunks.items()}
    return plain.Segment(lengths, terms)


def seal(kind, owner, key, content):
    covered = bytes([plain.VERSION, kind]) + owner + len(key).to_bytes(8, "little") + key + content
    return bytes([plain.VERSION]) + zlib.crc32(covered).to_bytes(4, "little") + content


def read_with_semlex(header, rows):
    """What semlex reads of a segment, told by what it merges it to; nothing where it refuses it."""
    try:
        merged = _core.merge_segments(bytes(16), [(SEGMENT_ID, header, rows)], _core.IdSet())
    except (DamagedSegmentError, ValueError) as error:
        assert isinstance(error, DamagedSegmentError) or "rows must be sorted by their first term" in str(error)  # noqa: PT017
        return None
    return plain.read_segment(bytes(16), merged.header, list(zip(merged.first_terms, merged.data, strict=True)))


def test_golden_files():
    assert (CONTENTS["segment_id"], CONTENTS["tombstone_id"]) == (SEGMENT_ID.hex(), TOMBSTONE_ID.hex())
    segment = plain.read_segment(SEGMENT_ID, GOLDEN_HEADER, GOLDEN_ROWS)
    assert [*map(list, segment.lengths.items())] == CONTENTS["lengths"]
    assert {term.decode(): [*map(list, own)] for term, own in segment.terms.items()} == CONTENTS["terms"]
    ranges = plain.read_tombstone(TOMBSTONE_ID, GOLDEN_TOMBSTONE)
    assert [one for first, last in ranges for one in range(first, last + 1)] == CONTENTS["dead"]
    assert len(ranges) < len(CONTENTS["dead"])
    assert [data[5] for _, data in GOLDEN_ROWS] == [plain.SHARED, plain.LONG, plain.SHARED]
    assert stored_format_files.files() == {path.name: path.read_bytes() for path in FOLDER.iterdir()}
    page = (FOLDER.parents[2] / "docs" / "design" / "stored-format.md").read_text(encoding="utf-8")
    shown = re.findall(r"^    ((?:[0-9a-f]{2} )+) ", page, re.MULTILINE)
    assert bytes.fromhex("".join(shown)) == GOLDEN_TOMBSTONE
    dead = _core.decode_tombstone(TOMBSTONE_ID, GOLDEN_TOMBSTONE)
    assert dead.to_array().tolist() == CONTENTS["dead"]
    assert _core.segment_ids(SEGMENT_ID, GOLDEN_HEADER).to_array().tolist() == [of for of, _ in CONTENTS["lengths"]]
    merged = _core.merge_segments(SEGMENT_ID, [(SEGMENT_ID, GOLDEN_HEADER, GOLDEN_ROWS)], dead)
    living = {keyword_id: terms for keyword_id, terms in CHUNKS.items() if keyword_id not in DEAD}
    assert (merged.header, list(zip(merged.first_terms, merged.data, strict=True))) == build(living)
    for term, postings in CONTENTS["terms"].items():
        cache = _core.PostingCache()
        row = SEGMENT_ID, term.encode(), *GOLDEN_ROWS[bisect.bisect_right(KEYS, term.encode()) - 1]
        plan, header = cache.plan([("english", [(0, term)], [], [])]), (SEGMENT_ID, "english", GOLDEN_HEADER)
        snapshot = cache.snapshot(plan, [header], [(TOMBSTONE_ID, GOLDEN_TOMBSTONE)], [row])
        found = snapshot.search(len(CHUNKS))[0].tolist()
        assert sorted(found) == [keyword_id for keyword_id, _ in postings if keyword_id not in DEAD]
    for kind, owner, key, blob in GOLDEN_BLOBS:
        for place in range(len(blob)):
            changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
            with pytest.raises(plain.DamagedError, match="checksum"):
                plain.open_blob(kind, owner, key, changed)
        for other in ((kind % 3 + 1, owner, key), (kind, bytes(16), key), (kind, owner, key + b"x")):
            with pytest.raises(plain.DamagedError, match="checksum"):
                plain.open_blob(*other, blob)


known = st.sampled_from(["a", "ab", "abc", "b", "ß", "語", "x" * 128, "x" * 127 + "y"])
words = known | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ids = st.integers(0, 60) | st.integers(-(2**63), 2**63 - 1)
segments = st.dictionaries(ids, st.lists(words, max_size=12), max_size=40)


@settings(deadline=None)
@given(chunks=segments)
@example(chunks={0: ["="]})
def test_the_plain_reader_reads_what_semlex_builds(chunks):
    assert plain.read_segment(SEGMENT_ID, *build(chunks)) == holding(chunks)


@settings(deadline=None)
@given(
    count=st.integers(1, 2_500),
    every=st.integers(1, 4),
    frequencies=st.lists(st.just(1) | st.integers(1, 4) | st.integers(20, 60), min_size=1, max_size=20),
)
@example(count=2_500, every=1, frequencies=[1])
@example(count=2_500, every=4, frequencies=[*[1] * 11, 24])
@example(count=2_500, every=4, frequencies=[25, 40])
def test_the_plain_reader_reads_long_lists(count, every, frequencies):
    chunks = {number + number // 1_000 * 7: [] for number in range(count)}
    for number in range(0, count, every):
        often = ["often"] * frequencies[number // every % len(frequencies)]
        chunks[number + number // 1_000 * 7] += [f"{number % 97}", *often]
    header, rows = build(chunks)
    assert plain.read_segment(SEGMENT_ID, header, rows) == holding(chunks)
    assert len(range(0, count, every)) <= 512 or plain.LONG in {data[5] for _, data in rows}


@given(dead=st.lists(ids))
def test_the_plain_reader_reads_tombstones(dead):
    encoded = _core.encode_tombstone(TOMBSTONE_ID, _core.IdSet(np.array(dead, np.int64)))
    ranges = plain.read_tombstone(TOMBSTONE_ID, encoded)
    assert [one for first, last in ranges for one in range(first, last + 1)] == sorted(set(dead))


CHANGES = ("insert", "remove", "flip", "replace", "front", "cut")
# How a content is changed: where, how, and with which byte.
change = st.tuples(st.integers(0, 2**16), st.sampled_from(CHANGES), st.binary(min_size=1, max_size=1))
changes = st.lists(change, max_size=3)


def changed(content, how):
    for number, kind, byte in how:
        place = number % (min(12, len(content)) + 1 if kind == "front" else len(content) + 1)
        front, behind = content[:place], content[place:]
        content = front + {
            "insert": byte + behind,
            "remove": behind[1:],
            "flip": bytes(one ^ 1 << byte[0] % 8 for one in behind[:1]) + behind[1:],
            "cut": b"",
        }.get(kind, byte + behind[1:])
    return content


@settings(deadline=None)
@given(chunks=st.none() | segments, of_header=changes, of_row=changes, which=st.integers(0, 2**16))
def test_both_readers_refuse_the_same(chunks, of_header, of_row, which):
    """Contents that are damaged, under checksums that fit."""
    header, rows = (GOLDEN_HEADER, list(GOLDEN_ROWS)) if chunks is None else build(chunks)
    header = seal(plain.HEADER, SEGMENT_ID, b"", changed(header[5:], of_header))
    if rows:
        key, data = rows[which % len(rows)]
        rows[which % len(rows)] = key, seal(plain.ROW, SEGMENT_ID, key, changed(data[5:], of_row))
    try:
        expected = plain.read_segment(SEGMENT_ID, header, rows)
    except plain.DamagedError:
        expected = None
    assert read_with_semlex(header, rows) == expected


@settings(deadline=None)
@given(how=changes)
def test_both_readers_refuse_the_same_tombstones(how):
    tombstone = seal(plain.TOMBSTONE, TOMBSTONE_ID, b"", changed(GOLDEN_TOMBSTONE[5:], how))
    try:
        ranges = plain.read_tombstone(TOMBSTONE_ID, tombstone)
    except plain.DamagedError:
        with pytest.raises(DamagedSegmentError):
            _core.decode_tombstone(TOMBSTONE_ID, tombstone)
        return
    found = _core.decode_tombstone(TOMBSTONE_ID, tombstone)
    assert found.count == sum(last - first + 1 for first, last in ranges)
    ends = _core.IdSet(np.array([end for ends in ranges for end in ends], np.int64))
    assert not ends - found
