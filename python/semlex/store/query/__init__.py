"""What is read: legs, filters, rows, figures."""
