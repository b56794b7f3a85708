"""Where the tensors of a map are: on the device of that name, or on the one that is faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.types import Samples
from gp_mapping.errors import NumericalError, UserError

__all__ = ["AUTO", "Device", "check_device", "faster_device", "finish", "grid_of", "trial_seconds"]

AUTO = "auto"
BATCH, PLACES = 100, 1000  # samples of an update, and places of a drawing, of the trial
_RUNS = 5


@dataclass(frozen=True)
class Device:
    """The device of a map.

    Attributes:
        name: as torch has it.
        reason: why this one.
    """

    name: str
    reason: str


def check_device(name: str) -> None:
    """Check that a map can be on a device.

    Raises:
        UserError: it is none on which a map runs, or is not here.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None

    if device is None or device.type not in ("cpu", "cuda"):
        raise UserError(
            f"device {name!r} is not a torch device that a map runs on; write auto, cpu, cuda or "
            "cuda:1"
        )

    count = torch.cuda.device_count() if device.type == "cuda" else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise UserError(
            f"device {name!r}: {'no CUDA device' if not count else f'{count} CUDA devices'} here; write "
            f"device: {'cpu' if not count else 'cuda'}"
        )


def faster_device(make: Callable[[str], FieldMap], size: int) -> Device:
    """The device on which updates and drawings of a map take less time, by trying both.

    Args:
        make: an empty map on the device of that name, with inducing inputs `grid_of(size)`.
        size: M, its inducing inputs.
    """
    if not torch.cuda.device_count():
        return Device("cpu", "no CUDA device here")

    processor = trial_seconds(make("cpu"), size)
    try:
        card = trial_seconds(make("cuda"), size)
    except (RuntimeError, NumericalError) as error:  # no memory, a driver of another version
        return Device("cpu", f"the CUDA device failed a trial: {str(error).splitlines()[0]}")

    name = "cuda" if card < processor else "cpu"
    return Device(
        name,
        f"an update with {BATCH} samples and a drawing of {PLACES} places at {size} inducing "
        f"inputs took {1e3 * processor:.3g} ms on cpu and {1e3 * card:.3g} ms on cuda",
    )


def grid_of(size: int) -> torch.Tensor:
    """Places (size, 2), metres: a square lattice of pitch 1 without its last places."""
    side = int(max(0, size - 1) ** 0.5) + 1
    axis = torch.arange(side, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)[:size]


def finish(device: torch.device) -> None:
    """Wait until a device has done what it was given; the processor has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def trial_seconds(field: FieldMap, size: int) -> float:
    """Median time of an update and a drawing, the first not counted (libraries start there)."""
    generator = torch.Generator().manual_seed(0)
    side, seconds = size**0.5, []

    for _ in range(1 + _RUNS):
        x = side * torch.rand(BATCH + PLACES, 2, dtype=torch.float64, generator=generator)
        samples = Samples(x[:BATCH], torch.sin(x[:BATCH, 0]))
        start = perf_counter()
        field.update(samples)
        mean = field.predict(x[BATCH:]).mean
        finish(mean.device)
        seconds.append(perf_counter() - start)
    return sorted(seconds[1:])[_RUNS // 2]
