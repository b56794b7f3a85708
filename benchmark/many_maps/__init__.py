"""One map of many robots and bags."""
