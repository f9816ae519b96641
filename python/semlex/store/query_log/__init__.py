"""The questions that a collection was asked."""
