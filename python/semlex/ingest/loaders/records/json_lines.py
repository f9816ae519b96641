"""JSON Lines: an object a line."""

from __future__ import annotations

import io

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions
from semlex.ingest.loaders.decoding import decode
from semlex.ingest.loaders.records.json_text import parse_json
from semlex.ingest.loaders.records.rows import Rows
from semlex.ingest.loaders.storable import storable


class JsonLinesLoader:
    """Reads JSON Lines: each line is an object, and each object a record."""

    name = "json lines"
    suffixes = ("jsonl", "ndjson")
    version = 1
    reads_fields = True

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file.

        Without `LoadOptions.text_fields` every field that is a text is part of the record's text. Blank lines, and
        objects without text, are left out.
        """
        text, encoding, repaired = decode(file.data, options)
        rows = Rows(options)
        known: dict[str, None] = {}
        # Lines end with \n alone: other marks of an end may stand in a JSON text as they are.
        for number, line in enumerate(io.StringIO(text), 1):
            if not line.strip():
                continue
            value = parse_json(line, line=number)
            if not isinstance(value, dict):
                raise LoadError("bad_row", f"line {number} is no JSON object: write one a line")
            if "\\u" in line:  # only escapes make what the file's own encoding cannot
                value, count = storable(value, f"line {number}", options)
                repaired += count
            known.update(dict.fromkeys(value))
            rows.add(value, number)
        if known:
            rows.check_fields(known)
        return rows.document(encoding, repaired)
