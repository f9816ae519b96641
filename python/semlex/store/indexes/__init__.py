"""Indexes of a collection: what they hold, what there is, how they are built."""
