# Written by `./x stubs` from rust/python/src.
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ANALYZER_LANGUAGES",
    "ANALYZER_VERSION",
    "Analyzer",
    "BatchPlan",
    "BpeTokenizer",
    "Chunks",
    "CopyEncoder",
    "DEBUG_BUILD",
    "ERROR_CODES",
    "EncodedSegment",
    "HtmlReader",
    "IdSet",
    "PostingCache",
    "PostingChanges",
    "PostingPlan",
    "PostingSnapshot",
    "Query",
    "SegmentBuilder",
    "TokenBatch",
    "TokenPlan",
    "__version__",
    "_panic",
    "common_prefix",
    "completed_fusion",
    "count_words",
    "decode_copy",
    "decode_copy_buffers",
    "decode_tombstone",
    "encode_tombstone",
    "excerpts",
    "fuse_legs",
    "hash_rows",
    "keys_hash",
    "language_named",
    "linear_fusion",
    "merge_segments",
    "normalise_rows",
    "plan_batches",
    "rank_sentences",
    "reciprocal_rank_fusion",
    "segment_ids",
    "shared_shingles",
    "split_sentences",
    "split_text",
    "to_json",
    "validate_identifier",
    "validate_rows",
    "word_offsets",
]

ERROR_CODES: dict[str, str]
"""Code of every rule (``FieldError.code``) -> what the rule demands, in one line."""

ANALYZER_VERSION: int
"""Goes up with every change of the terms of any text."""

ANALYZER_LANGUAGES: list[str]
"""Names of the languages that `Analyzer` knows, in the order of the alphabet."""

DEBUG_BUILD: bool

__version__: str

@final
class CopyEncoder:
    """Columns of rows, written as Postgres' binary COPY in blocks of the caller's size.

    Format: "Binary Format" on the COPY page of the PostgreSQL manual, and the receive functions of pgvector. Every type
    takes NULL: a list with None in it. Numbers take an array instead, which is borrowed, not copied: until the last
    block is written no other thread may write to it or resize it, nor to the buffer while `encode_into` runs. All other
    functions but `validate_rows` copy the arrays that they are given before they release the interpreter.

    ==================  =======================================================  ==============================
    type                list of                                                  or C-contiguous array
    ==================  =======================================================  ==============================
    int2, int4, int8    int (not bool)                                           int64 (n,), range checked
    float4, float8      float or NumPy's, or int up to 2**53 (no Decimal)        float32 (n,), float64 (n,)
    bool                bool                                                     bool (n,)
    text                str
    jsonb               dict, list, str, int, float, bool (see `to_json`)
    bytea               bytes
    uuid                uuid.UUID or 16 bytes                                    uint8 (n, 16)
    timestamptz         datetime with a zone, years 1 to 9999                    int64 (n,), microseconds since 1970
    vector, halfvec     float32 (d,) arrays, 1 to 16,000 dimensions              float32 (n, d)
    bit                 str of 0 and 1                                           uint8 or bool (n, d)
    sparsevec           ``(dimensions, list)`` of (int32 (m,), float32 (m,)): ascending indices from 0, values not 0
    T[]                 lists of the above, None inside allowed; T is a number, bool, text, uuid or timestamptz
    ==================  =======================================================  ==============================

    halfvec rounds to the nearest float16, ties to even; values that would become infinite are refused.

    Example:
        >>> encoder = CopyEncoder([("id", "text", ids), ("embedding", "vector", vectors)], ids)
        >>> buffer, position = np.empty(max(encoder.largest_row, 1 << 20), np.uint8), 0
        >>> while position <= encoder.rows:
        ...     position, written = encoder.encode_into(buffer, position)
        ...     send(buffer[:written])  # must have left the buffer before the next block

    Args:
        columns: (field name, type, values) of each column, in the order in which the COPY statement names them.
        ids: One id a row, used only to name rows in errors.

    Raises:
        semlex.errors.ValidationError: With every rule that any row breaks, except those of the components of dense
            vectors: `encode_into` checks these in the pass that copies them (`validate_rows` finds all of them before).
    """
    def __new__(cls, columns: Sequence[tuple[str, str, object]], ids: Sequence[str] | None = None) -> Self: ...
    @property
    def rows(self) -> int:
        """Number of rows."""
    @property
    def largest_row(self) -> int:
        """Minimum size of a buffer in bytes: the largest row with the stream's header and trailer."""
    def encode_into(self, buffer: NDArray[np.uint8], position: int) -> tuple[int, int]:
        """Write as many rows from ``position`` on as fit.

        Reuse one buffer: with a fresh one per block the page faults cost more than the encoding.

        Args:
            buffer: Writable uint8 (n,), C-contiguous, at least `largest_row` bytes; 1 MiB is best
                (smaller ones take up to 50 % longer).
            position: 0 to begin (again), else what the previous call returned.

        Returns:
            (next position, bytes written). The stream is complete, trailer included, when the next position is
            ``rows + 1``.

        Raises:
            ValueError: For another position, or a buffer that is too small or read-only.
            TypeError: When the buffer is not a one-dimensional uint8 array.
            semlex.errors.ValidationError: When a component is NaN or infinite or overflows float16, or an array was
                changed since construction so that it breaks a rule.
        """

def decode_copy(data: bytes, types: Sequence[str]) -> list[list[Any]]:
    """Read a whole binary COPY stream.

    Args:
        data: The stream, header to trailer.
        types: Type of each column, by the names that `CopyEncoder` takes.

    Returns:
        One list a column. vector and halfvec become float32 (d,), bit a str, sparsevec (dimensions, int32 (m,),
        float32 (m,)), timestamptz a datetime in UTC, jsonb the result of ``json.loads``; NULL is None.

    Raises:
        semlex.errors.ValidationError: Code ``malformed_copy``, with the place, for anything that the server would not
            send for these types; ``unknown_type``.
    """

def decode_copy_buffers(data: bytes, types: Sequence[str]) -> list[tuple[Any, Any, Any]]:
    """Read a whole binary COPY stream without making a Python object for each value.

    Args:
        data: The stream, header to trailer.
        types: Type of each column, by the names that `CopyEncoder` takes; not sparsevec.

    Returns:
        (nulls, offsets, values) a column, as Arrow lays it out. nulls is bool (n,), None where no row is null. offsets
        is int32 (n + 1,): where each row begins in the values, None where each row is one value. values are those of
        all rows, one after another: int64 of whole numbers and of timestamptz (microseconds since 1970), float32,
        float64, uint8 of text, jsonb, bytea, bool, bit (one a bit) and uuid (16 a row), float32 of vectors; of arrays
        such a tuple of the elements.

    Raises:
        semlex.errors.ValidationError: As `decode_copy` does.
        TypeError: For sparsevec.
        OverflowError: When a column has more than 2 GiB.
    """

def hash_rows(label: str, columns: Sequence[Sequence[str]]) -> list[bytes]:
    """Return the identity of each row: 16 bytes of SHA-256 over the label and the row's texts, each after a NUL.

    Args:
        label: Kind of the rows; equal texts under different labels have different identities.
        columns: One list of texts for each field, all of the same length.

    Returns:
        One identity a row.

    Raises:
        ValueError: The columns have different lengths.
        UnicodeEncodeError: A text holds a lone surrogate.
    """

def to_json(value: object) -> bytes:
    """Return the JSON text (UTF-8) that ``jsonb`` stores for a value.

    Accepts dict with str keys, list, tuple, str, int up to 4,300 digits, float, bool and None, and subclasses of these.
    jsonb keeps numbers as decimals: a float of 1e16 or more is read back as an int.

    Raises:
        semlex.errors.ValidationError: ``not_finite``, ``nul``, ``lone_surrogate``, ``key_not_string``,
            ``unsupported_type``, ``out_of_range``, ``too_deep`` (64 levels), ``too_long`` (1 MiB).
    """

def validate_identifier(name: str) -> list[tuple[int, str | None, str, str, str | None, str | None]]:
    """Check a name that becomes part of SQL identifiers: ``[a-z_][a-z0-9_]{0,47}``, not beginning with ``pg_``.

    Returns:
        The broken rules as in `validate_rows`, with row -1 and field ``name``.
    """

def validate_rows(
    fields: Sequence[tuple[str, str, object, Mapping[str, object] | None]],
    ids: Sequence[object] | None = None,
) -> list[tuple[int, str | None, str, str, str | None, str | None]]:
    """Find every broken rule of every row.

    ============  ====================================================  ========================================
    kind          limits, with their defaults                           rules
    ============  ====================================================  ========================================
    id                                                                  1 character to 512 bytes, no NUL
    text          ``min_chars`` 0, ``max_bytes`` none                   no NUL
    jsonb         ``max_depth`` 64 (at most 64), ``max_bytes`` 1 MiB    those of `to_json`
    vector        ``dimension`` any                                     finite, not all zero, length usable
    halfvec       ``dimension`` any                                     the same after rounding to float16
    timestamptz                                                         years 1 to 9999
    ============  ====================================================  ========================================

    All kinds have ``nullable`` (False): whether None is allowed. A vector's length is usable when the sum of its
    squares is a normal float32 (lengths of about 1.1e-19 to 1.8e19): pgvector sums squares in float32, and outside of
    that cosines become NaN.

    Args:
        fields: (name, kind, values, limits) of each field; values as `CopyEncoder` takes them.
        ids: One id a row, used only to name rows.

    Returns:
        (row, id, field, code, limit, actual) of each broken rule, the attributes of `semlex.errors.FieldError`, by row
        and then by field; row -1 concerns the whole call. A JSON value or an array of one row reports its first error.

    Raises:
        ValueError: For an unknown kind or limit.
    """

@final
class Analyzer:
    """Splits documents and queries into terms. Threads can share it and run in parallel.

    Words are folded (case, accents, widths; marks stay where they are letters, as in Indic scripts), then stemmed by
    the language's Snowball stemmer. Languages without one, and ``simple``, keep their words as they are. Han and kana
    become overlapping pairs and single characters, Thai, Lao, Khmer and Burmese overlapping threes, in every language.
    Identifiers, paths, versions and words with hyphens are found whole and in parts. A term has at most 128 bytes.

    Args:
        language: A name or an ISO 639-1 code.
        stop_words: Whether the language's stop words have no terms. The lists are those of NLTK, folded like the text.
            Armenian, Czech, Esperanto, Estonian, Hindi, Irish, Lithuanian, Persian, Polish, Serbian, Sesotho,
            Ukrainian, Yiddish and the languages without a stemmer have none; those of Arabic, Basque and Indonesian
            are left out, because they hold words that people search for.

    Raises:
        ValueError: The language is unknown; the message lists the known ones.
    """
    def __new__(cls, language: str, stop_words: bool = True) -> Self: ...
    @property
    def language(self) -> str:
        """The name of its language."""
    def terms(self, text: str) -> list[str]:
        """Return all terms of a text in order, repetitions included.

        A word whose stem has accents has a second term, which keeps them and begins with ``=``.
        """
    def query(self, text: str, max_terms: int = 64) -> Query:
        """Return the terms of a query. Every text is a valid query.

        ``"quotes"`` hold a phrase, straight or typographic; without a closing quote they mean nothing. ``-word`` and
        ``-"a phrase"`` exclude, at the start of the text or after white space; a letter or a quote must follow the
        dash, so ``-5`` is a number.

        Args:
            text: The query.
            max_terms: Maximum number of wanted terms, and of terms of phrases and exclusions, from 0.

        Raises:
            ValueError: `max_terms` is negative.
        """
    def matches(
        self,
        texts: Sequence[str],
        phrases: Sequence[Sequence[str]],
        excluded: Sequence[Sequence[str]] = ...,
    ) -> NDArray[np.bool_]:
        """Report which texts contain the phrases of a `Query`.

        The terms of a phrase must follow each other. Stop words take no position in the text, so the phrase
        ``bank of america`` is also found in ``bank, America``; punctuation takes none either. A phrase without terms is
        in every text.

        Args:
            texts: n texts.
            phrases: The terms of each phrase that a text must hold.
            excluded: The terms of each word or phrase that it must not hold.

        Returns:
            bool (n,): whether the text holds all phrases, and nothing that is excluded.
        """

@final
class Query:
    """The terms of a query in one language.

    Attributes:
        wanted: (slot, term) of each distinct term of the words and phrases, in order. The slot identifies the word of
            the query and is the same in every language. A term with accents follows the folded one; its slot has bit 31
            set. If there are more than `max_terms`, the first ones are kept.
        phrases: The terms of each phrase, one per word position; no phrase is empty.
        excluded: The terms of each excluded word or phrase, likewise.
        total: Number of distinct wanted terms before the cut.
        conditions: Number of terms of all phrases and exclusions, repeats included. If it exceeds `max_terms`,
            ``phrases`` and ``excluded`` are empty, and the query must be refused.
    """
    @property
    def wanted(self) -> list[tuple[int, str]]:
        """(slot, term) of each wanted term."""
    @property
    def phrases(self) -> list[list[str]]:
        """Terms of each phrase."""
    @property
    def excluded(self) -> list[list[str]]:
        """Terms of each exclusion."""
    @property
    def total(self) -> int:
        """Wanted terms before the cut."""
    @property
    def conditions(self) -> int:
        """Terms of all phrases and exclusions."""

def language_named(name: str) -> str:
    """Return the name in `ANALYZER_LANGUAGES` for a name or an ISO 639-1 code, in any case.

    Raises:
        ValueError: The language is unknown; the message lists the known ones.
    """

@final
class BatchPlan:
    """Rows grouped into batches.

    Attributes:
        order: (n,) row numbers, longest row first; rows of equal length in their own order.
        boundaries: (b + 1,) batch i is ``order[boundaries[i] : boundaries[i + 1]]``; begins with 0 and ends with n.
        inverse: (n,) place of every row in `order`: ``np.concatenate(results)[plan.inverse]`` is in the rows' order.
        real_tokens: Tokens of all rows.
        computed_tokens: Tokens that a model computes; ``1 - real_tokens / computed_tokens`` is what padding wastes.
    """
    @property
    def order(self) -> NDArray[np.int64]: ...
    @property
    def boundaries(self) -> NDArray[np.int64]: ...
    @property
    def inverse(self) -> NDArray[np.int64]: ...
    @property
    def real_tokens(self) -> int: ...
    @property
    def computed_tokens(self) -> int: ...

@final
class TokenBatch:
    """The rows of one batch as one sequence, without padding; the arrays are the buffers that were filled, not copies.

    Attributes:
        rows: (b,) numbers of the rows, longest first.
        ids: (t,) token ids, row after row, without the tokens that the plan skips.
        positions: (t,) place of every token in its own row, the skipped ones counted.
        documents: (t,) which row of the batch every token belongs to, from 0.
        offsets: (b + 1,) row i of the batch is ``ids[offsets[i] : offsets[i + 1]]``; none is empty.
    """
    @property
    def rows(self) -> NDArray[np.int64]: ...
    @property
    def ids(self) -> NDArray[np.int64]: ...
    @property
    def positions(self) -> NDArray[np.int64]: ...
    @property
    def documents(self) -> NDArray[np.int64]: ...
    @property
    def offsets(self) -> NDArray[np.int64]: ...

@final
class TokenPlan:
    """Rows of token ids in packed batches: the plan of `plan_batches` with the buffers that a model takes.

    Attributes:
        real_tokens: Tokens of all rows, without the skipped ones.
        computed_tokens: Tokens that the budget counts: the same number, unless `padded`.

    Args:
        ids: (t,) token ids from 0, row after row.
        offsets: (n + 1,) row i is ``ids[offsets[i] : offsets[i + 1]]``.
        token_budget: Maximum tokens of a batch, from 1; a row above it is a batch of its own.
        max_rows: Maximum rows of a batch, from 1.
        padded: Whether the budget counts a batch's longest row times its rows, for attention that pads; else the sum of
            its rows. The buffers are the same.
        skip: Tokens at the beginning of every row that the batches leave out, because a model has read them already.

    Raises:
        ValueError: A number is out of its range, the offsets do not fit the ids, a row has no token after those that
            are skipped, an id is negative, or an array has another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """
    def __new__(
        cls,
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        *,
        token_budget: int,
        max_rows: int,
        padded: bool = False,
        skip: int = 0,
    ) -> Self: ...
    @property
    def real_tokens(self) -> int: ...
    @property
    def computed_tokens(self) -> int: ...
    def __len__(self) -> int: ...
    def batch(self, number: int) -> TokenBatch:
        """Fill the buffers of one batch.

        Args:
            number: The batch, from 0.

        Raises:
            IndexError: There are fewer batches.
        """

def common_prefix(ids: NDArray[np.int64], offsets: NDArray[np.int64]) -> int:
    """Count the tokens with which all rows begin.

    Args:
        ids: (t,) token ids, row after row.
        offsets: (n + 1,) row i is ``ids[offsets[i] : offsets[i + 1]]``.

    Returns:
        Up to one less than the tokens of the shortest row, so that every row keeps one; 0 for fewer than two rows.

    Raises:
        ValueError: The offsets do not fit the ids, or an array has another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """

def plan_batches(lengths: NDArray[np.int64], *, token_budget: int, max_rows: int, padded: bool) -> BatchPlan:
    """Plan batches of rows of similar length.

    A batch is cut before it costs more than `token_budget` or has more than `max_rows` rows; a row above the budget is
    a batch of its own.

    Args:
        lengths: (n,) tokens per row, from 0.
        token_budget: Maximum tokens of a batch, from 1.
        max_rows: Maximum rows of a batch, from 1.
        padded: Whether a batch costs its longest row times its rows; else it costs the sum of its rows.

    Raises:
        ValueError: A number is out of its range, a length is negative, their sum passes 64 bits, or the array has
            another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """

@final
class Chunks:
    r"""The chunks of a text in its order; row i of every array is chunk i.

    Attributes:
        starts: (c,) where each begins, in characters; strictly ascending.
        ends: (c,) where each ends, in characters (exclusive); strictly ascending.
        token_counts: (c,) tokens that touch each.
        lines: (c,) line on which each begins, from 1; a line ends with ``\n``, ``\r`` or both.
        code: (c,) whether each is code, or lies inside one block of it.
        headings: c paths of titles, outermost first; levels without a title are left out. A chunk with text of several
            sections has the common part of their paths. Titles are cut at 256 characters.
        introductions: c texts: the words that introduce the list, table or code that a chunk continues, or None.
        title: The first title of level 1, or None.
    """
    @property
    def starts(self) -> NDArray[np.int64]: ...
    @property
    def ends(self) -> NDArray[np.int64]: ...
    @property
    def token_counts(self) -> NDArray[np.int64]: ...
    @property
    def lines(self) -> NDArray[np.int64]: ...
    @property
    def code(self) -> NDArray[np.bool_]: ...
    @property
    def headings(self) -> list[tuple[str, ...]]: ...
    @property
    def introductions(self) -> list[str | None]: ...
    @property
    def title(self) -> str | None: ...
    def __len__(self) -> int: ...

def count_words(texts: Sequence[str]) -> NDArray[np.int64]:
    """Count the words of `word_offsets` in each text.

    Args:
        texts: n texts.

    Returns:
        (n,) numbers of words.

    Raises:
        ValueError: A text holds a lone surrogate; the message names the text and the character.
    """

def split_text(
    text: str,
    token_offsets: NDArray[np.int64] | None,
    *,
    max_tokens: int,
    overlap_tokens: int,
    min_tokens: int,
    structure: str,
    max_bytes: int,
) -> Chunks:
    """Split a text into chunks of up to `max_tokens` tokens, in time linear in its length.

    Sections end at headings: of Markdown (CommonMark 0.31: ATX and setext, not in fenced code, comments or front
    matter), of reStructuredText (underlines, and directives that describe an object), or the definitions of source
    code. A section below `min_tokens` is joined with the following sibling or child where both fit; headings without
    text are joined with what follows. Inside a section the text is packed greedily: paragraphs (code stays whole
    where it fits), then lines, sentences, words, parts of words, graphemes, characters. An introduction (a heading,
    words that end with a colon, a directive, the header of a table) stays with the first part of what it introduces if
    both fit.

    Together the chunks hold every character that is not blank (``str.isspace``); none is blank. A token that is cut in
    two counts on both sides. A single character with more tokens than `max_tokens` is a chunk nevertheless.

    Args:
        text: The text.
        token_offsets: (t, 2) start and end of every token in characters, both columns ascending; None where the
            tokens are the words of `word_offsets`.
        max_tokens: Maximum tokens of a chunk, from 1.
        overlap_tokens: Maximum tokens that neighbours of one section share, below `max_tokens`; 0 for none. No
            character is in more than two chunks.
        min_tokens: Sections with fewer tokens are joined with a neighbour; from 0.
        structure: ``plain`` (one section), ``markdown``, ``restructuredtext``, or ``code:`` with the suffix of such
            files (``code:py``).
        max_bytes: Maximum bytes of a chunk in UTF-8, from 4.

    Raises:
        ValueError: A number is out of its range, the offsets have another dtype or shape, a row of them lies outside
            the text or out of order, or the text holds a lone surrogate; the message names it.
        TypeError: An argument has another type.
    """

def word_offsets(text: str) -> NDArray[np.int64]:
    """Find the words that contain a letter or a digit (Unicode Standard Annex 29, section 4).

    Args:
        text: The text.

    Returns:
        (w, 2) start and end in characters, in ascending order, without overlap.

    Raises:
        ValueError: The text holds a lone surrogate; the message names the character.
    """

def excerpts(
    texts: Sequence[str],
    analyzer: Analyzer | None = None,
    terms: Sequence[str] = ...,
) -> list[tuple[str, int | None]]:
    """Make excerpts of texts: the sentences with most of the matched words.

    Lines that are only instructions for a renderer are left out. A matched word is between ``**``; ``…`` marks omitted
    text. An excerpt has up to 300 characters of the text, or one sentence of up to 400.

    Args:
        texts: n texts.
        analyzer: Analyzer of their language; None matches no word.
        terms: The wanted terms of a query.

    Returns:
        (excerpt, match) of each text: ``match`` is the position, in characters of the text, of the first matched word
        in the excerpt, else of the first one in the text; None if no word matches.
    """

def completed_fusion(
    vector: NDArray[np.float64],
    keyword: NDArray[np.float64],
    *,
    mean: float,
    deviation: float,
    vector_weight: float,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Fuse vector and keyword scores that are known for every candidate: score fusion.

    ``(1 - w) * keyword / greatest keyword + w * z / 6``, ``z = (vector - mean) / deviation``. NaN means no score: that
    search contributes nothing. Without a keyword score above 0 the first term is 0, without a deviation the second.

    Args:
        vector: (n,) vector scores, larger is better; NaN for a candidate without a vector.
        keyword: (n,) keyword scores, from 0; NaN for none.
        mean: Mean of the vector scores of a sample of all chunks.
        deviation: Their standard deviation, from 0.
        vector_weight: w, 0 to 1.

    Returns:
        order: (n,) places of the candidates in the input, best first; ties in the order of the input.
        scores: (n,) their scores, the sums of the next two.
        vector: (n,) what vector search contributed to each.
        keyword: (n,) what keyword search contributed to each.

    Raises:
        ValueError: A number is out of its range, the arrays differ in length, or one has another dtype or shape; the
            message names it.
        TypeError: An argument has another type.
    """

def fuse_legs(
    vector: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]],
    keyword: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]],
    *,
    mean: float,
    deviation: float,
    vector_weight: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Fuse the chunks that vector and keyword search found, as `completed_fusion` does.

    Args:
        vector: (numbers, scores, keyword scores) of the chunks that vector search found, (n,) each, best first. A chunk
            has the same number in both searches. Keyword scores are NaN for none, and ignored for a chunk that keyword
            search found as well.
        keyword: (numbers, scores, vector scores) of the chunks that keyword search found, likewise, (m,) each.
        mean: Mean of the vector scores of a sample of all chunks.
        deviation: Their standard deviation, from 0.
        vector_weight: Weight of vector search, 0 to 1.

    Returns:
        scores: (k,) fused scores of all candidates, best first; ties go to the smaller number.
        near: (k,) what vector search contributed to each.
        worded: (k,) what keyword search contributed to each.
        vector_ranks: (k,) ranks in vector search, from 1; 0 for a chunk that it did not find.
        vector_scores: (k,) vector scores; NaN for none.
        keyword_ranks: (k,) ranks in keyword search, from 1; 0 for a chunk that it did not find.
        keyword_scores: (k,) keyword scores; NaN for none.

    Raises:
        ValueError: A number is out of its range, arrays of one search differ in length, or one has another dtype or shape;
            the message names it.
    """

def linear_fusion(
    rankings: Sequence[NDArray[np.int64]],
    scores: Sequence[NDArray[np.float64]],
    *,
    weights: Sequence[float] | None = None,
    limit: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Fuse rankings by score: ``sum of weight * (s - least) / (greatest - least)`` over the rankings that contain an id.

    If all scores of a ranking are equal, each counts as 1. An id that a ranking names twice counts there once, with
    its first score.

    Args:
        rankings: Ids of each ranking, each (n,); ties are broken by the smaller id.
        scores: ``scores[i][j]`` belongs to ``rankings[i][j]``; finite, may be negative.
        weights: One per ranking, finite and not negative. Default: 1 each.
        limit: Maximum number of ids returned, from 0. Default: all.

    Returns:
        ids: (m,) every id once, best first.
        scores: (m,) their scores.

    Raises:
        ValueError: A weight, a score or the limit is out of its range, lists differ in number or length, or an array
            has another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """

def reciprocal_rank_fusion(
    rankings: Sequence[NDArray[np.int64]],
    *,
    weights: Sequence[float] | None = None,
    k: float = 60.0,
    limit: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Fuse rankings by rank: ``score(d) = sum of weight / (k + rank of d)``, ranks from 1.

    G. V. Cormack, C. L. A. Clarke and S. Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods", SIGIR 2009. An id that a ranking names twice counts there once, at its best rank.

    Args:
        rankings: Ids of each ranking, best first, each (n,); ties are broken by the smaller id.
        weights: One per ranking, finite and not negative. Default: 1 each.
        k: Constant, finite and not negative; larger values make the first ranks count less.
        limit: Maximum number of ids returned, from 0. Default: all.

    Returns:
        ids: (m,) every id once, best first.
        scores: (m,) their scores.

    Raises:
        ValueError: A weight, the constant or the limit is out of its range, there are more or fewer weights than
            rankings, or an array has another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """

@final
class HtmlReader:
    """Reads web pages, from any number of threads.

    Args:
        entities: Text of each named character reference, by its name without the ampersand, as in
            ``html.entities.html5``. A name that is listed without a semicolon is also replaced without one in
            the page, even at the beginning of a longer word.
    """
    def __new__(cls, entities: dict[str, str]) -> Self: ...
    def to_markdown(self, html: str) -> tuple[str, str | None]:
        """Convert a page, or a part of one, to Markdown, in time linear in its length.

        Headings, paragraphs, lists, rows of tables, preformatted text and the alternative texts of pictures are kept;
        other elements keep only their text. Scripts, styles and templates are left out. Menus, side bars and link marks
        are left out if the page has other text. Malformed HTML is read roughly as browsers do.

        Args:
            html: The page.

        Returns:
            The Markdown, its blocks separated by blank lines, and the content of ``<title>``, else of the first
            ``<h1>``, else None.

        Raises:
            ValueError: The page holds a lone surrogate; the message names the character.
        """

def shared_shingles(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return how much of each text each other text contains, by shingles: runs of 5 Unicode words in lower case.

    A text of fewer words is one shingle; one without a word is equal to the same text only.

    Args:
        texts: n texts.

    Returns:
        (n, n); row i, column j: share of the distinct shingles of text i that occur in text j, 0 to 1.

    Raises:
        TypeError: An element is not a str.
        UnicodeEncodeError: A text holds a lone surrogate.
    """

def normalise_rows(vectors: NDArray[np.float32], dimensions: int) -> NDArray[np.float32]:
    """Cut vectors to their leading components and scale them to norm 1, with sums of squares in float64.

    Args:
        vectors: (n, d).
        dimensions: Leading components that are kept, 1 to d.

    Returns:
        (n, dimensions); a row of zeros stays unchanged, and a row that is not finite stays so.

    Raises:
        ValueError: `dimensions` is out of its range, or the array has another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """

@final
class PostingCache:
    """Cache of what searches have read of one collection's keyword index. Stored rows never change, so entries never
    become stale.

    Posting lists are kept up to a limit, those of the terms used last; headers and tombstones as long as snapshots
    list them. All methods may be called from several threads.

    A search: `plan`, then in one snapshot of the database all segments, all tombstones and the rows that the plan
    lacks, then `snapshot`, then `PostingSnapshot.search`.

    Args:
        limit: Maximum bytes of posting lists.
        small_limit: Maximum bytes of small segments, which are kept with all their rows.
    """
    def __new__(cls, limit: int = 67108864, small_limit: int = 48000000) -> Self: ...
    @property
    def hits(self) -> int:
        """Lists, or known absences, that were cached when a search needed them."""
    @property
    def misses(self) -> int:
        """Lists that had to be read."""
    @property
    def used_bytes(self) -> int:
        """Bytes of cached posting lists."""
    @property
    def small_bytes(self) -> int:
        """Bytes of small segments."""
    def resize(self, limit: int) -> None:
        """Change the limit; the least recently used terms are evicted until the rest fits.

        Raises:
            ValueError: It is negative.
        """
    def clear(self) -> None:
        """Drop all posting lists; headers and tombstones stay."""
    def plan(
        self,
        queries: Sequence[tuple[str, Sequence[tuple[int, str]], Sequence[Sequence[str]], Sequence[Sequence[str]]]],
    ) -> PostingPlan:
        """Plan what a query needs, and pin the cached part of it.

        Args:
            queries: The query as analysed in each language: (language, wanted, phrases, excluded).
                ``wanted`` are (slot, term): a slot is one word of the query, with the same number in all languages.
                Every chunk found must hold all terms of all ``phrases``. A chunk is left out if it holds the term of a
                one-term group in ``excluded``; longer groups are phrases, which the caller looks for in the text.

        Raises:
            ValueError: When a language is named twice, or a slot has two terms in one language.
        """
    def snapshot(
        self,
        plan: PostingPlan,
        segments: Sequence[tuple[bytes, str, bytes | None]],
        tombstones: Sequence[tuple[bytes, bytes | None]],
        rows: Sequence[tuple[bytes, bytes, bytes | None, bytes | None]],
        ended: int = 0,
    ) -> PostingSnapshot:
        """Complete a plan with the rows of one database snapshot, and cache them.

        Args:
            plan: A plan of this cache.
            segments: (segment id, language, header) of every segment; the header may be None for known ones.
            tombstones: (tombstone id, data) of every tombstone; the data may be None for known ones.
            rows: (segment id, term, first term, data): for each cold term the row of each segment of its language, for
                each warm term that of each such segment that was not known. None and None if the row does not exist.
            ended: How many transactions had ended when the snapshot was taken. The cache then knows the segments and
                tombstones of this snapshot, unless one with a greater number was completed before.

        Raises:
            ValueError: When something is missing.
            semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
        """
    def complete(
        self,
        plan: PostingPlan,
        rows: Sequence[tuple[bytes, bytes, bytes | None, bytes | None]],
    ) -> PostingSnapshot:
        """Complete a plan for the segments and tombstones that it knows, and cache what was read.

        Args:
            plan: A plan of this cache.
            rows: (segment id, term, first term, data) for each of the plan's ``missing``. None and None if the row does
                not exist.

        Raises:
            ValueError: When something is missing.
            semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
        """
    def changes(
        self,
        plan: PostingPlan,
        segments: bytes,
        tombstones: bytes,
        new: Sequence[Sequence[bytes]],
    ) -> PostingChanges | None:
        """Return the index as a later state of the database lists it; None if parts of it were neither known nor given.

        Args:
            plan: A plan of this cache.
            segments: Ids of all segments, joined.
            tombstones: Ids of all tombstones, joined.
            new: Rows of five columns. Of a new segment ``b"1"``, id, language, header, hash of its rows' keys; of a new
                tombstone ``b"2"``, id, nothing, data, nothing; of a new segment's row, in ascending order, ``b"3"``, id,
                nothing, first term, data.

        Raises:
            ValueError: For other rows.
            semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
        """
    def follow(
        self,
        plan: PostingPlan,
        changes: PostingChanges,
        rows: Sequence[tuple[bytes, bytes, bytes | None, bytes | None]],
        ended: int,
    ) -> PostingSnapshot:
        """Complete a plan for a later state of the database, and cache what was read.

        Args:
            plan: A plan of this cache.
            changes: The state.
            rows: (segment id, term, first term, data) for each of the plan's ``missing``. None and None if the row does
                not exist.
            ended: As in `snapshot`.

        Raises:
            ValueError: When something is missing.
            semlex.errors.DamagedSegmentError: When stored bytes are not those that were written.
        """

@final
class PostingChanges:
    """The index as a later state of the database lists it."""
    @property
    def parts(self) -> int:
        """How many segments and tombstones there are."""
    @property
    def damaged(self) -> int:
        """How many new segments lack rows, or have rows that differ from those written."""
    @property
    def languages(self) -> set[str]:
        """Languages of the segments."""

@final
class PostingPlan:
    """What a query needs, and what of it is cached."""
    @property
    def known_segments(self) -> list[bytes]:
        """Ids of the segments whose headers are cached, in ascending order."""
    @property
    def known_tombstones(self) -> list[bytes]:
        """Ids of the cached tombstones, in ascending order."""
    @property
    def state(self) -> tuple[bytes, bytes]:
        """Ids of the cached segments and of the cached tombstones, each joined."""
    @property
    def missing(self) -> list[tuple[bytes, bytes]]:
        """(segment id, term) of the lists of known segments that are needed and not cached."""
    @property
    def cold(self) -> list[tuple[str, bytes]]:
        """(language, term) of the terms to read from all segments of their language."""
    @property
    def warm(self) -> list[tuple[str, bytes]]:
        """(language, term) of the terms to read from those segments of their language that are not known."""

@final
class PostingSnapshot:
    """A query over one snapshot of the database, with everything that it needs. Immutable."""
    @property
    def languages(self) -> list[str]:
        """Languages of the segments."""
    @property
    def missing_languages(self) -> list[str]:
        """Languages that the plan lacks: plan again with them, then take the snapshot again, before searching."""
    @property
    def is_latest(self) -> bool:
        """Whether no snapshot of a later state was completed before."""
    @property
    def chunks(self) -> int:
        """Number of live chunks."""
    @property
    def postings(self) -> int:
        """Postings of the wanted terms, those of dead chunks included."""
    def coverage(self, keyword_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how much of the query each chunk contains: the share of its terms' weight (idf) that occurs in the chunk.

        Args:
            keyword_ids: int64 (n,), in any order.

        Returns:
            float64 (n,), 0 to 1; exactly 1 if all terms occur. A word in no chunk of the collection counts with the
            greatest weight. NaN for chunks that are in no segment or deleted, and for those in whose language the query
            has no term.

        Raises:
            ValueError: For another array, or when languages are missing.
        """
    def search(
        self,
        k: int,
        *,
        k1: float = 1.2,
        b: float = 0.75,
        allowed: NDArray[np.int64] | None = None,
        score_ids: NDArray[np.int64] | None = None,
        before: tuple[PostingSnapshot, int, NDArray[np.int64], NDArray[np.float64]] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], tuple[int, int, int]]:
        """Find the best chunks by exact BM25 over the live chunks of all languages.

        The sum over wanted slots of ``idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / average length))`` with
        ``idf = ln(1 + (N - df + 0.5) / (df + 0.5))``: Robertson and Zaragoza, "The Probabilistic Relevance Framework:
        BM25 and Beyond" (2009), with the idf of Lucene. A slot's df counts the chunks that hold its term in their own
        language. Chunks with equal terms have equal scores, wherever they are stored.

        Args:
            k: How many chunks to find.
            k1: Term-frequency saturation, 0 to 1,000; higher values let repetitions count more.
            b: Weight of length normalisation, 0 to 1.
            allowed: Only these keyword ids are found; int64 (n,), in any order, ascending is fastest. None: all.
            score_ids: Keyword ids of chunks that are scored in any case, ``allowed`` or not; int64 (m,).
            before: An earlier search that makes this one faster, with the same plan, ``k1`` and ``b`` and without
                ``allowed``, on a slightly earlier state of the database: (snapshot, ``k``, ids found, their scores).

        Returns:
            (ids, scores, scores of ``score_ids``, work). The ids, int64 (n,), are those of the best ``k`` chunks that hold a
            wanted term, and of up to 1,000 more whose score equals the k-th; by score descending, then by id. Scores
            are float64 (n,). Those of ``score_ids``, float64 (m,), are 0 without a wanted term, NaN for chunks that
            are in no segment, deleted, excluded or without a term of a phrase. ``work`` does not include ``score_ids``:
            postings unpacked, blocks of up to 128 postings skipped, chunks scored again in double precision.

        Raises:
            ValueError: For arguments out of range, or when languages are missing.
        """

def _panic(message: str, *, builder: SegmentBuilder | None = None, held: bool = False) -> None:
    """Panic on purpose, for tests; with a builder, in the middle of its work."""

@final
class EncodedSegment:
    """A segment of the keyword index in its stored form: a header, and rows of posting lists.

    A term's list is in the row with the greatest first term (in the order of bytes) that is not above the term.
    """
    @property
    def header(self) -> bytes:
        """Ids and lengths of the chunks."""
    @property
    def first_terms(self) -> list[bytes]:
        """First term of each row, ascending; with the segment's id the row's key."""
    @property
    def data(self) -> list[bytes]:
        """Data of each row."""
    @property
    def chunks(self) -> int:
        """Number of chunks."""
    @property
    def postings(self) -> int:
        """Number of (term, chunk) pairs."""
    @property
    def total_length(self) -> int:
        """Terms of all chunks, repeats included."""

@final
class IdSet:
    """An immutable set of ids, stored as ranges, because a few bytes of a tombstone can name billions.

    Args:
        ids: In any order, repeated or not; int64 (n,). None: no ids.
    """
    def __new__(cls, ids: NDArray[np.int64] | None = None) -> Self: ...
    @staticmethod
    def union(sets: Sequence[IdSet]) -> IdSet:
        """Return all ids that are in any of the sets."""
    @property
    def count(self) -> int:
        """Number of ids."""
    def __bool__(self) -> bool:
        """Whether the set has ids."""
    def __and__(self, other: IdSet, /) -> IdSet:
        """The ids that are in both."""
    def __rand__(self, value: IdSet, /) -> IdSet: ...
    def __sub__(self, other: IdSet, /) -> IdSet:
        """The ids that are not in the other."""
    def __rsub__(self, value: IdSet, /) -> IdSet: ...
    def to_array(self) -> NDArray[np.int64]:
        """The ids, ascending: int64 (n,).

        Raises:
            MemoryError: For more than 2**30 ids, or than there is memory for.
        """

@final
class SegmentBuilder:
    """Builds a segment from up to 65,536 chunks of one language."""
    def __new__(cls) -> Self: ...
    def __len__(self) -> int:
        """Number of chunks so far."""
    def add_terms(self, keyword_id: int, terms: Sequence[str]) -> None:
        """Add a chunk.

        Args:
            keyword_id: The chunk's id in the keyword index.
            terms: Its terms of 1 to 128 bytes, repeats included, in any order.

        Raises:
            ValueError: For other terms, or too many chunks; the chunk is then left out.
        """
    def add_texts(self, analyzer: Analyzer, keyword_ids: NDArray[np.int64], columns: Sequence[Sequence[str]]) -> None:
        """Add chunks by their texts.

        Args:
            analyzer: Analyzer of the segment's language. It keeps a cache of analysed words (64 MiB for all
                analyzers) for the next builder.
            keyword_ids: Ids of the chunks in the keyword index; int64 (n,).
            columns: The parts of the texts, n of each: ``columns[j][i]`` is part j of text i.

        Raises:
            ValueError: For columns of another length, or one chunk too many; those before it stay.
        """
    def finish(self, segment_id: bytes) -> EncodedSegment:
        """Build the segment and empty the builder.

        Args:
            segment_id: 16 random bytes that are never used again. The data is bound to it.

        Raises:
            ValueError: When an id was added twice; the chunks are gone then, too.
        """

def decode_tombstone(tombstone_id: bytes, data: bytes) -> IdSet:
    """Return the ids in a tombstone.

    Raises:
        semlex.errors.DamagedSegmentError: When the data is damaged.
    """

def encode_tombstone(tombstone_id: bytes, keyword_ids: IdSet) -> bytes:
    """Encode ids of deleted chunks.

    Args:
        tombstone_id: 16 random bytes that are never used again. The data is bound to it.
        keyword_ids: Fewer than 2**32 ids.

    Raises:
        ValueError: For more ids.
    """

def keys_hash(keys: Sequence[bytes]) -> bytes:
    """Return the hash that a segment keeps of the keys of its rows."""

def merge_segments(
    segment_id: bytes,
    sources: Sequence[tuple[bytes, bytes, Sequence[tuple[bytes, bytes]]]],
    dead: IdSet,
) -> EncodedSegment:
    """Merge segments of one language. The result equals a segment built from the live chunks, byte by byte.

    Args:
        segment_id: Id of the new segment.
        sources: (segment id, header, rows) of each, with all rows as (first term, data), sorted by first term.
        dead: Keyword ids to leave out.

    Raises:
        ValueError: When more than 65,536 chunks are live, or one is in two sources.
        semlex.errors.DamagedSegmentError: When stored bytes are not those that were written, or rows are missing.
    """

def segment_ids(segment_id: bytes, header: bytes) -> IdSet:
    """Return the keyword ids in a segment, deleted ones included.

    Raises:
        semlex.errors.DamagedSegmentError: When the header is damaged.
    """

def rank_sentences(
    analyzer: Analyzer,
    question: str,
    passages: Sequence[tuple[str, str]],
) -> list[tuple[int, int, int, str, float, float]]:
    """Rank the sentences of passages by how well they answer a question.

    A sentence scores by the question's words that it contains, weighted by their idf over all these sentences. Words of
    neighbouring sentences, titles and the rest of the passage count less. The result is deterministic.

    Args:
        analyzer: Of the passages' language.
        question: Its first 64 words count.
        passages: (text, titles) of each, the best passage first.

    Returns:
        (passage, start, end, kind, score, own) of every sentence, passage by passage: the place as `split_sentences`
        gives it; the score from 0, comparable within one question; ``own``, 0 to 1: the share of the question's weight
        that comes from words in the sentence itself.

    Raises:
        ValueError: The question holds half of a surrogate pair.
    """

def split_sentences(text: str) -> list[tuple[int, int, str]]:
    """Split a text into sentences, in order and without overlap.

    Blank lines, list items, table rows, titles, code fences and literal blocks after ``::`` end a block of text.
    In prose a sentence ends after a full stop or similar, but not after abbreviations, initials and ordinal numbers.

    Returns:
        (start, end, kind) of each, in characters; never empty, without blanks at its ends. ``kind`` is ``prose``,
        ``heading`` or ``code``: up to eight lines without a blank one.

    Raises:
        ValueError: The text holds half of a surrogate pair.
    """

@final
class BpeTokenizer:
    """Byte pair encoding as in the models of Qwen and in Llama 2.

    Threads can share it and run in parallel. The first kind merges bytes of pieces that a pattern
    cuts; the second writes ``▁`` for spaces and merges characters, or the bytes of those that its vocabulary lacks.

    Ids, counts and offsets are those of the tokenizers library, for every text.

    Args:
        content: A ``tokenizer.json``.

    Raises:
        NotImplementedError: The file needs something that neither kind has: another model, normaliser,
            splitting pattern or post-processor. The message names it.
        ValueError: The file is malformed.
    """
    def __new__(cls, content: bytes) -> Self: ...
    @property
    def special_prefix_suffix(self) -> tuple[list[int], list[int]]:
        """Ids that the file's own post-processor puts before and after a text; the methods leave them out."""
    def token_id(self, token: str) -> int | None:
        """Return the id of a token, as the vocabulary spells it; None if it is unknown."""
    def encode(
        self,
        texts: Sequence[str],
        *,
        head: Sequence[int],
        tail: Sequence[int],
        most: int | None = None,
        special_tokens_as_text: bool = False,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Encode texts.

        Args:
            texts: n texts.
            head: Ids in front of every row.
            tail: Ids after every row.
            most: Maximum tokens of a text, from 0; longer texts lose their end. None: no limit.
            special_tokens_as_text: Whether the spelling of a special token inside a text is ordinary text. Other added
                tokens are found in either case.

        Returns:
            ids: (t,) the rows one after the other: head, the text's ids, tail.
            offsets: (n + 1,); row i is ``ids[offsets[i]:offsets[i + 1]]``.
            cut: Numbers of the rows that lost tokens, ascending.

        Raises:
            ValueError: `most` is negative.
            UnicodeEncodeError: A text holds a lone surrogate.
        """
    def count(self, texts: Sequence[str], *, special_tokens_as_text: bool = False) -> NDArray[np.int64]:
        """Count tokens: (n,) for n texts; arguments and errors as those of `encode`."""
    def offsets(self, text: str, *, special_tokens_as_text: bool = False) -> NDArray[np.int64]:
        """Find the position of each token.

        A token that holds a part of a character covers all of it. If normalisation joined several characters to one,
        its tokens cover the first of them.

        Args:
            text: One text.
            special_tokens_as_text: As in `encode`.

        Returns:
            (t, 2) start and end in characters of the text as given, both columns ascending.

        Raises:
            UnicodeEncodeError: The text holds a lone surrogate.
        """
