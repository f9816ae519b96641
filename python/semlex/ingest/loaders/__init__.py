"""Turn files into text, with one loader per format."""
