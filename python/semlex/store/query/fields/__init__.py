"""Which fields chunks have, and which values these."""
