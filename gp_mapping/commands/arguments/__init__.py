"""What each subcommand takes, without anything heavy: --help and a wrong option cost no torch."""
