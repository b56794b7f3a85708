"""Whether an axis of a magnetometer tells nothing: a broken element, a field left empty.

Of a norm that is invisible: it is smaller, and turns with the robot where the axis is a level one.
"""

from __future__ import annotations

import numpy as np

__all__ = ["DeadAxes"]

_BLOCK = 200  # measurements that are looked at together
_STEPS = 2.5  # steps of its converter by which an axis that lives leaves a straight line
_OFTEN = 0.1  # of the measurements of a block: its noise is then .7 steps and more


class DeadAxes:
    """Watches for axes that tell one number while others change.

    In a block of measurements an axis is dead that does not change at all, while the second
    differences of another one are those of noise that exceeds the steps of its converter: such
    noise would change this one, too. A converter whose steps hide the noise holds still any axis.
    Where two axes are 0, nothing is broken: a sensor of the strength alone, written into the third.

    Args:
        mapped: numbers of the axes on which the map depends.
        component: what is mapped, for sentences.
        is_level: whether the sensor's z axis is upright, so that level and upright axes do not mix.
    """

    def __init__(self, mapped: tuple[int, ...], component: str, is_level: bool):
        self._mapped, self._component, self._is_level = mapped, component, is_level
        self._waiting: list[np.ndarray] = []
        self._n, self._seen = 0, 0
        self._dead = np.zeros(3, np.int64)  # measurements, of each axis
        self._value = np.zeros(3)

    def see(self, field: np.ndarray) -> None:
        """Look at measurements.

        Args:
            field: (n, 3) as measured, T.
        """
        self._waiting.append(field)
        self._n += len(field)
        if self._n < _BLOCK:
            return

        rows = np.concatenate(self._waiting)
        whole = len(rows) // _BLOCK * _BLOCK
        self._waiting, self._n = [rows[whole:]], len(rows) - whole

        blocks = rows[:whole].reshape(-1, _BLOCK, 3)
        change = np.abs(np.diff(blocks, axis=1))  # (B, n - 1, 3)
        step = np.where(change > 0.0, change, np.inf).min(1, keepdims=True)
        noisy = (np.abs(np.diff(blocks, 2, axis=1)) > _STEPS * step).mean(1) > _OFTEN  # (B, 3)
        dead = ~change.any(1) & noisy.any(1, keepdims=True)
        # two axes at 0: the strength, written into the third
        dead &= (~blocks.any(1)).sum(1, keepdims=True) != 2
        for axis in np.flatnonzero(dead.any(0)).tolist():
            self._value[axis] = blocks[dead[:, axis], 0, axis][-1]
        self._dead += _BLOCK * dead.sum(0)
        self._seen += whole

    @property
    def notes(self) -> list[str]:
        """Which axes that are mapped were dead, in a sentence."""
        axes = [axis for axis in self._mapped if self._dead[axis]]
        if not axes:
            return []

        told = " and ".join(
            f"{'xyz'[axis]} told exactly {self._value[axis]:.6g} T in {self._dead[axis]} of {self._seen} measurements"
            for axis in axes
        )
        return [
            f"of the magnetometer's axes {told} while the others changed: its driver leaves it out, or it is broken; "
            f"the map of the field's {self._component} is wrong there, and too sure; mend it and drive "
            f"again{self._remedy(axes)}"
        ]

    def _remedy(self, axes: list[int]) -> str:
        """What can be mapped without these axes."""
        if not self._is_level or {2} < set(axes):
            return ""
        rest = "x or y" if axes == [2] else "z"
        return f"; field_component: {rest} maps what the others tell"
