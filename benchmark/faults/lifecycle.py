"""nav2's orders of transitions, again and again: configure, activate, drive, deactivate, clean up, shut down.

survived: each transition was answered with success, the map that was driven is on disk (save_on_exit),
and threads, file descriptors and memory do not grow.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmark.faults.live import LiveMapper
from benchmark.faults.rows import Row
from gp_mapping.store.checkpoint import load_checkpoint

__all__ = ["run"]

GROWTH = 1.05  # of memory, over all cycles after the first ten
CONFIGURE, CLEANUP, ACTIVATE, DEACTIVATE = 1, 2, 3, 4
ORDERS = {
    "reset": (DEACTIVATE, CLEANUP),
    "pause, resume, reset": (DEACTIVATE, ACTIVATE, DEACTIVATE, CLEANUP),
}


def run(quick: bool) -> list[Row]:
    """100 cycles in each of nav2's orders."""
    return [cycles(name, order, 3 if quick else 100) for name, order in ORDERS.items()]


def resources(pid: int) -> tuple[int, int, float]:
    """Threads, file descriptors, resident megabytes of a process."""
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if ":" in line
    )
    return (
        int(status["Threads"]),
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        float(status["VmRSS"].split()[0]) / 1e3,
    )


def cycles(name: str, order: tuple[int, ...], count: int) -> Row:
    """Configure, activate, drive a second, then the order; is the drive on disk each time?"""
    from lifecycle_msgs.srv import ChangeState

    survived = lost = uncounted = 0
    worst, measured = 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        mapper = LiveMapper(Path(folder), autostart=False, save_on_exit=True, autosave_period=0.0)
        with mapper:

            def change(transition: int) -> bool:
                nonlocal worst
                request = ChangeState.Request()
                request.transition.id = transition
                answer, waited = mapper.call(ChangeState, "/mapping/change_state", request)
                worst = max(worst, waited)
                return answer.success

            for i in range(count):
                good = change(CONFIGURE) and change(ACTIVATE)
                mapper.until(mapper.field.get_subscription_count)
                mapper.spin(0.3)
                sent = mapper.drive(10.0 * i, 1.0, 50.0, speed=4.0)
                good &= all(change(transition) for transition in order)
                path = Path(folder) / "map.gpm"
                there = load_checkpoint(path)["raw_count"] if path.exists() else 0
                path.unlink(missing_ok=True)
                missing = sent - there  # the last measurement waits for a pose that does not come
                lost, uncounted = lost + max(0, missing - 1), uncounted + max(0, missing - 1)
                survived += good and missing <= 1
                measured.append(resources(mapper.process.pid))
    first, last = measured[min(10, len(measured) - 1)], measured[-1]
    flat = last[0] <= first[0] and last[1] <= first[1] + 2 and last[2] <= GROWTH * first[2]
    remark = (
        f"threads {first[0]} → {last[0]}, file descriptors {first[1]} → {last[1]}, memory {first[2]:.0f} → "
        f"{last[2]:.0f} MB"
    )
    return Row(
        f"{name}, with a drive in each cycle",
        count,
        survived if flat else 0,
        lost,
        uncounted,
        worst,
        remark,
    )
