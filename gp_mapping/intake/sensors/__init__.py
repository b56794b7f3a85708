"""One adaptor for each kind of sensor message."""
