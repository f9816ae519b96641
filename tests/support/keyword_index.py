"""What is true of a keyword index at every moment, checked on what stands in its tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
from psycopg import sql

from semlex import _core
from semlex.store.schema.names import Names

Connection = psycopg.Connection[Any]


def check_index(url: str, collection: str = "words") -> dict[str, int]:
    """Checks the index of a collection in one snapshot; returns a few of its figures.

    Every chunk stands in exactly one segment of the generation that answers, and in that of its language; what else
    stands there is named by a tombstone. A segment's bytes, without the dead, are those that a plain analysis of the
    stored texts gives. No posting row is without its segment, and the manifest lists what there is.
    """
    names = Names("semlex", collection)
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = connection.execute(
            sql.SQL(
                "SELECT keyword_generation, language, stop_words, coalesce(building_generation, 0) FROM {} "
                "WHERE name = %s"
            ).format(names.registry),
            [collection],
        ).fetchone()
        assert row is not None
        generation, language, stop_words, building = row
        figures = _check_generation(connection, names, generation, language, stop_words)
        parts = connection.execute(
            sql.SQL(
                "SELECT (SELECT array_agg(part_id ORDER BY part_id) FROM {} WHERE generation = %(of)s) "
                "IS NOT DISTINCT FROM (SELECT array_agg(id ORDER BY id) FROM ("
                "SELECT segment_id AS id FROM {} WHERE generation = %(of)s "
                "UNION ALL SELECT tombstone_id FROM {} WHERE generation = %(of)s) AS parts)"
            ).format(names.manifest, names.segment, names.tombstone),
            {"of": generation},
        ).fetchone()
        assert parts == (True,), "the manifest is another"
        orphans = connection.execute(
            sql.SQL("SELECT count(*) FROM {} WHERE segment_id NOT IN (SELECT segment_id FROM {})").format(
                names.posting, names.segment
            )
        ).fetchone()
        assert orphans == (0,)
    return figures | {"generation": generation, "building": building}


def _check_generation(
    connection: Connection, names: Names, generation: int, language: str, stop_words: bool
) -> dict[str, int]:
    columns = "SELECT segment_id, language, chunks, header FROM {} WHERE generation = {}"
    segments = _rows(connection, columns, names.segment, generation)
    columns = "SELECT tombstone_id, data FROM {} WHERE generation = {}"
    tombstones = _rows(connection, columns, names.tombstone, generation)
    dead = _core.IdSet.union([_core.decode_tombstone(key.bytes, data) for key, data in tombstones])
    columns = "SELECT keyword_id, coalesce(language, {1}), context, chunk_text FROM {0}"
    texts = {keyword_id: rest for keyword_id, *rest in _rows(connection, columns, names.chunk, language)}
    held = {key: _core.segment_ids(key.bytes, header).to_array().tolist() for key, _, _, header in segments}
    counted = Counter(keyword_id for ids in held.values() for keyword_id in ids)
    assert set(counted.values()) <= {1}, "a chunk stands in two segments"
    alive = set(counted) - set(dead.to_array().tolist())
    assert alive == set(texts), f"missing {set(texts) - alive}, too many {alive - set(texts)}"
    for segment_id, own, count, header in segments:
        assert len(held[segment_id]) == count
        columns = "SELECT first_term, data FROM {} WHERE segment_id = {} ORDER BY first_term"
        rows = _rows(connection, columns, names.posting, segment_id)
        source = (segment_id.bytes, header, rows)
        found = _core.merge_segments(bytes(16), [source], dead)
        expected = _plainly_built(own, stop_words, {one: texts[one] for one in held[segment_id] if one in texts})
        assert (found.chunks, found.header) == (expected.chunks, expected.header)
        assert (list(found.first_terms), list(found.data)) == (list(expected.first_terms), list(expected.data))
    return {"segments": len(segments), "tombstones": len(tombstones), "dead": len(set(counted) - alive)}


def _plainly_built(language: str, stop_words: bool, texts: dict[int, list[str]]) -> _core.EncodedSegment:
    """The segment of these texts: id -> language, context, text."""
    analyzer = _core.Analyzer(language, stop_words)
    builder = _core.SegmentBuilder()
    for keyword_id, (own, context, text) in texts.items():
        assert _core.language_named(own) == language
        builder.add_terms(keyword_id, [*analyzer.terms(context), *analyzer.terms(text)])
    return builder.finish(bytes(16))


def _rows(connection: Connection, text: str, table: sql.Identifier, value: object) -> list[Any]:
    with connection.cursor(binary=True) as cursor:
        cursor.execute(sql.SQL(text).format(table, sql.Literal(value)))
        return cursor.fetchall()
