"""What the store tells for explanations: documents by name, chunks by what keeps them out, exact ranks."""
