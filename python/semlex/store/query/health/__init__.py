"""What is read of a database to find what is wrong with it: bounded, and nothing is changed."""
