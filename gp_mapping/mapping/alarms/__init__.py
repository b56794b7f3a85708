"""What an alarm of the change detector is: a field that has changed, or poses that lie off."""
