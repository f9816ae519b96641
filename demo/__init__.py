"""The demonstration: real documents in, explained hybrid results out."""
