"""Background work: the kinds of jobs, and the workers that do them."""
