"""Writes the generated parts of the documentation from the code that they describe.

A part is between two comments of its page, ``<!-- begin NAME -->`` and ``<!-- end -->``. The rest of the page is
written by hand. ``./x docs`` writes all parts, and a test compares.
"""
