"""The command `skybraid`, and `python -m skybraid`."""

import signal
from importlib import import_module


def main() -> None:
    """Imports the command line and runs it; Ctrl-C during the import ends the process without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a shell lets programs in the background ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    command = import_module("skybraid.cli")
    signal.signal(signal.SIGINT, before)
    command.main()


if __name__ == "__main__":
    main()
