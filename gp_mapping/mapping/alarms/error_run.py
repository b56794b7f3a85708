"""The newest cells, and alarms that wait until these tell a changed field from wrong poses.

An alarm of change.py says that the map errs, not why. The cells since the errors began say more
(poses_or_change.py). Where one explanation is better by SURE nats it is that; else the alarm waits
for more cells, _WAITS of them at most, or the end of the pass. Then poses are the cause where the
evidence for them is substantial, else a change is, and either is said to be unsure. It is neither
where nothing that was measured before contradicts the errors, as on new ground (new_ground.py).

Reference:
    Jeffreys 1961, Theory of Probability, appendix B: when evidence is substantial.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gp_mapping.core.field_map import Snapshot
from gp_mapping.core.sparse.passes import NO_PASS
from gp_mapping.core.types import Samples
from gp_mapping.mapping.alarms.kept_posteriors import KeptPosterior
from gp_mapping.mapping.alarms.new_ground import contradiction
from gp_mapping.mapping.alarms.poses_or_change import SURE, Run, leap_of, poses_against_change
from gp_mapping.mapping.scoring.change import Change, log_ratio

__all__ = ["Displaced", "ErrorRun", "number_of"]

_MOST = 16  # cells of a run
_WAITS = 8  # cells for which an alarm waits
_LIKELIER = math.log(10.0) / 2.0  # nats; substantial evidence, as Jeffreys has it
_STRONG = math.log(10.0)  # nats; strong evidence
_KEPT = 100  # newest displacements, for reports


@dataclass(frozen=True)
class Displaced:
    """A moment at which the poses were found to lie off the map.

    Attributes:
        stamp: s.
        x: where the pose says that the robot is, m.
        y: likewise.
        off_x: by which that lies off where the map has it, m.
        off_y: likewise.
        sure: a changed field is no explanation.
    """

    stamp: float
    x: float
    y: float
    off_x: float
    off_y: float
    sure: bool


class _Row(NamedTuple):
    """A cell, as one measurement.

    Attributes:
        x: (2,) m.
        y: (C,) SI.
        velocity: (2,) m/s.
        heading: (2,) unit vector, or None.
        number: of its pass.
        ratio: by how many nats the map errs there rather than not; 0 where it hardly knows.
    """

    x: list[float]
    y: list[float]
    velocity: list[float]
    heading: list[float] | None
    number: float
    ratio: float


class ErrorRun:
    """The newest cells of a pass, and alarms about them.

    Attributes:
        alarms: that wait.
        recent: so many of the newest samples saw the field as it is now.
        displaced: the newest moments at which poses were the cause.
        displaced_count: number of all of them.
    """

    def __init__(self) -> None:
        self._rows: deque[_Row] = deque(maxlen=_MOST)
        self._waited = 0
        self.alarms: list[Change] = []
        self.recent = 0
        self.displaced: deque[Displaced] = deque(maxlen=_KEPT)
        self.displaced_count = 0

    def add(self, cell: Samples, square: float | None, alarm: Change | None, recent: int) -> None:
        """Take in a cell.

        Args:
            cell: its samples.
            square: squared standardised error; None where the map hardly knows the field.
            alarm: that it raises; None: none.
            recent: as the attribute.
        """
        self._rows.append(
            _Row(
                cell.x.mean(0).tolist(),
                cell.y.mean(0).tolist(),
                cell.velocity[-1].tolist(),
                None if cell.heading is None else cell.heading[-1].tolist(),
                number_of(cell),
                0.0 if square is None else log_ratio(square),
            )
        )
        self.recent = recent
        self._waited += bool(self.alarms)
        if alarm is not None:
            self.alarms.append(alarm)

    def end_pass(self) -> None:
        """Forget the cells: the next one does not go on from them."""
        self._rows.clear()

    def decide(
        self, old: KeptPosterior | None, noise: float, lengthscale: float, last: bool
    ) -> list[Change]:
        """Return the alarms that are changes of the field; keep those that wait.

        Args:
            old: the map before the run; None where none is kept: then nothing tells.
            noise: variance of a measurement about the field, squared SI.
            lengthscale: m.
            last: whether no more cells come.
        """
        gain, off, changed = 0.0, np.zeros(2), math.inf
        if old is not None and self._rows:
            run = self._run(old.posterior, noise)
            gain, off = poses_against_change(run, lengthscale)
            changed = self._contradiction(run, old.places, noise, lengthscale)
            gain += min(changed, 0.0)  # poses are no better than what has always been there
        sure = bool(gain >= SURE or (gain <= -SURE and changed >= SURE))
        if not sure and self._waited < _WAITS and not last:
            return []

        alarms, self.alarms, self._waited = self.alarms, [], 0
        if gain < _LIKELIER:
            # new ground: what is there may always have been. The place that is contradicted most is
            # one of many, so the evidence has to be strong
            if changed < _STRONG:
                return []
            return [replace(alarm, sure=sure) for alarm in alarms]
        newest = alarms[-1]
        off_x, off_y = (-off).tolist()
        self.displaced.append(Displaced(newest.stamp, newest.x, newest.y, off_x, off_y, sure))
        self.displaced_count += 1
        return []

    def _contradiction(
        self, run: Run, places: Tensor | None, noise: float, lengthscale: float
    ) -> float:
        """By how many nats a run contradicts what was measured at earlier places (new_ground.py).

        Infinite where these are not known.
        """
        if places is None:
            return math.inf
        mean, variance = run.predict(run.x)
        error, earlier = run.y - mean, places.numpy()
        return contradiction(run.x, error, variance, earlier, noise, lengthscale, run.step)

    def _run(self, old: Snapshot, noise: float) -> Run:
        """Return the cells since the errors began: those whose sum of ratios is largest."""
        sums = np.cumsum([row.ratio for row in reversed(self._rows)])
        rows = list(self._rows)[-1 - int(sums.argmax()) :]

        velocity = _tensor([row.velocity for row in rows])
        headings = [row.heading for row in rows if row.heading is not None]
        heading = _tensor(headings) if len(headings) == len(rows) else None

        def predict(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """As Run.predict."""
            times = len(places) // len(rows)
            prediction = old.predict_in_pass(
                torch.from_numpy(places),
                rows[-1].number,
                velocity.repeat(times, 1),
                None if heading is None else heading.repeat(times, 1),
            )
            return (
                prediction.mean.cpu().numpy(),
                prediction.variance.mean(1).cpu().numpy() + noise,
            )

        leap, step = leap_of(np.array([row.x for row in self._rows]))
        x, y = (np.array(part) for part in zip(*((row.x, row.y) for row in rows)))
        return Run(x, y, predict, leap, step)

    def join(self, other: ErrorRun) -> None:
        """Add what another map has found."""
        self.displaced.extend(other.displaced)
        self.displaced_count += other.displaced_count

    def state_dict(self) -> dict:
        """For an exact resume."""
        return {
            "rows": [row._asdict() for row in self._rows],
            "waited": self._waited,
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "recent": self.recent,
            "displaced": [asdict(each) for each in self.displaced],
            "displaced_count": self.displaced_count,
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue where state_dict was taken."""
        self._rows.extend(_Row(**row) for row in state["rows"])
        self._waited, self.recent = int(state["waited"]), int(state["recent"])
        self.alarms = [Change(**alarm) for alarm in state["alarms"]]
        self.displaced.extend(Displaced(**each) for each in state["displaced"])
        self.displaced_count = int(state["displaced_count"])


def number_of(batch: Samples) -> float:
    """Number of a batch's pass."""
    return NO_PASS if batch.pass_number is None else float(batch.pass_number[-1])


def _tensor(rows: list[list[float]]) -> Tensor:
    """Rows as float64."""
    return torch.tensor(rows, dtype=torch.float64)
