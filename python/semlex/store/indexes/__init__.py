"""Indexes of a collection: what they contain, which exist, how they are built."""
