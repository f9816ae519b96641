"""Makes the golden files of the stored format: a segment and a tombstone, and what they hold.

    python tests/support/stored_format_files.py

The ids are fixed, so making the files again changes no byte, unless the format has changed: then its version changes,
too, and docs/design/stored-format.md. `test_stored_format.py` reads them.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np

from semlex import _core

FOLDER = Path(__file__).parents[1] / "data" / "stored-format"
SEGMENT_ID = bytes(range(16))
TOMBSTONE_ID = bytes(range(16, 32))
# Three ranges of ids: those of early chunks, and the first ones of a block.
IDS = [*range(1, 181), *range(1_000, 1_220), *range(65_537, 65_677)]
# Two ranges, and an id that no segment holds any more.
DEAD = [*range(170, 175), *range(1_100, 1_110), 2**40]


def terms_of(number):
    """Terms of the chunk with this number: of one of them most chunks, so that its list has a row of its own."""
    terms = []
    if number % 50 != 49:
        repeats = {100: 30, 300: 200}.get(number, 2 + number % 7 if number % 4 == 0 else 1)
        terms += ["common"] * repeats
    if number % 3 == 0:
        terms += ["drum"] * (1 + number % 5)
    terms += [f"rare{number % 17}"] * (number % 11 == 0)
    terms += [f"a{number}"] * (number % 60 == 7)
    terms += {7: ["drum"] * 40, 8: ["x" * 128, "x" * 127 + "y"], 9: ["ß", "語", "語"]}.get(number, [])
    return terms


CHUNKS = {keyword_id: terms_of(number) for number, keyword_id in enumerate(IDS)}


def files():
    """The files by their names; what they hold is told from the texts, not from the bytes."""
    builder, holding = _core.SegmentBuilder(), {}
    for keyword_id, terms in CHUNKS.items():
        builder.add_terms(keyword_id, terms)
        for term, frequency in Counter(terms).items():
            holding.setdefault(term, []).append((keyword_id, frequency))
    segment = builder.finish(SEGMENT_ID)
    tombstone = _core.encode_tombstone(TOMBSTONE_ID, _core.IdSet(np.array(DEAD)))
    blobs = {"header": segment.header, "tombstone": tombstone}
    blobs |= {f"row-{number}": data for number, data in enumerate(segment.data)}
    contents = {
        "segment_id": SEGMENT_ID.hex(),
        "tombstone_id": TOMBSTONE_ID.hex(),
        "keys": [key.hex() for key in segment.first_terms],
        "dead": DEAD,
        "lengths": [(keyword_id, len(terms)) for keyword_id, terms in CHUNKS.items()],
        "terms": dict(sorted(holding.items(), key=lambda entry: entry[0].encode())),
    }
    values = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in contents.values())
    text = "{\n" + ",\n".join(f'"{key}": {value}' for key, value in zip(contents, values, strict=True)) + "\n}\n"
    return {f"{name}.bin": blob for name, blob in blobs.items()} | {"contents.json": text.encode()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in files().items():
        (FOLDER / name).write_bytes(data)
