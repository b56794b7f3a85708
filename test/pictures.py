"""Pictures of tests: small, without numbers along their axes, and nothing is measured to find places for texts.

The place of a title is given: to find it Matplotlib makes all numbers along the axes, a fifth of such a picture.

A picture in full is a third of a short command.
"""

from contextlib import contextmanager

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

DPI = 25
FULL = Figure.savefig, ConstrainedLayoutEngine.execute


def _save_small(figure, *args, **how):
    figure.set_dpi(DPI)
    for axes in figure.axes:
        axes.set_axis_off()
        axes.set_title(axes.get_title(), y=1.0)
    return FULL[0](figure, *args, **{**how, "dpi": DPI})


def _lay_out_nothing(engine, figure):
    pass


def _draw(save, lay_out):
    Figure.savefig, ConstrainedLayoutEngine.execute = save, lay_out


def draw_small():
    """From now on figures of this process are saved small and not laid out: also as preexec_fn of benchmark.warm."""
    _draw(_save_small, _lay_out_nothing)


@contextmanager
def full_pictures():
    """While it lasts, they are as a user has them."""
    before = Figure.savefig, ConstrainedLayoutEngine.execute
    _draw(*FULL)
    try:
        yield
    finally:
        _draw(*before)
