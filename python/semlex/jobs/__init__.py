"""Background work: what jobs there are, and who does them."""
