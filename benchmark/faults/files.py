"""Mutated bags, checkpoints, parameter files and recordings into every subcommand that reads one.

survived: the command did its work, or ended with exit code 2 and one line that says what is wrong. Not survived:
an exception that came out, a fault of the program (exit code 70), a warning of Python, a minute of silence.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmark.faults.command import Ending, run_command
from benchmark.faults.mutate import DAMAGE, mutated
from benchmark.faults.rows import Row
from gp_mapping.recording.bag import STORE, read_raw
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint

__all__ = ["KINDS", "Originals", "Trial", "run", "trials"]

QUICK = ["--set", "max_inducing=40", "--set", "resolution=0.2", "--set", "max_grid_cells=10000"]
QUICK += ["--set", "cell_length=0.25"]  # three measurements in a cell


@dataclass(frozen=True)
class Trial:
    """One damaged file and what it was given to."""

    kind: str
    damage: str
    words: tuple[str, ...]
    ending: Ending


class Originals:
    """Small files that are right, as the package itself writes them, in a folder of their own."""

    def __init__(self, folder: Path, measurements: int = 130):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for storage in ("mcap", "sqlite3"):
            _drive(folder / storage, storage, measurements)
        done = run_command(
            ["map", folder / "mcap", "--output", folder / "saved", "--suggest", "1", *QUICK]
        )
        if done.code:
            raise RuntimeError(f"the original itself cannot be mapped: {done.said}")
        (folder / "params.yaml").write_text(
            "/**:\n  ros__parameters:\n    lengthscale: 0.5\n    max_inducing: 40\n    resolution: 0.2\n"
            "    sensor: magnetic_field\n    learn_time_offset: true\n",
            encoding="utf-8",
        )
        time = np.arange(120) * 0.1
        for part, table in (
            ("time", time[:, None]),
            ("loc", np.stack([0.3 * time, np.sin(time), 0 * time], 1)),
            ("mag", np.stack([40 + np.sin(time), 3 * np.cos(time), 20 + 0 * time], 1)),
        ):
            np.savetxt(folder / f"1-{part}.csv", table, delimiter=",")


def _drive(path: Path, storage: str, measurements: int) -> None:
    """Measurements along lanes of 3.5 m, 8 cm apart."""
    from gp_mapping.recording.bag_writer import BagWriter

    rng = np.random.default_rng(0)
    with BagWriter(path, storage) as bag:
        for i in range(measurements):
            stamp, s = 10**12 + i * 10**8, 0.08 * i
            place = (s % 3.5, 0.5 * (s // 3.5), 0.0)
            bag.odometry(stamp, place, (0.0, 0.0, 0.0, 1.0))
            bag.magnetic_field(
                stamp, 1e-6 * (rng.normal(size=3) * 0.1 + (40 + 5 * np.sin(place[0]), 2.0, 20.0))
            )


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return target


def _damage_in(folder: Path, kind: str, rng, names=None) -> None:
    """One file of a folder, or each that names lists, in one of the ways of DAMAGE."""
    files = sorted(
        p for p in folder.iterdir() if p.is_file() and (names is None or p.name in names)
    )
    chosen = files[int(rng.integers(len(files)))]
    chosen.write_bytes(mutated(chosen.read_bytes(), kind, rng))


def _bag_command(bag: Path, out: Path, rng) -> list:
    """Mostly `map`, which is the quickest; the others read bags in the same way and then do more."""
    many = (
        ["map", bag, "--output", out, "--suggest", "0", *QUICK],
        ["map", bag, "--output", out, "--suggest", "2", "--test", bag, "--json", *QUICK],
        ["calibrate", bag, "--output", out.with_suffix(".yaml")],
        ["check", bag, "--output", out, "--no-refits", *QUICK],
        [
            "report",
            bag,
            "--output",
            out.with_suffix(".html"),
            "--no-refits",
            "--suggest",
            "0",
            *QUICK,
        ],
        ["map", bag, "--output", out, "--set", "sensor=temperature"],
        ["map", bag, "--output", out, "--set", "pose_source=tf"],
    )
    return many[int(rng.choice(len(many), p=[0.6, 0.08, 0.12, 0.05, 0.05, 0.05, 0.05]))]


def _bag_folder(o: Originals, work: Path, kind: str, rng) -> list:
    bag = _copy(o.folder / str(rng.choice(["mcap", "sqlite3"])), work / "bag")
    _damage_in(bag, kind, rng)
    return _bag_command(bag, work / "out", rng)


def _bag_file(o: Originals, work: Path, kind: str, rng) -> list:
    name = str(rng.choice(["mcap/mcap.mcap", "sqlite3/sqlite3.db3"]))
    bag = work / Path(name).name
    bag.write_bytes(mutated((o.folder / name).read_bytes(), kind, rng))
    return _bag_command(bag, work / "out", rng)


def _payload(o: Originals, work: Path, kind: str, rng) -> list:
    """A whole container whose messages are damaged: a driver's fault, not the disk's. Mostly they stay readable."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    kind = kind if rng.random() < 0.2 else str(rng.choice(["bits", "float", "number", "zeros"]))
    bag, share = work / "bag", float(rng.choice([0.01, 0.1, 1.0]))
    with Writer(bag, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        made: dict = {}
        for raw in read_raw(o.folder / "mcap"):
            if raw.topic not in made:
                made[raw.topic] = writer.add_connection(raw.topic, raw.type, typestore=STORE)
            data = bytes(raw.data)
            stamp = raw.stamp_ns if rng.random() > 0.01 * share else int(rng.integers(0, 2**63 - 1))
            writer.write(
                made[raw.topic], stamp, mutated(data, kind, rng) if rng.random() < share else data
            )
    return _bag_command(bag, work / "out", rng)


def _checkpoint_command(path: Path, o: Originals, out: Path, rng) -> list:
    many = (
        [
            "plot",
            path,
            "--output",
            out.with_suffix(".png"),
            "--suggest",
            "1",
            "--resolution",
            "0.3",
        ],
        ["map", o.folder / "mcap", "--output", out, "--resume", path, "--suggest", "0"],
        ["report", path, "--output", out.with_suffix(".html"), "--suggest", "0"],
        ["export", path, "--output", out, "--resolution", "0.3"],
        ["plan", path, "--output", out.with_suffix(".csv"), "--budget", "5"],
        ["merge", o.folder / "saved", path, "--output", out],
    )
    return many[int(rng.choice(6, p=[0.15, 0.4, 0.1, 0.1, 0.1, 0.15]))]


def _checkpoint_bytes(o: Originals, work: Path, kind: str, rng) -> list:
    path = work / "map.gpm"
    path.write_bytes(mutated((o.folder / "saved" / "map.gpm").read_bytes(), kind, rng))
    return _checkpoint_command(path, o, work / "out", rng)


def _leaves(tree, trail=()):
    """(keys down to it, value) of everything in a nested state that is no dict or list."""
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else None
    )
    if items is None:
        yield trail, tree
        return
    for key, value in items:
        yield from _leaves(value, (*trail, key))


def _other(value, rng):
    """Another value in place of one: wrong shape, type, sign, or not finite."""
    many: list = [
        None,
        "word",
        [],
        {},
        -1,
        0,
        1e308,
        float("nan"),
        float("inf"),
        2**62,
        True,
        [1.0, "a"],
    ]
    if isinstance(value, torch.Tensor):
        many = [
            *many[:4],
            value[:0],
            value.reshape(-1),
            value[..., None],
            value.to(torch.int64),
            torch.zeros_like(value),
            value * -1,
        ]
        if value.is_floating_point():
            many += [
                torch.full_like(value, 1e300),
                value * float("nan"),
                value * 1e200,
                value + 1e9,
            ]
        if value.dim() and len(value):
            many += [value[:-1], torch.cat([value, value])]
    return many[int(rng.integers(len(many)))]


def _checkpoint_content(o: Originals, work: Path, kind: str, rng) -> list:
    """Right checksums, wrong content: deliberate, or of a program that was not ours."""
    state = load_checkpoint(o.folder / "saved" / "map.gpm")
    for _ in range(int(rng.integers(1, 4))):
        found = list(_leaves(state))
        trail, value = found[int(rng.integers(len(found)))]
        holder = state
        for key in trail[:-1]:
            holder = holder[key]
        if isinstance(holder, dict) and rng.random() < 0.2:
            del holder[trail[-1]]
        else:
            holder[trail[-1]] = _other(value, rng)
    path = save_checkpoint(work / "map.gpm", state)
    return _checkpoint_command(path, o, work / "out", rng)


_WORDS = (
    "nan",
    ".inf",
    "1e400",
    "-1",
    "0",
    "''",
    "[]",
    "{}",
    "[1, 2]",
    "true",
    "magic",
    "2001-99-99",
    "0x",
    "0b",
    "1" * 400,
    "*a",
    "&a [*a]",
    "!!python/object:os.system",
    "\x00",
    "\ud7ff",
    "1:2:3",
    "~",
    "? x",
    "- -",
    "|",
    "%",
)


def _parameters(o: Originals, work: Path, kind: str, rng) -> list:
    path = work / "params.yaml"
    text = (o.folder / "params.yaml").read_bytes()
    if rng.random() < 0.5:
        text = mutated(text, kind, rng)
    else:
        lines = text.decode().splitlines()
        at = int(rng.integers(len(lines)))
        lines[at] = lines[at].split(":")[0] + ": " + _WORDS[int(rng.integers(len(_WORDS)))]
        text = "\n".join(lines).encode()
    path.write_bytes(text)
    return ["map", o.folder / "mcap", "--output", work / "out", "--suggest", "0", "--params", path]


def _assignments(o: Originals, work: Path, kind: str, rng) -> list:
    from gp_mapping.settings.build import Parameters

    built = Parameters.build({})
    names = [
        *built.map.__dataclass_fields__,
        *built.intake.__dataclass_fields__,
        "lenghtscale",
        "",
        "a.b",
    ]
    words = []
    for _ in range(int(rng.integers(1, 4))):
        words += [
            "--set",
            f"{names[int(rng.integers(len(names)))]}={_WORDS[int(rng.integers(len(_WORDS)))]}",
        ]
    return ["map", o.folder / "mcap", "--output", work / "out", "--suggest", "0", *words]


def _recording(o: Originals, work: Path, kind: str, rng) -> list:
    for part in ("time", "loc", "mag"):
        shutil.copy(o.folder / f"1-{part}.csv", work)
    _damage_in(work, kind, rng)
    return [
        "import",
        "magnetic-csv",
        work,
        "--output",
        work / "bag",
        "--storage",
        str(rng.choice(["mcap", "sqlite3"])),
    ]


def _saved_report(o: Originals, work: Path, kind: str, rng) -> list:
    """A right checkpoint with a wrong report.json beside it."""
    saved = _copy(o.folder / "saved", work / "saved")
    path = saved / "report.json"
    if rng.random() < 0.5:
        path.write_bytes(mutated(path.read_bytes(), kind, rng))
    else:
        kept = json.loads(path.read_text())
        names = [name for name in kept if name != "map"]
        kept[names[int(rng.integers(len(names)))]] = [None, 3, "x", [], {}, [3], {"a": 1}, True][
            int(rng.integers(8))
        ]
        path.write_text(json.dumps(kept, allow_nan=False))
    return ["report", saved, "--output", work / "out.html", "--suggest", "0"]


_ODD = (
    "",
    "nan",
    "-1",
    "0",
    "1e309",
    "99999999999999999999",
    "/dev/null",
    "/",
    "a\nb",
    "é\udc80",
    "--",
    "-",
    "{}",
    "*",
    "%s%n",
    "../" * 40,
    "x" * 300,
    "/dev/full",
    "/proc/self/mem",
    "NaN",
    "inf",
    "0.5",
    "1",
    "\0",
)


_GO_ON = {
    "view": ("--port", "--namespace", "--node", "--domain-id", "--address"),
    "demo": ("--speed", "--duration", "--seed", "--domain-id", "--model", "--params"),
    "explore": (
        "--budget",
        "--budget-time",
        "--home",
        "--region",
        "--target-stddev",
        "--speed",
        "--kind",
        "--model",
        "--params",
        "--domain-id",
        "--patience",
        "--timeout",
    ),
}
"""Commands that go on until they are told to end, so that only values that no option takes can be tried."""
_NEVER_RIGHT = ("a b", "{}", "%s%n", "a\nb", "é\udc80", "1;2")


def _arguments(o: Originals, work: Path, kind: str, rng) -> list:
    """Options with values that nobody means."""
    bag, saved = o.folder / "mcap", o.folder / "saved"
    lines = (
        ["map", bag, "--output"],
        ["map", bag, "--output", work / "o", "--suggest"],
        ["map", bag, "--output", work / "o", "--seed"],
        ["map", bag, "--output", work / "o", "--model"],
        ["map", bag, "--output", work / "o", "--field-topic"],
        ["map", bag, "--output", work / "o", "--resume"],
        ["map", bag, "--output", work / "o", "--test"],
        ["map", bag, "--output", work / "o", "--params"],
        ["map", bag, "--output", work / "o", "--set"],
        ["map", "--output", work / "o"],
        ["check", bag, "--no-refits", "--output"],
        ["check", bag, "--output", work / "o", "--against"],
        ["report", saved, "--output"],
        ["report", "--output", work / "o.html"],
        ["report", saved, "--output", work / "o.html", "--suggest"],
        ["report", saved, "--suggest", "0", "--output", work / "o.html", "--title"],
        ["plot", saved, "--output"],
        ["plot", saved, "--output", work / "o.png", "--resolution"],
        ["plot", saved, "--output", work / "o.png", "--suggest"],
        ["plot"],
        ["calibrate"],
        ["calibrate", bag, "--output"],
        ["calibrate", bag, "--field-topic"],
        ["import", "magnetic-csv"],
        ["import"],
        ["import", "magnetic-csv", o.folder, "--output"],
        ["import", "magnetic-csv", o.folder, "--output", work / "b", "--trials"],
        ["import", "magnetic-csv", o.folder, "--output", work / "b", "--gap"],
        ["import", "magnetic-csv", o.folder, "--output", work / "b", "--to-tesla"],
        ["export", saved, "--output", work / "o", "--resolution"],
        ["export", saved, "--output"],
        ["export", saved, "--output", work / "o", "--format"],
        ["export", "--output", work / "o"],
        ["export", saved, "--output", work / "o", "--datum"],
        ["plan", saved, "--region"],
        ["plan", saved, "--margin"],
        ["plan", saved, "--budget"],
        ["plan", saved, "--start"],
        ["plan", saved, "--home"],
        ["plan", saved, "--kind"],
        ["plan", saved, "--free-space"],
        ["plan", saved, "--keep-out"],
        ["plan", saved, "--budget-time"],
        ["plan", saved, "--speed"],
        ["plan", saved, "--objective"],
        ["plan", saved, "--level"],
        ["plan", saved, "--set"],
        ["plan", saved, "--output"],
        ["plan"],
        ["merge", saved, "--output", work / "o"],
        ["merge", saved, saved, "--output"],
        ["merge"],
        *([command, option] for command, options in _GO_ON.items() for option in options),
        [],
        ["mapp"],
    )
    words = lines[int(rng.integers(len(lines)))]
    if words[:1] and words[0] in _GO_ON:
        return [*words, _NEVER_RIGHT[int(rng.integers(len(_NEVER_RIGHT)))]]
    odd = _ODD[int(rng.integers(len(_ODD)))]
    return [
        *words,
        "nan" if odd == "../" * 40 else odd,
    ]  # which is the folder of the trials, or one above


KINDS: dict[str, tuple[float, Callable]] = {
    "bag folder": (0.2, _bag_folder),
    "bag file": (0.15, _bag_file),
    "messages in a bag": (0.2, _payload),
    "checkpoint, bytes": (0.08, _checkpoint_bytes),
    "checkpoint, content": (0.12, _checkpoint_content),
    "parameter file": (0.08, _parameters),
    "--set": (0.05, _assignments),
    "recording (csv)": (0.05, _recording),
    "report.json": (0.02, _saved_report),
    "arguments": (0.05, _arguments),
}
"""Kind of file -> its share of the trials, and what damages one and names the command."""


def run(quick: bool) -> list[Row]:
    """5 000 trials (60 of files half as long where quick), by what was damaged."""
    done: dict[str, list[Trial]] = {kind: [] for kind in KINDS}
    for i, trial in enumerate(trials(60, 0, measurements=65) if quick else trials(5000, 0)):
        done[trial.kind].append(trial)
        if trial.ending.wrong:
            print(
                f"faults: files, trial {i}: {' '.join(trial.words)}: {trial.ending.wrong}",
                file=sys.stderr,
            )
    return [_row(kind, found) for kind, found in done.items() if found]


def _row(kind: str, found: list[Trial]) -> Row:
    refused = sum(trial.ending.refused for trial in found)
    wrong = [trial for trial in found if trial.ending.wrong]
    remark = f"{refused} refused, {len(found) - refused - len(wrong)} used"
    return Row(
        kind,
        len(found),
        len(found) - len(wrong),
        worst=max(trial.ending.seconds for trial in found),
        remark=remark + (f"; {wrong[0].ending.wrong[:80]}" if wrong else ""),
    )


def trials(count: int, seed: int, folder: Path | None = None, measurements: int = 130):
    """`count` trials one after another; the same seed gives the same ones. measurements: in each file that is right."""
    with tempfile.TemporaryDirectory(prefix="gp_mapping_files_") as own:
        base = Path(folder or own)
        originals = Originals(base / "originals", measurements)
        names, shares = list(KINDS), np.array([share for share, _ in KINDS.values()])
        for i in range(count):
            yield one_trial(originals, base, seed, i, names, shares / shares.sum())


def one_trial(originals: Originals, base: Path, seed: int, i: int, names, shares) -> Trial:
    """Trial number i of a seed, in a folder that is removed again."""
    rng = np.random.default_rng((seed, i))
    kind, damage = str(rng.choice(names, p=shares)), str(rng.choice(list(DAMAGE)))
    work = base / f"trial{i}"
    work.mkdir()
    here = Path.cwd()
    try:
        words = KINDS[kind][1](originals, work, damage, rng)
        os.chdir(work)  # an odd name without a folder is written where one stands
        return Trial(kind, damage, tuple(map(str, words)), run_command(words))
    finally:
        os.chdir(here)
        shutil.rmtree(work, ignore_errors=True)
