"""Map files; only this folder opens them.

checkpoint.py is for exact resume, export.py for pictures and other programs.
"""
