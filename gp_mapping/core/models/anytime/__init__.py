"""The anytime family: SoR, DTC, FITC, FIC, PITC, PIC."""
