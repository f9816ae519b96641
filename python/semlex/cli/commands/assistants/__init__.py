"""Commands for assistants that search."""
