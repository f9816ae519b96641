"""Keyword engines behind one interface."""
