"""Public values: what was found out, and what was done."""
