"""The path that was driven, and the attitude along it."""
