"""What a person should know about a map: settings that cannot be meant, a full budget, what was left out."""
