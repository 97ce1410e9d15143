"""`python -m skybraid` is the command `skybraid`."""

from skybraid.cli import main

main()
