"""What measuring is worth: of a whole path, of every cell of a grid, and by which weights."""
