"""Formats of records, each of which is cut by itself: rows, objects, cells, chunks."""
