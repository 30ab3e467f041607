"""Exit codes of all commands."""

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells.
EXIT_TERMINATED = 143  # 128 + SIGTERM.
