"""The classes that users of the Python package hold: clients, retrievers, collections."""
