"""A plain reader of what the keyword index stores, written from docs/design/stored-format.md and from nothing else."""

import zlib
from dataclasses import dataclass
from itertools import pairwise

VERSION = 2
HEADER, ROW, TOMBSTONE = 1, 2, 3
LONG, SHARED = 0, 1
MAX_CHUNKS = 65_536
MAX_TERM_BYTES = 128
MAX_CODE_BITS = 12
MAX_LIMIT = 2**22
END = 0xFF

# Ordinal (or, of a whole segment, id) and frequency of each chunk.
Postings = list[tuple[int, int]]


class DamagedError(Exception):
    """The bytes are not what the page describes."""


def demand(fits, what):
    if not fits:
        raise DamagedError(what)


def open_blob(kind, owner, key, blob):
    demand(len(blob) >= 5, "a blob has fewer than 5 bytes")
    covered = bytes([blob[0], kind]) + owner + len(key).to_bytes(8, "little") + key + blob[5:]
    demand(zlib.crc32(covered) == int.from_bytes(blob[1:5], "little"), "checksum")
    demand(blob[0] == VERSION, f"version {blob[0]}")
    return Content(blob[5:])


class Content:
    """Bytes, read from front to back."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        demand(count <= len(self.data) - self.at, "the content ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def rest(self):
        return self.take(len(self.data) - self.at)

    def end(self):
        demand(self.at == len(self.data), "unexpected bytes follow the content")

    def varint(self, bits=64):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            demand(value < 2**bits and shift <= 70, "a number is too large")
            if byte < 0x80:
                demand(byte > 0 or shift == 7, "a number is not in its shortest form")
                return value


class Bits:
    def __init__(self, data):
        self.bits = [byte >> place & 1 for byte in data for place in range(8)]
        self.at = 0

    def bit(self):
        demand(self.at < len(self.bits), "the bits end early")
        self.at += 1
        return self.bits[self.at - 1]

    def number(self, count):
        return sum(self.bit() << place for place in range(count))

    def unary(self):
        zeros = 0
        while self.bit() == 0:
            zeros += 1
        return zeros

    def count(self):
        for zeros in range(16):
            if self.bit() == 1:
                return zeros
        value = self.number(32)
        demand(value >= 16, "a count is not in its shortest form")
        return value

    def gamma(self):
        below = self.unary()
        demand(below < 32, "a number is too large")
        return 2**below + self.number(below)

    def symbol(self, code):
        length = value = 0
        while (length, value) not in code:
            demand(length < MAX_CODE_BITS, "bits match no symbol of the prefix code")
            length, value = length + 1, 2 * value + self.bit()
        return code[length, value]

    def end_of_byte(self):
        """Passes over what fills the last byte; gives the bytes up to there."""
        while self.at % 8:
            demand(self.bit() == 0, "a byte is not filled with zeros")
        return self.at // 8

    def end(self):
        demand(self.end_of_byte() == len(self.bits) // 8, "unexpected bits follow the content")


# Length of a code and its bits, the first one highest -> symbol.
Code = dict[tuple[int, int], int]


def read_code(content):
    lengths, symbol = [], -1
    for _ in range(content.varint()):
        byte = content.take(1)[0]
        distance, length = byte >> 4, byte & 15
        symbol += 1 + distance + (content.varint() if distance == 15 else 0)
        demand(symbol <= 255 and 1 <= length <= MAX_CODE_BITS, "a prefix code has impossible lengths")
        lengths.append((length, symbol))
    code, length_before, value = {}, 0, 0
    for length, symbol in sorted(lengths):
        value <<= length - length_before
        demand(value < 2**length, "a prefix code has impossible lengths")
        code[length, value] = symbol
        length_before, value = length, value + 1
    return code


def read_ids(content, most):
    ranges, total = [], 0
    for _ in range(content.varint()):
        gap = content.varint()
        first = ranges[-1][1] + 2 + gap if ranges else (gap >> 1) ^ -(gap & 1)
        count = content.varint(32) + 1
        last = first + count - 1
        total += count
        demand(last < 2**63 and count < 2**32 and total <= most, "too many ids, or too large ones")
        ranges.append((first, last))
    return ranges


@dataclass(frozen=True)
class Header:
    ids: list[int]
    postings: int
    lengths: list[int]
    text_code: Code
    shared_code: Code


def read_header(segment_id, blob):
    content = open_blob(HEADER, segment_id, b"", blob)
    ids = [one for first, last in read_ids(content, MAX_CHUNKS) for one in range(first, last + 1)]
    postings = content.varint()
    lengths = [content.varint(32) for _ in ids]
    header = Header(ids, postings, lengths, read_code(content), read_code(content))
    content.end()
    return header


def read_tombstone(tombstone_id, blob):
    content = open_blob(TOMBSTONE, tombstone_id, b"", blob)
    ranges = read_ids(content, 2**32 - 1)
    content.end()
    return ranges


def read_row(segment_id, header, key, blob):
    content = open_blob(ROW, segment_id, key, blob)
    demand(1 <= len(key) <= MAX_TERM_BYTES and END not in key, "the key of a posting row cannot begin a term")
    form = content.take(1)[0]
    if form == LONG:
        return [(key, read_long_list(content, len(header.ids)))]
    demand(form == SHARED, "a posting row has an unknown form")
    count = content.varint()
    demand(count > 0, "a posting row has no terms")
    bits = Bits(content.rest())
    terms = []
    for _ in range(count):
        before = terms[-1][0] if terms else b""
        term = read_term(bits, header, before, is_first=not terms)
        demand(bool(terms) or term.startswith(key), "the first term does not begin with the row's key")
        terms.append((term, read_short_list(bits, len(header.ids))))
    bits.end()
    return terms


def read_term(bits, header, before, *, is_first):
    shared = 0 if is_first else bits.symbol(header.shared_code)
    demand(shared <= len(before), "a term shares more bytes than the previous term has")
    own = bytearray()
    while (byte := bits.symbol(header.text_code)) != END:
        own.append(byte)
        demand(shared + len(own) <= MAX_TERM_BYTES, "a term has more than 128 bytes")
    demand(own[:1] > before[shared : shared + 1], "terms are not in ascending order")
    return before[:shared] + bytes(own)


def width(limit, count):
    return max(1, limit // count * 11 // 16).bit_length() - 1


def read_short_list(bits, chunks):
    count = bits.gamma()
    demand(count <= chunks, "a posting list has more postings than the segment has chunks")
    repeats = bits.number(1)
    postings = []
    for _ in range(count):
        if postings:
            k = width(chunks, count)
            ordinal = postings[-1][0] + 1 + (bits.unary() << k) + bits.number(k)
        else:
            ordinal = bits.number((chunks - 1).bit_length())
        postings.append((ordinal, 1 + (bits.count() if repeats else 0)))
    check_postings(postings, chunks)
    is_repeated = any(frequency > 1 for _, frequency in postings)
    demand(is_repeated == repeats, "the repeats flag of a posting list contradicts its frequencies")
    return postings


def check_postings(postings, chunks):
    demand(all(ordinal < chunks for ordinal, _ in postings), "a posting names a chunk that the segment does not have")
    demand(all(frequency < 2**32 for _, frequency in postings), "a frequency is too large")


def read_long_list(content, chunks):
    impacts = content.varint()
    demand(1 <= impacts <= 5, "a posting list has no impacts or too many")
    for _ in range(2 * impacts):
        content.varint(32)
    count = content.varint(32)
    demand(1 <= count <= chunks, "a posting list is empty or has more postings than the segment has chunks")
    frequencies = [1] * count
    repeating = content.varint(32)
    if repeating:
        total = content.varint(32)
        places = read_ascending(content, repeating, count)
        sums = [-1, *read_ascending(content, repeating, total)]
        steps = [after - before for before, after in pairwise(sums)]
        at = 0
        for _ in range(content.varint()):
            at += content.varint()
            demand(at < repeating, "an exception is behind the last step")
            steps[at] += content.varint(32)
            at += 1
        for place, step in zip(places, steps, strict=True):
            frequencies[place] += step
    ordinals = read_ascending(content, count, chunks)
    content.end()
    postings = list(zip(ordinals, frequencies, strict=True))
    check_postings(postings, chunks)
    return postings


def read_ascending(content, count, limit):
    demand(count <= limit <= MAX_LIMIT, "more ascending numbers than their limit allows")
    bits = width(limit, count)
    lows, numbers = [], []
    for _ in range(count // 128):
        lows += read_block(content.take(16 * bits), bits)
    remainder = Bits(content.take((count % 128 * bits + 7) // 8))
    lows += [remainder.number(bits) for _ in range(count % 128)]
    start, rests = content.at, Bits(content.rest())
    for low in lows:
        gap = (rests.unary() << bits) + low
        numbers.append(numbers[-1] + 1 + gap if numbers else gap)
    demand(numbers[-1] < limit, "an ascending number is not below its limit")
    content.at = start + rests.end_of_byte()
    return numbers


def read_block(block, bits):
    lanes = [Bits(b"".join(block[at : at + 4] for at in range(4 * lane, len(block), 16))) for lane in range(4)]
    return [lanes[place % 4].number(bits) for place in range(128)]


def read_segment(segment_id, header_blob, rows):
    """A whole segment: its rows as (key, data), by key."""
    header = read_header(segment_id, header_blob)
    terms, before = {}, b""
    for key, data in rows:
        for term, postings in read_row(segment_id, header, key, data):
            demand(term > before, "terms are not in ascending order")
            before = term
            terms[term] = [(header.ids[ordinal], frequency) for ordinal, frequency in postings]
    demand(sum(map(len, terms.values())) == header.postings, "posting rows are missing")
    return Segment(dict(zip(header.ids, header.lengths, strict=True)), terms)


@dataclass(frozen=True)
class Segment:
    """What a segment holds: the length of each chunk by its id, and for each term the ids and frequencies."""

    lengths: dict[int, int]
    terms: dict[bytes, Postings]
