"""What a person should know about a map: odd settings, a full budget, what was left out."""
