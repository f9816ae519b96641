"""Status, health and diagnosis of collections, models and servers."""
