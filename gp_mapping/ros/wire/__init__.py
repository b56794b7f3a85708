"""Messages made and read, and their qualities of service."""
