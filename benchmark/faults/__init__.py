"""`python -m benchmark faults`: what is thrown at the program, and what comes through. Sections by name, seeded."""
