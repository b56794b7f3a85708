"""Streams that a caller has closed before a program begins, by the shell's words for it (preexec_fn).

Pictures are small.
"""

import os

from pictures import draw_small


def out():
    draw_small()
    os.close(1)


def error():
    draw_small()
    os.close(2)


def both():
    out()
    error()


def all_three():
    os.close(0)
    both()


BY_WORDS = {">&-": out, "2>&-": error, ">&- 2>&-": both, "<&- >&- 2>&-": all_three}
