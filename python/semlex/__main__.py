"""`python -m semlex` is the command line."""

from semlex.cli import main

if __name__ == "__main__":
    main()
