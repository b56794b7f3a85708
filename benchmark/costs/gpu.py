"""What a graphics card would save: the same work on the processor and on the card, beside the card's roofline.

python -m benchmark gpu [--only updates,drawings]     Without a card its columns say "not run".
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

from benchmark.costs.cost import SETTINGS, Stream
from benchmark.papers.wiski import Stream as LatticeStream
from benchmark.tables import Goal, Part, Table
from benchmark.timing import median, timed
from benchmark.worlds import LENGTHSCALE, RandomField, lawnmower
from gp_mapping import create_map
from gp_mapping.core.field_map import FieldMap
from gp_mapping.core.models.device import finish, grid_of
from gp_mapping.core.models.tiled import blended
from gp_mapping.core.types import Samples
from gp_mapping.mapping.drawing.renderer import Renderer
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning.worth.surface import variance_reduction_surface
from gp_mapping.settings.mapping import MapSettings

__all__ = ["TABLES", "drawing_work", "run", "update_work"]

TABLES = ("updates", "drawings", "rendered", "others", "live", "calls")
NOT_RUN = "not run"
CARD = "cuda"  # torch's name of the card
_DTYPES = ("float64", "float32")
_BYTES = {"float64": 8, "float32": 4}
_PLACES = 16384  # evaluated at once on the processor, of a drawing; its time is scaled to all
_TILES = "{} tiles or more, drawn at 16 384 places,"
_WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "equal", "_linalg_eigh", "masked_select")
_COPIES = ("_to_copy", "copy_")


@dataclass(frozen=True)
class Roofline:
    """What the card does at best. flops: per s, by dtype.  bandwidth: B/s."""

    name: str
    flops: dict[str, float]
    bandwidth: float

    def seconds(self, flop: dict[str, float], moved: float) -> float:
        """The least time for these operations, by dtype, and for so many bytes read and written."""
        return max(sum(n / self.flops[dtype] for dtype, n in flop.items()), moved / self.bandwidth)


def run(quick: bool, where: dict, only: tuple[str, ...] = TABLES) -> Part:
    """Updates, drawings, other work, and the calls that wait for a card; on both where both are here."""
    card = _roofline() if torch.cuda.is_available() else None
    where["card"] = card.name if card else f"{NOT_RUN}: no CUDA device here"
    tables, goals = [], []
    for name, make in (
        ("updates", _updates),
        ("drawings", _drawings),
        ("rendered", _rendered),
        ("others", _others),
    ):
        if name in only:
            say(name)
            table, reached = make(quick, card)
            table.notes.append(_about(card))
            tables.append(table)
            goals += reached
    if "live" in only:
        say("live")
        table, reached = _live(quick, card)
        table.notes.append(_about(card))
        tables.append(table)
        goals += reached
    if "calls" in only:
        say("calls")
        tables.append(_calls(quick, card))
    return Part("gpu", goals, tables, where)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"gpu: {text}", file=sys.stderr, flush=True)


def _about(card: Roofline | None) -> str:
    if card is None:
        return (
            f"Card: {NOT_RUN}, since there is no CUDA device here. Processor: median by the clock."
        )
    rates = ", ".join(f"{card.flops[d] / 1e12:.3g} Tflop/s in {d}" for d in _DTYPES)
    return (
        f"Card: {card.name}; measured: {rates}, {card.bandwidth / 1e12:.3g} TB/s. Roofline: the least time for "
        "the products and solves at these rates. Medians by the clock."
    )


def _roofline() -> Roofline:
    """Rates of the card, by a product of two large matrices in each precision, and by a copy."""
    device, side = torch.device(CARD), 8192
    flops = {}
    for dtype in _DTYPES:
        a = torch.randn(side, side, dtype=getattr(torch, dtype), device=device)
        flops[dtype] = 2.0 * side**3 / _seconds(lambda a=a: a @ a, device)
    big = torch.empty(1 << 28, dtype=torch.float64, device=device)
    copied = torch.empty_like(big)
    seconds = _seconds(lambda: copied.copy_(big), device)
    return Roofline(torch.cuda.get_device_name(device), flops, 2.0 * big.nbytes / seconds)


def _seconds(work: Callable[[], object], device: torch.device, runs: int = 5) -> float:
    """Median time of the work until the device has done it; a first time is not counted."""
    taken = []
    for _ in range(1 + runs):
        finish(device)
        start = time.perf_counter()
        work()
        finish(device)
        taken.append(time.perf_counter() - start)
    return median(taken[1:])


def _both(
    make: Callable[[str], Callable[[], object]], card: Roofline | None, runs: int = 5
) -> tuple[float, float | None]:
    """Seconds of the work that `make` makes for a device: on the processor, and on the card if there is one."""
    here = _seconds(make("cpu"), torch.device("cpu"), runs)
    return here, _seconds(make(CARD), torch.device(CARD), runs) if card else None


def _ms(seconds: float | None) -> str:
    return NOT_RUN if seconds is None else f"{1e3 * seconds:.3g}"


def _columns(first: str) -> list[tuple[str, str]]:
    return [
        (first, ""),
        ("dtype", ""),
        ("processor, ms", ""),
        ("card, ms", ""),
        ("roofline of the card, ms", ""),
        ("processor / card", ""),
    ]


def _row(name, dtype, here, there, best) -> tuple:
    ratio = NOT_RUN if there is None or here is None else f"{here / there:.2f}"
    return name, dtype, _ms(here), _ms(there), _ms(best), ratio


def update_work(m: int, samples: int, dtype: str) -> tuple[dict[str, float], float]:
    """Floating-point operations, by dtype, and bytes read and written, of an update at M = m.

    L⁻¹k in `dtype`; D += aβaᵀ and its Cholesky factor always in float64. L is read, D read and
    written twice.
    """
    flop = Counter({dtype: float(m**2 * samples)})
    flop["float64"] += 2.0 * m**2 * samples + m**3 / 3.0
    return flop, m**2 * (_BYTES[dtype] + 4.0 * 8)


def drawing_work(m: int, places: int, dtype: str) -> tuple[dict[str, float], float]:
    """As `update_work`, of mean and variance at places: L⁻¹k, and R⁻¹ of it, M² each for a place.

    L and R are read once; of a place its coordinates are read, mean and variance written.
    """
    return {dtype: 2.0 * m**2 * places}, 2.0 * m**2 * _BYTES[dtype] + 32.0 * places


def _updates(quick: bool, card: Roofline | None) -> tuple[Table, list[Goal]]:
    """100 samples into a map with M fixed inducing inputs, factorisation included."""
    table = Table("An update with 100 samples, M fixed inducing inputs", _columns("M"))
    for m in (20, 40) if quick else (400, 1000, 4000):
        for dtype in _DTYPES:

            def make(device: str, m=m, dtype=dtype):
                return Stream(m, device=device, dtype=dtype, max_inducing=max(m, 100)).batch

            here, there = _both(make, card, 3 if m > 1000 else 7)
            best = card.seconds(*update_work(m, 100, dtype)) if card else None
            table.add(*_row(str(m), dtype, here, there, best))
    return table, []


def _mapped(m: int, device: str, dtype: str):
    """A map with M inducing inputs that has seen 2000 samples; its side in metres."""
    stream = Stream(m, device=device, dtype=dtype, max_inducing=max(m, 100))
    for _ in range(20):
        stream.batch()
    return stream.map, stream.side


def _drawings(quick: bool, card: Roofline | None) -> tuple[Table, list[Goal]]:
    """Mean and variance at every cell of a square grid."""
    table = Table("Mean and variance at every cell of a grid", _columns("grid, M"))
    goals = []
    for m in (20,) if quick else (400, 1024):
        for side in (64,) if quick else (512, 2048):
            for dtype in _DTYPES:
                places = side**2
                part = min(places, _PLACES)

                def make(device: str, m=m, side=side, dtype=dtype, part=part):
                    field, width = _mapped(m, device, dtype)
                    x = grid_of(side**2) * (width / side)
                    x = (x if device != "cpu" else x[:part]).to(device)
                    return lambda: field.predict(x)

                here, there = _both(make, card, 3)
                best = card.seconds(*drawing_work(m, places, dtype)) if card else None
                table.add(*_row(f"{side}², {m}", dtype, here * places / part, there, best))
                if there is not None and (side, m) == (2048, 1024):
                    name = f"gpu: 2048² at M = 1024 in {dtype}"
                    goals += [
                        Goal(f"{name}, cell by cell: to the roofline", there / best, high=2.0),
                    ]
    table.notes = [f"Processor: {_PLACES} cells, and the time for them times the number of those."]
    return table, goals


def _rendered(quick: bool, card: Roofline | None) -> tuple[Table, list[Goal]]:
    """The same as the node draws it: points at a twelfth of the lengthscale, cells splined from them.

    All points are evaluated, all cells splined, scaled and brought to the processor, as for a first
    drawing.
    """
    table = Table("A whole drawing, splined from points", _columns("grid, M"))
    goals = []
    for m in (20,) if quick else (400, 1024):
        for side in (64,) if quick else (512, 2048):
            for dtype in _DTYPES:

                def make(device: str, m=m, side=side, dtype=dtype):
                    field, width = _mapped(m, device, dtype)
                    settings = MapSettings(
                        resolution=width / side, margin=0.0, max_grid_cells=side**2, device=device
                    )
                    half = 0.5 * width / side
                    bounds = ((half, half), (width - half, width - half))
                    return lambda: Renderer(settings).render(field, bounds, 1e-6, 1)

                here, there = _both(make, card, 3)
                table.add(*_row(f"{side}², {m}", dtype, here, there, None))
                if there is not None and (side, m) == (2048, 1024):
                    name = f"gpu: 2048² at M = 1024 in {dtype}, splined"
                    goals.append(Goal(name, 1e3 * there, high=50.0, unit="ms"))
    table.notes = ["Cells in the processor's memory; error: `python -m benchmark render`."]
    return table, goals


def _others(quick: bool, card: Roofline | None) -> tuple[Table, list[Goal]]:
    """Tiles, a lattice, vectors, and the value of a measurement at each of 16 384 places."""
    table = Table("Other work", _columns("what"))
    goals = []
    nodes, tiles, side = (64, 4, 32) if quick else (1024, 64, 128)
    drawn = _TILES.format(tiles)
    works = {
        f"{drawn} in one batch": lambda device: _tiles(quick, device, True),
        f"{drawn} one after the other": lambda device: _tiles(quick, device, False),
        f"wiski, refresh of {nodes}² nodes": lambda device: _refresh(nodes, device),
        "curl_free, 100 samples of three axes": lambda device: _vectors(quick, device),
        f"value of a measurement, surface of {side}² places": lambda device: _surface(side, device),
    }
    for name, make in works.items():
        say(name)
        if card and name.startswith("wiski") and not quick:  # a minute and more on a processor
            here, there = None, _seconds(make(CARD), torch.device(CARD), 3)
        else:
            here, there = _both(make, card, 1 if quick else 3)
        table.add(*_row(name, "float64", here, there, None))
        if there is not None and name.startswith("wiski") and not quick:
            goals.append(Goal(f"gpu: {name}", there, high=0.2, unit="s"))
    table.notes = [
        "No roofline: these are many small operations, or transforms. A map takes tiles in batches on a card, "
        "one after the other on a processor."
    ]
    return table, goals


@cache
def _tiled(side: int, device: str) -> tuple[FieldMap, torch.Tensor]:
    """A map of side² tiles or more, and places all over it."""
    extent = side * 3.0 * LENGTHSCALE
    tiles = {"tiles": True, "max_inducing": 60, "map_tile_side": 3.0, "tiles_in_memory": 200}
    field = create_map("dual_svgp", device=device, **tiles, **SETTINGS)
    generator = torch.Generator().manual_seed(0)
    drive = RandomField(0).measure(lawnmower(0.0, extent, 0.4, 0.1), generator)
    for k in range(0, len(drive), 100):
        field.update(drive[k : k + 100])
    say(f"{field.counters().get('tiles')} tiles on {device}")
    return field, extent * torch.rand(_PLACES, 2, dtype=torch.float64, generator=generator)


def _tiles(quick: bool, device: str, together: bool) -> Callable[[], object]:
    """The drawing of a map of 64 tiles (of 4), in batches or tile after tile, whatever the device."""
    field, x = _tiled(2 if quick else 8, device)

    def draw():
        with mock.patch.object(blended, "predicts_together", lambda device: together):
            return field.predict(x)

    return draw


def _refresh(nodes: int, device: str) -> Callable[[], object]:
    """A lattice of nodes², its solution made again after a batch."""
    stream = LatticeStream(nodes, device=device)

    def work():
        stream.batch()
        stream.map.refresh()

    return work


def _vectors(quick: bool, device: str) -> Callable[[], object]:
    """Three axes of a field without sources."""
    size = 40 if quick else 400
    field = create_map("curl_free", device=device, max_inducing=size, **SETTINGS)
    generator = torch.Generator().manual_seed(0)

    def batch() -> Samples:
        x = 4.0 * torch.rand(100, 2, dtype=torch.float64, generator=generator)
        y = 1e-5 * torch.stack([x[:, 0].sin(), x[:, 1].cos(), x.sum(1).sin()], 1)
        heading = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(100, 2)
        return Samples(x, y, heading=heading)

    for _ in range(5 if quick else 20):
        field.update(batch())
    return lambda: (field.update(batch()), field.predict(batch().x))


def _surface(side: int, device: str) -> Callable[[], object]:
    """By how much a measurement at each of side² places lowers the variance over all of them."""
    field, width = _mapped(400 if side == 128 else 40, device, "float64")
    weights = torch.ones(side, side, dtype=torch.float64)
    return lambda: variance_reduction_surface(field, (0.0, 0.0), width / side, weights)


def _live(quick: bool, card: Roofline | None) -> tuple[Table, list[Goal]]:
    """The map's thread at M of about 1000: a 100 Hz sensor, 128² cells drawn at 10 Hz."""
    table = Table(
        "The map's thread of a live node: 100 Hz, 128² cells drawn at 10 Hz, M about 1000, θ learned",
        [
            ("device", ""),
            ("M", "d"),
            ("fraction of a core", ".3f"),
            ("samples", ".3f"),
            ("drawing", ".3f"),
            ("a tenth of a second, worst ms", ".0f"),
        ],
    )
    goals = []
    for device in ("cpu", CARD) if card else ("cpu",):
        m, sampling, drawing, worst = _driven(device, 1.0 if quick else 30.0, 60 if quick else 1000)
        table.add(device, m, sampling + drawing, sampling, drawing, 1e3 * worst)
        if device == CARD and not quick:
            goals = [Goal("gpu: live, fraction of a core", sampling + drawing, high=0.1)]
    table.notes = [
        "Processor time of the thread over sensor time, one thread, no messages in it; the room was driven once "
        "before. Cells that are interpolated, scores and averages are the processor's also with a card."
    ]
    return table, goals


def _driven(device: str, seconds: float, m: int) -> tuple[int, float, float, float]:
    """M, processor time of samples and of drawing for a second of data, and the longest tenth of one."""
    resolution, cells = 0.05, 128
    low, high = 0.5, cells * resolution - 0.5
    dense = {"max_inducing": m, "inducing_information": 0.0, "inducing_tolerance": 1e-5}
    session = MapSession(
        MapSettings(resolution=resolution, margin=0.5 - 1e-6, device=device, tiles=False, **dense)
    )
    field, generator = RandomField(4), torch.Generator().manual_seed(4)
    before = field.measure(lawnmower(low, high, 0.25, 0.02), generator)
    for start in range(0, len(before), 200):
        session.ingest(before[start : start + 200])
    session.break_pass()
    session.render()

    path = lawnmower(low, high, 0.25, 0.0036).flip(1)[: int(100 * seconds)]
    drive = field.measure(path, generator)
    sampling, drawing, worst = 0.0, 0.0, 0.0
    for start in range(0, len(drive) - 9, 10):
        part = drive[start : start + 10]
        began = time.perf_counter()
        sampling += timed(lambda part=part: session.ingest(part), time.thread_time)
        drawing += timed(session.render, time.thread_time)
        worst = max(worst, time.perf_counter() - began)
    return len(session.inducing), sampling / seconds, drawing / seconds, worst


def _calls(quick: bool, card: Roofline | None) -> Table:
    """Operations of one update and one drawing, by torch's profiler."""
    device = CARD if card else "cpu"
    table = Table(
        f"Operations, counted by torch's profiler on {device}",
        [("what", ""), ("operations", "d"), ("wait for a card", "d"), ("copies", "d")],
    )
    m = 40 if quick else 400
    for count in (20, 200):
        stream = Stream(m, device=device, max_inducing=max(m, 100))
        batches = [stream.samples(count) for _ in range(3)]
        stream.map.update(batches[0])
        field = stream.map
        work = {
            f"update with {count} samples, M = {m}": lambda f=field, b=batches[1]: f.update(b),
            f"mean and variance at {count} places": lambda f=field, b=batches[2]: f.predict(b.x),
        }
        for name, one in work.items():
            table.add(name, *_counted(one))
    table.notes = [
        "Wait for a card: the processor must know a number, or how many there are, before it goes on. "
        "None of the counts grows with the number of samples. Copies between processor and card are none on a "
        "processor; test/core/test_device.py counts them on a pretended card."
    ]
    return table


def _counted(work: Callable[[], object]) -> tuple[int, int, int]:
    """Operations, those that wait, and copies, of the work."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    names = Counter(
        event.name.removeprefix("aten::") for event in seen.events() if "aten::" in event.name
    )
    return (
        sum(names.values()),
        sum(names[name] for name in _WAITS),
        sum(names[name] for name in _COPIES),
    )
