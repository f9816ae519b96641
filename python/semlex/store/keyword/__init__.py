"""Keyword engines behind one protocol; each score is called what it is."""
