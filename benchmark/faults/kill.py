"""kill −9 while driving with autosave, and while saving: what is lost, and whether the next start goes on.

survived: the next start had an intact map (`resume`) that holds all but what the last autosave period
can cost, or all that a save had answered for. lost: the measurements between the last autosave and the
kill, over all runs; uncounted: those beyond what the period allows.
"""

from __future__ import annotations

import random
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmark.faults.live import LiveMapper
from benchmark.faults.rows import Row

__all__ = ["run"]

PERIOD = 1.0  # s between autosaves
RATE = 50.0  # Hz
LANES = 4
SLACK = 0.5  # s: a measurement waits for the pose after it, and an autosave for the end of the one before


def run(quick: bool) -> list[Row]:
    """100 kills while driving and 100 while saving, each in several robots at the same time: most of it is waiting."""
    if quick:
        return [driving(2), saving(2)]
    with ProcessPoolExecutor(LANES, mp_context=get_context("spawn")) as pool:
        drives, saves = (
            list(pool.map(case, [100 // LANES] * LANES, range(LANES))) for case in (driving, saving)
        )
    said = f"{sum(row.lost for row in drives) / 100:.0f} measurements a kill; wait: from the start to the first report"
    return [together(drives, said), together(saves, saves[0].remark)]


def together(rows: list[Row], remark: str) -> Row:
    """One row of several of one case."""
    return Row(
        rows[0].case,
        *(
            sum(getattr(row, name) for row in rows)
            for name in ("tried", "survived", "lost", "uncounted")
        ),
        max(row.worst for row in rows),
        remark,
    )


def driving(tries: int, seed: int = 0) -> Row:
    """Each run goes on from the autosave of the run before; it is killed at a moment of no plan."""
    rng, survived, lost, beyond, worst = random.Random(seed), 0, 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        mapper, at = LiveMapper(Path(folder), autosave_period=PERIOD, resume=True, forked=True), 0.0
        with mapper:
            for _ in range(tries):
                at = mapper.until_heard(at)
                before, seconds = mapper.number("samples"), rng.uniform(2.0, 5.0)
                sent = mapper.drive(at, seconds, RATE)
                mapper.kill()
                at += seconds + 5.0
                begin = time.monotonic()
                mapper.start()
                worst = max(worst, time.monotonic() - begin)
                missing = before + sent - mapper.number("samples")
                allowed = (PERIOD + SLACK) * RATE
                lost, beyond = lost + int(missing), beyond + max(0, int(missing - allowed))
                survived += missing <= allowed
    return Row(
        f"kill −9 while driving, autosave_period {PERIOD:g} s, {RATE:g} Hz",
        tries,
        survived,
        lost,
        beyond,
        worst,
        f"{lost / tries:.0f} measurements a kill; wait: from the start to the first report",
    )


def saving(tries: int, seed: int = 1) -> Row:
    """~/save is asked for, and the kill falls somewhere into it; the file of the save before must be whole."""
    from std_srvs.srv import Trigger

    rng, survived, lost, beyond, worst, at = random.Random(seed), 0, 0, 0, 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        mapper = LiveMapper(Path(folder), autosave_period=0.0, resume=True, forked=True)
        with mapper:
            for _ in range(tries):
                mapper.settle(mapper.received() + mapper.drive(at, 2.0, RATE, speed=4.0))
                at += 7.0
                answer, waited = mapper.call(Trigger, "/mapping/save")
                if not answer.success:
                    beyond += 1
                    continue
                kept = mapper.number("samples")
                mapper.drive(at, 1.0, RATE, speed=4.0)
                at += 6.0
                future = mapper.client(Trigger, "/mapping/save").call_async(Trigger.Request())
                mapper.spin(rng.uniform(0.0, 1.2 * waited))
                answered = future.done()
                mapper.kill()
                begin = time.monotonic()
                mapper.start()
                worst = max(worst, time.monotonic() - begin)
                there = mapper.number("samples")
                whole = kept + RATE - 2 if answered else kept
                survived += there >= whole
                lost += max(0, int(kept + RATE - there))
                beyond += max(0, int(whole - there))
    return Row(
        "kill −9 while ~/save works",
        tries,
        survived,
        lost,
        beyond,
        worst,
        "lost: driven after the save that was answered",
    )
