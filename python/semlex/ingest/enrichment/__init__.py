"""Chunk descriptions: one line about each chunk, written by a language model."""
