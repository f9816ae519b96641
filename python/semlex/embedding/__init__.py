"""Texts in, vectors out: one protocol, one file per kind of model."""
