"""A query and candidates in, one relevance per candidate out."""
