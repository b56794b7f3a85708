"""A long road in a process of its own that saves by itself, is killed, and goes on.

`python -m benchmark.costs.far_drive`: after each kilometre a line says what it took. After the last one the process is
killed (SIGKILL) at a moment of no plan, its newest autosave is opened, and once more with one byte of a tile changed.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmark.timing import resident_bytes
from benchmark.worlds import RandomField
from gp_mapping.core.types import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.checkpoint import save_checkpoint
from gp_mapping.store.sessions import new_session, saved_session, take_snapshot

SPEED, NOISE, SPREAD = 5.0, 0.3e-6, 10.0 / 12.0  # m/s, T, of a RandomField
PIECE = 1000.0  # m between two autosaves
TOGETHER = 25  # samples of a call
WINDOW = 12.0  # lengthscales that are drawn
DRAWN = (
    5  # one of so many pieces is drawn at its end: 16 lengthscales, of which the last half counts
)
ALONG = torch.tensor([0.8, 0.6], dtype=torch.float64)
AUTOSAVE = "autosave.gpm"


class Drive:
    """The session, and where it is."""

    def __init__(self, folder: Path, lengthscale: float, rate: float):
        self.folder, self.rate, self.length, self.done = folder, rate, lengthscale, 0
        self.field = RandomField(4, lengthscale, 200)
        self.generator = torch.Generator().manual_seed(2)
        settings = MapSettings(
            lengthscale=lengthscale,
            cell_length=lengthscale / 3.0,
            window=WINDOW * lengthscale,
            resolution=0.08 * lengthscale,
        )
        self.session = new_session(settings, folder)

    def piece(self, number: int) -> dict:
        """Drive PIECE, save, and say what it took."""
        count = round(PIECE / SPEED * self.rate)
        at = self.done + torch.arange(count, dtype=torch.float64)
        x, stamp = ALONG * (SPEED / self.rate * at)[:, None], 1.0 + at / self.rate
        truth = torch.cat([45e-6 + (self.field(part) - 45e-6) * SPREAD for part in x.split(1000)])
        y = truth + NOISE * torch.randn(count, 1, dtype=torch.float64, generator=self.generator)
        every = max(1, round(0.4 * self.length / SPEED * self.rate / TOGETHER))
        drawn, counted = (
            count - round(k * self.length / SPEED * self.rate) if number % DRAWN == 0 else count
            for k in (16.0, 8.0)
        )

        before, calls, drawings, points = self.session.cell_count, [], [], 0
        for k, start in enumerate(range(0, count, TOGETHER)):
            part, begin = slice(start, start + TOGETHER), time.process_time()
            self.session.ingest(Samples(x[part], y[part], stamp=stamp[part]))
            calls.append(time.process_time() - begin)
            if start >= drawn and k % every == 0:
                begin = time.process_time()
                self.session.render(2000)
                if start >= counted:
                    drawings.append(time.process_time() - begin)
                    points += self.session.renderer.points_drawn
        self.done += count

        error = self.session.predict(x[:-500:97]).mean - truth[:-500:97]
        cells = self.session.cell_count
        return {
            "km": self.done * SPEED / self.rate / 1e3,
            "samples": self.done,
            "cells": cells,
            "tiles": self.session.report().get("tiles", 1),
            "ms a cell": 1e3 * sum(calls) / max(1, cells - before),
            "worst call, ms": 1e3 * max(calls),
            "a drawing, ms": 1e3 * sum(drawings) / len(drawings) if drawings else None,
            "points a drawing": points / len(drawings) if drawings else None,
            "RMSE µT": 1e6 * float(error.square().mean().sqrt()),
            **self._saved(),
            "resident, MB": resident_bytes() / 1e6,
        }

    def _saved(self) -> dict:
        """Save as a node does by itself, and say what was written."""
        tiles = self.folder / "tiles"
        before, begin = set(tiles.glob("*.tile")), time.process_time()
        save_checkpoint(
            self.folder / AUTOSAVE, take_snapshot(self.session, (0, 0, 0)).state, {"number": 1}
        )
        took, after = time.process_time() - begin, set(tiles.glob("*.tile"))
        return {
            "save, s of processor": took,
            "tiles written": len(after - before),
            "files of tiles": len(after),
        }


def drive(folder: Path, lengthscale: float, rate: float) -> None:
    """Drive on and on."""
    gc.freeze()  # as a node's process does: what is loaded is not searched for garbage
    way, number = Drive(folder, lengthscale, rate), 0
    while True:
        number += 1
        print(json.dumps(way.piece(number), allow_nan=False), flush=True)


def opened(folder: Path, kilometre: float) -> dict:
    """Open the autosave, and ask for a place on the road."""
    begin, spent = time.perf_counter(), time.process_time()
    session: MapSession = saved_session(folder / AUTOSAVE)
    session.predict(1e3 * kilometre * ALONG[None])
    return {
        "opened in s": time.perf_counter() - begin,
        "of processor": time.process_time() - spent,
        "samples": session.raw_count,
        "tiles": session.report().get("tiles", 1),
        "said": session.warnings,
    }


def damage(folder: Path, kilometre: float) -> str:
    """Turn over a byte in the file of the tile at a place on the road; its name."""
    layout = saved_session(folder / AUTOSAVE).map.layout
    column, row = (
        int((1e3 * kilometre * a - low) // layout.side)
        for a, low in zip(ALONG.tolist(), layout.low)
    )
    path = next((folder / "tiles").glob(f"{column}_{row}.*.tile"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    return path.name


def killed(kilometres: float, lengthscale: float, rate: float) -> None:
    """Drive, kill, open, damage, open."""
    with tempfile.TemporaryDirectory() as name:
        folder, half = Path(name), str(kilometres / 2.0)
        here = [sys.executable, "-m", "benchmark.costs.far_drive"]
        command = [*here, "--drive", name, "--lengthscale", str(lengthscale), "--rate", str(rate)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            seconds, begin = 1.0, time.monotonic()
            for line in process.stdout:
                print(line, end="", flush=True)
                seconds, begin = time.monotonic() - begin, time.monotonic()
                if json.loads(line)["km"] >= kilometres:
                    break
            time.sleep(random.uniform(0.0, seconds))
            process.send_signal(signal.SIGKILL)

        again = [*here, "--open", name, "--kilometres", half]
        subprocess.run(again, check=True)
        named = damage(folder, float(half))
        print(json.dumps({"damaged": named}, allow_nan=False), flush=True)
        subprocess.run(again, check=True)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kilometres", type=float, default=50.0, help="default: %(default)g")
    parser.add_argument("--lengthscale", type=float, default=10.0, help="m; default: %(default)g")
    parser.add_argument("--rate", type=float, default=50.0, help="Hz; default: %(default)g")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.drive:
        drive(asked.drive, asked.lengthscale, asked.rate)
    elif asked.open:
        print(json.dumps(opened(asked.open, asked.kilometres), allow_nan=False), flush=True)
    else:
        killed(asked.kilometres, asked.lengthscale, asked.rate)


if __name__ == "__main__":
    main()
