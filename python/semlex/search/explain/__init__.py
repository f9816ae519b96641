"""Explain why a document has its rank among the hits, and why a search found its hits."""
