"""The model that docs/extending.md shows: as somebody else would write it, by nothing but the contract."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from docs_text import ROOT, fenced

PROGRAM = next(
    text
    for text in fenced((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), "python")
    if "class OwnGP" in text
)
exec(compile(PROGRAM, "docs/extending.md", "exec"))
