"""Tables of accuracy and cost: `python -m benchmark all --output DIR`. Not installed with the package."""
