"""`python -m capspoe` is the `capspoe` command."""

from capspoe.cli import main

main()
