"""Postprocess hits: each function works alone, on hits or on chunks with their places."""
