"""Progress of a fit on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys

from tqdm import tqdm

__all__ = ["Progress"]

_EVERY = 5  # iterations between two plain lines


class Progress:
    """Call it after each iteration; it writes on stderr.

    Args:
        most: iterations of a step at most, the length of the bar.
    """

    def __init__(self, most: int):
        self.most, self._step, self._count, self._bar = most, "", 0, None

    def __call__(self, what: str, value: float) -> None:
        """Show one more iteration.

        Args:
            what: the objective that is raised; a new name begins a new step.
            value: of the objective, nats.
        """
        if what != self._step:
            self.close()
            self._step, self._count = what, 0
            if sys.stderr.isatty():
                self._bar = tqdm(
                    total=self.most, desc=f"fit, {what}", unit=" iterations", file=sys.stderr
                )

        self._count += 1
        if self._bar is not None:
            self._bar.update(1)
            self._bar.set_postfix_str(f"{value:.2f} nats")
        elif self._count % _EVERY == 1:
            print(
                f"fit: {what}, iteration {self._count}: {value:.2f} nats",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """End the bar of the step that is over."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None
