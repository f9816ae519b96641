"""A database that is broken on purpose, and what the doctor says."""
