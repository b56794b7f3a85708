"""The programs of docs/extending.md, in a folder as an installation would have them: files and entry points."""

import re
from pathlib import Path

from docs_text import ROOT, fenced

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = {
    "own_model": "class OwnGP",
    "own_kernel": "class RationalQuadratic",
    "own_likelihood": "class Logit",
    "own_sensor": "BATTERY =",
    "own_adaptor": "class WindSpeed",
    "own_program": "from gp_mapping.cli import main",
    "own_planner": "def spiral",
    "known": "class Known",
    "drying": "class Drying",
}


def program(name: str) -> str:
    """The block of the page that defines it."""
    return next(text for text in fenced(PAGE, "python") if FILES[name] in text)


def install(folder: Path) -> Path:
    """Write the programs, and the page's entry points as an installed distribution has them."""
    for name in FILES:
        (folder / f"{name}.py").write_text(program(name), encoding="utf-8")
    offered = fenced(PAGE, "toml")[0]
    info = folder / "somebodys_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-parts\nVersion: 1.0\n")
    text = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", offered)
    (info / "entry_points.txt").write_text(re.sub(r'"', "", text))
    return folder
