"""Files as text, one loader per format."""
