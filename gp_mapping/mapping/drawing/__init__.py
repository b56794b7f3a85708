"""The map on a grid: window, evaluation, layers, levels."""
