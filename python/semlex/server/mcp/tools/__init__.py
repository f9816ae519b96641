"""The tools: what they take, what they do, what they return."""
