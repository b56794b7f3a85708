"""Disks that are full, gone or closed: a save fails in words, the map and the node go on.

survived: ~/save answered with success false and a reason, what was saved before is intact, the node took
in all that was sent meanwhile, and a save into a good folder afterwards succeeds.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from benchmark.faults.live import LiveMapper
from benchmark.faults.rows import Row
from gp_mapping.store.checkpoint import load_checkpoint

__all__ = ["run"]


def run(quick: bool) -> list[Row]:
    """Each fault five times (once where quick)."""
    tries = 1 if quick else 5
    return [
        case(name, make, tries)
        for name, make in (("disk full", full), ("folder gone", gone), ("read-only", read_only))
    ]


class full:
    """A file system of 64 kB."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()

    def spoil(self) -> bool:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(self.folder)],
            capture_output=True,
        )
        return done.returncode == 0

    def mend(self) -> None:
        subprocess.run(["umount", str(self.folder)], capture_output=True, check=True)


class gone:
    """A folder in whose place there is a file."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()

    def spoil(self) -> bool:
        self.folder.rename(
            self.folder.with_suffix(".moved")
        )  # in one piece, whatever is being written there
        self.folder.write_text("not a folder")
        return True

    def mend(self) -> None:
        self.folder.unlink()
        self.folder.mkdir()


class read_only:
    """A folder without write permission; the mapper runs as somebody whom that stops (confined.py)."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()

    def spoil(self) -> bool:
        self.folder.chmod(0o555)
        return True

    def mend(self) -> None:
        self.folder.chmod(0o755)


def case(name: str, make, tries: int) -> Row:
    """A save in good times, a fault, saves that must fail, and a save after it was mended."""
    from std_srvs.srv import Trigger

    survived = lost = uncounted = 0
    worst, possible = 0.0, 0
    for _ in range(tries):
        with tempfile.TemporaryDirectory() as base:
            fault, at = make(Path(base) / "maps"), 0.0
            with LiveMapper(
                Path(base), confined=True, save_directory=str(fault.folder), autosave_period=1.0
            ) as mapper:
                sent = mapper.drive(at, 2.0, 50.0, speed=4.0)
                mapper.settle(sent)
                good = mapper.call(Trigger, "/mapping/save")[0].success
                before = fault.folder / "map.gpm"
                content = before.read_bytes()
                if not fault.spoil():
                    print(
                        f"faults: disk: {name} needs the right to mount (uid {os.getuid()}): left out",
                        flush=True,
                    )
                    continue
                possible += 1
                try:
                    sent += mapper.drive(10.0, 3.0, 50.0, speed=1.0)
                    answer, waited = mapper.call(Trigger, "/mapping/save")
                    good &= not answer.success and bool(answer.message)
                    worst = max(worst, waited)
                finally:
                    fault.mend()
                if name == "read-only":
                    good &= before.read_bytes() == content
                mapper.settle(sent)
                missing = (
                    sent
                    - int(mapper.number("samples"))
                    - mapper.dropped()
                    - int(mapper.number("waiting for a pose"))
                )
                answer, waited = mapper.call(Trigger, "/mapping/save")
                good &= answer.success and load_checkpoint(before)["raw_count"] >= sent - 1
                lost, uncounted = lost + max(0, missing), uncounted + max(0, missing)
                survived += good and not missing
    return Row(
        name,
        possible,
        survived,
        lost,
        uncounted,
        worst,
        "autosave on; ~/save asked in it and after it",
    )
