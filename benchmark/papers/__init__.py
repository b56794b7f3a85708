"""Tables of the papers, and accuracy on the recordings."""
