"""What a process puts on the disk for itself alone, and leaves behind for nobody."""
