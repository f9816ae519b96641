"""Filters: one language written as a mapping, in Python or as text, and parsed into one tree. It contains no SQL."""
