"""Chunk descriptions: one line for each chunk, written by a language model."""
