"""What is true of a keyword index at every moment, checked on its tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core

if TYPE_CHECKING:
    from semlex.store.proving.ground import Connection
    from semlex.store.schema.names import Names


class IndexFindings:
    """What a check of a keyword index found.

    Attributes:
        missing: Ids of chunks that the index lacks.
        surplus: Ids in the index that no chunk has, or that it has twice.
        wrong: Other faults, in words.
        figures: Numbers of its parts.
    """

    def __init__(self) -> None:
        self.missing: set[int] = set()
        self.surplus: set[int] = set()
        self.wrong: list[str] = []
        self.figures: dict[str, int] = {}

    @property
    def is_well(self) -> bool:
        """Whether nothing was found."""
        return not (self.missing or self.surplus or self.wrong)

    def __str__(self) -> str:
        parts = [f"missing {sorted(self.missing)}"] if self.missing else []
        parts += [f"too many {sorted(self.surplus)}"] if self.surplus else []
        return "; ".join([*parts, *self.wrong]) or "well"


def check_keyword_index(connection: Connection, names: Names) -> IndexFindings:
    """Compare the keyword index of a collection with the stored texts; the caller's transaction sees one state."""
    # Every chunk is in exactly one segment of the generation that answers, and in that of its language; what else is
    # there is named by a tombstone. A segment's bytes, without the dead, are those that a plain analysis of the stored
    # texts gives. No posting row is without its segment, and the manifest lists what is there.
    findings = IndexFindings()
    row = connection.execute(
        sql.SQL(
            "SELECT keyword_generation, language, stop_words, coalesce(building_generation, 0) FROM {} WHERE name = %s"
        ).format(names.registry),
        [names.collection],
    ).fetchone()
    if row is None:
        findings.wrong.append("the collection is not in the registry")
        return findings
    generation, language, stop_words, building = row
    analysis = (language, stop_words)
    _check_generation(connection, names, generation, analysis, findings)
    parts = connection.execute(
        sql.SQL(
            "SELECT (SELECT array_agg(part_id ORDER BY part_id) FROM {} WHERE generation = %(of)s) "
            "IS NOT DISTINCT FROM (SELECT array_agg(id ORDER BY id) FROM ("
            "SELECT segment_id AS id FROM {} WHERE generation = %(of)s "
            "UNION ALL SELECT tombstone_id FROM {} WHERE generation = %(of)s) AS parts)"
        ).format(names.manifest, names.segment, names.tombstone),
        {"of": generation},
    ).fetchone()
    if parts != (True,):
        findings.wrong.append("the parts that the manifest lists differ from the stored ones")
    orphans = connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE segment_id NOT IN (SELECT segment_id FROM {})").format(
            names.posting, names.segment
        )
    ).fetchone()
    if orphans != (0,):
        findings.wrong.append(f"posting rows without a segment: {orphans}")
    findings.figures |= {"generation": generation, "building": building}
    return findings


def _check_generation(
    connection: Connection,
    names: Names,
    generation: int,
    analysis: tuple[str, bool],
    findings: IndexFindings,
) -> None:
    language, stop_words = analysis
    columns = "SELECT segment_id, language, chunks, header FROM {} WHERE generation = {}"
    segments = _rows(connection, columns, names.segment, generation)
    columns = "SELECT tombstone_id, data FROM {} WHERE generation = {}"
    tombstones = _rows(connection, columns, names.tombstone, generation)
    dead = _core.IdSet.union([_core.decode_tombstone(key.bytes, data) for key, data in tombstones])
    columns = "SELECT keyword_id, coalesce(language, {1}), context, chunk_text FROM {0}"
    texts = {keyword_id: rest for keyword_id, *rest in _rows(connection, columns, names.chunk, language)}
    held = {key: _core.segment_ids(key.bytes, header).to_array().tolist() for key, _, _, header in segments}
    counted = Counter(keyword_id for ids in held.values() for keyword_id in ids)
    alive = set(counted) - set(dead.to_array().tolist())
    findings.missing = set(texts) - alive
    findings.surplus = (alive - set(texts)) | {one for one, count in counted.items() if count > 1}
    findings.figures = {
        "segments": len(segments),
        "tombstones": len(tombstones),
        "dead": len(set(counted) - alive),
    }
    for segment_id, own, count, header in segments:
        if len(held[segment_id]) != count:
            findings.wrong.append(f"segment {segment_id} says {count} chunks and has {len(held[segment_id])}")
        columns = "SELECT first_term, data FROM {} WHERE segment_id = {} ORDER BY first_term"
        rows = _rows(connection, columns, names.posting, segment_id)
        found = _core.merge_segments(bytes(16), [(segment_id.bytes, header, rows)], dead)
        expected = _plainly_built(own, stop_words, {one: texts[one] for one in held[segment_id] if one in texts})
        if expected is None:
            findings.wrong.append(f"segment {segment_id} has chunks of another language than its own")
        elif (found.chunks, found.header, list(found.first_terms), list(found.data)) != (
            expected.chunks,
            expected.header,
            list(expected.first_terms),
            list(expected.data),
        ):
            findings.wrong.append(f"segment {segment_id} is another than its texts give")


def _plainly_built(language: str, stop_words: bool, texts: dict[int, list[str]]) -> _core.EncodedSegment | None:
    """Return the segment of these texts (id -> language, context, text); None if one has another language."""
    analyzer = _core.Analyzer(language, stop_words)
    builder = _core.SegmentBuilder()
    for keyword_id, (own, context, text) in texts.items():
        if _core.language_named(own) != language:
            return None
        builder.add_terms(keyword_id, [*analyzer.terms(context), *analyzer.terms(text)])
    return builder.finish(bytes(16))


def _rows(connection: Connection, text: Any, table: sql.Identifier, value: object) -> list[Any]:
    with connection.cursor(binary=True) as cursor:
        cursor.execute(sql.SQL(text).format(table, sql.Literal(value)))
        return cursor.fetchall()
