"""What a Python user holds."""
