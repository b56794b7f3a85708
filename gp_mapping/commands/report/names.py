"""What bags are called on a page that goes to other people: without the folders of this machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gp_mapping.errors import one_line

__all__ = ["short_names", "without_folders"]

_LONGEST = 100  # characters of a name


def short_names(paths: Iterable) -> dict[str, str]:
    """Return a name for each path: its last part, and as many before it as set it apart.

    A file name may be any bytes, which a page may not: each is made printable and short.
    """
    parts = {str(path): Path(path).resolve().parts for path in paths}
    depth = dict.fromkeys(parts, 1)

    def names() -> dict[str, str]:
        """The names with as many folders as each path has so far."""
        return {path: one_line("/".join(parts[path][-depth[path] :]), _LONGEST) for path in parts}

    while True:
        found = names()
        count = Counter(found.values())
        # one path that is given in two ways stays one name, however long
        alike = [p for p in parts if count[found[p]] > 1 and depth[p] < len(parts[p])]
        if not alike:
            return found
        for path in alike:
            depth[path] += 1


def without_folders(text: str, names: dict[str, str]) -> str:
    """Return a text in which each path is replaced by its name.

    Args:
        text: for other people.
        names: path -> name, of short_names.
    """
    if not names:
        return text
    # the longest first: one path may be the beginning of another, or a word of the text
    either = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.sub(
        rf"(?<![\w./-])({either})(?![\w-]|\.\w)", lambda found: names[found.group(1)], text
    )
