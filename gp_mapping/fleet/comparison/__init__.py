"""Each robot of a fleet compared with the others: the table of their figures, and whom to mend."""
