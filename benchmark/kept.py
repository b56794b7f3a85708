"""Rows of a measurement that takes hours, kept as they come: one that is interrupted goes on where it ended."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from gp_mapping.store.marks import NUMBER, number_of, written

__all__ = ["KeptRows", "digest_of"]


def digest_of(*folders_and_files: Path) -> str:
    """What tells one version of these sources from another."""
    files = [
        file
        for path in folders_and_files
        for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class KeptRows:
    """Rows by their keys, in a file with one JSON object a line.

    Rows of another version of the sources are not mixed with those of this one: they are dropped, and said.
    """

    def __init__(self, path: Path | None, version: str):
        self._path, self._version = path, version
        self._rows: dict[str, dict] = {}
        if path is None or not path.exists():
            return
        lines, others = path.read_text(encoding="utf-8").splitlines(), 0
        for line in lines:
            try:
                kept = json.loads(line, object_hook=_read)
            except ValueError:  # the end of a process in the middle of it
                continue
            if kept["version"] == version:
                self._rows[kept["key"]] = kept["row"]
            else:
                others += 1
        print(
            f"{path}: {len(self._rows)} rows are kept from before"
            + (f", {others} of another version of the sources are dropped" if others else ""),
            file=sys.stderr,
        )
        if len(self._rows) < len(lines):
            self._path.write_text("".join(self._line(*item) for item in self._rows.items()))

    def row(self, key: str, make) -> dict:
        """The row of that key: as kept, or else what make() gives, which is then kept."""
        if key not in self._rows:
            self._rows[key] = make()
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(self._line(key, self._rows[key]))
        return self._rows[key]

    def _line(self, key: str, row: dict) -> str:
        kept = {"version": self._version, "key": key, "row": _marked(row)}
        return json.dumps(kept, allow_nan=False) + "\n"


def _marked(value):
    """Plain values with marks for numbers that are not finite."""
    if isinstance(value, dict):
        return {name: _marked(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(each) for each in value]
    return written(value) if isinstance(value, float) else value


def _read(value: dict) -> dict | float:
    """What a dict of JSON stands for."""
    return number_of(value) if value.keys() == {NUMBER} else value
