"""`python -m duolog`."""

from duolog.cli import main

main()
