"""One filter language in three spellings, a mapping, Python and text: one tree. Knows no SQL."""
