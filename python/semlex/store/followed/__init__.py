"""Follow tables of users: find the rows that have changed, and read them."""
