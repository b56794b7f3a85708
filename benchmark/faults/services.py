"""Services under load: measurements at 400 Hz go on while maps are saved, loaded, drawn and cleared.

survived: the call was answered. lost: measurements that were sent and that the node neither used nor
dropped nor holds. worst: the longest that diagnostics (1 Hz) were silent.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

from benchmark.faults.live import LiveMapper
from benchmark.faults.rows import Row

__all__ = ["run"]

RATE = 400.0


def run(quick: bool) -> list[Row]:
    """Each service several times beside a stream, then a hundred calls at once."""
    from nav_msgs.srv import GetMap
    from std_srvs.srv import SetBool, Trigger

    tries = 1 if quick else 10
    kinds = {
        "save": Trigger,
        "get_mean": GetMap,
        "get_stddev": GetMap,
        "load": Trigger,
        "pause": SetBool,
        "clear": Trigger,
    }
    rows = [beside(name, kind, tries) for name, kind in kinds.items()]
    return [*rows, at_once(Trigger, GetMap, 10 if quick else 100)]


def beside(name: str, kind, tries: int) -> Row:
    """A stream of 400 Hz, and the call in the middle of it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LiveMapper(Path(folder), max_inducing=200, autosave_period=0.0) as mapper,
    ):
        sent = mapper.drive(0.0, 20.0, 50.0, speed=10.0)
        mapper.settle(sent)
        answered, silence, waited = 0, 0.0, 0.0
        if name == "load":
            from std_srvs.srv import Trigger

            mapper.call(Trigger, "/mapping/save")
        at = 30.0
        for _ in range(tries):
            future = mapper.client(kind, f"/mapping/{name}").call_async(kind.Request())
            begin, before = time.monotonic(), len(mapper.reports)
            sent += mapper.drive(at, 3.0, RATE)
            at += 3.0
            mapper.until(future.done, 120.0)
            waited = max(waited, time.monotonic() - begin - 3.0)
            answered += future.done()
            reports = [begin, *mapper.reports[before:], time.monotonic()]
            silence = max(silence, max(b - a for a, b in itertools.pairwise(reports)))
        mapper.settle(sent)
        missing = max(0, sent - mapper.received())
        return Row(
            f"~/{name} during {RATE:g} Hz",
            tries,
            answered,
            missing,
            mapper.unaccounted(sent),
            silence,
            f"worst: diagnostics silent; answered {max(0.0, waited):.1f} s after the stream at the latest",
        )


def at_once(trigger, get_map, count: int) -> Row:
    """All of them asked in one moment: each is answered, by success or by a reason."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LiveMapper(Path(folder), autosave_period=0.0) as mapper,
    ):
        mapper.settle(mapper.drive(0.0, 5.0, 50.0, speed=5.0))
        clients = [
            mapper.client(trigger, "/mapping/save"),
            mapper.client(get_map, "/mapping/get_mean"),
        ]
        begin = time.monotonic()
        futures = [
            clients[i % 2].call_async((trigger, get_map)[i % 2].Request()) for i in range(count)
        ]
        end = time.monotonic() + 120.0
        while not all(f.done() for f in futures) and time.monotonic() < end:
            mapper.executor.spin_once(timeout_sec=0.05)
        done = sum(f.done() for f in futures)
        return Row(
            f"{count} calls at once",
            count,
            done,
            0,
            count - done,
            time.monotonic() - begin,
            "worst: the last answer",
        )
