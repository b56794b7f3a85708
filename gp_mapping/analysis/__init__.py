"""Numbers about a finished map; nothing is printed here."""
