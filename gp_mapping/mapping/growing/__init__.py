"""One map as it grows with its cells: which of them it gets, what is counted, what may be asked."""
