"""Time and memory: updates, drawings, reading, the live node, a card, large areas."""
