"""Segments of an index, whatever it keeps of a chunk: their generations, their ids, which are merged next."""
