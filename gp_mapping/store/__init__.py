"""Map files: the only place that opens them. checkpoint.py for exact resume, export.py for pictures and programs."""
