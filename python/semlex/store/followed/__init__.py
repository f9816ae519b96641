"""Read tables of users that collections follow."""
