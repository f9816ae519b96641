"""Reading: legs, filters, rows, figures."""
