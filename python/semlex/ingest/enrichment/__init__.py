"""A line for each chunk, written by a language model."""
