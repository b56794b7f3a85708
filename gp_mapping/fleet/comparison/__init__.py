"""Each robot of a fleet beside the others: the table of their figures, and who is to be mended."""
