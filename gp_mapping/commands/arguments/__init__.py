"""The options of each subcommand; --help and a wrong option need no torch."""
