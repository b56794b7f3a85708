"""What a processor and a card do differently: copies, recorded work, sparse products."""
