"""The dual sparse variational GP."""
