"""What test_docs.py reads: the pages as text, and the warnings that stand in the code."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
NOT_MAPPER = {
    "bag_player_node.py",
    "simulator_node.py",
    "playback.py",
    "map_watcher.py",
    "launch_arguments.py",
    "launching.py",
}
WARNERS = {"warn", "_warn", "warning", "Missing"}
KEPT = {"problem", "wrong_type", "wrong_qos"}  # attributes that hold a warning until it is told
# files in which every sentence is for the user
WHOLE = {
    "namesakes.py",
    "notes/settings.py",
    "notes/frames.py",
    "notes/leaps.py",
    "notes/two_levels.py",
    "notes/repeats.py",
    "notes/displaced.py",
    "notes/gross.py",
    "repeated/recurring.py",
    "repeated/range_ends.py",
    "repeated/on_change.py",
    "suggester.py",
    "free_maps.py",
    "suggest.py",
    "offer.py",
    "parameters.py",
    "sensors/setup.py",
    "clocks/lead.py",
    "sensors/sketch.py",
    "sensors/guarded.py",
    "sensors/absent_axes.py",
    "sensors/dead_axes.py",
    "sensors/other_unit.py",
    "sensors/sources.py",
    "clocks/stamps.py",
    "clocks/order.py",
    "poses/lateness.py",
    "poses/leaps.py",
    "poses/motion.py",
    "poses/restarts.py",
    "poses/two_tracks.py",
}


def one_line(text: str) -> str:
    """Without line breaks, quotation marks of Markdown and doubled spaces."""
    return re.sub(r"\s+", " ", re.sub(r"^>\s?", "", text, flags=re.MULTILINE))


def fenced(text: str, *languages: str) -> list[str]:
    """The fenced blocks in those languages, continued lines joined."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [body.replace("\\\n", " ") for language, body in blocks if language in languages]


def spans(text: str) -> list[str]:
    """What stands between single backticks outside fenced blocks; a span may go over a line's end."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [one_line(span) for span in re.findall(r"`([^`]+)`", prose)]


def command_lines(text: str) -> list[str]:
    """Lines of bash blocks and inline spans, comments cut off."""
    lines = [line for block in fenced(text, "bash", "sh") for line in block.splitlines()]
    return [line.split(" #")[0].strip() for line in lines + spans(text)]


def slugs(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def template(node: ast.expr) -> str | None:
    """A text as the pages quote it: each placeholder is an ellipsis; None for anything but a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return one_line(node.value)
    if isinstance(node, ast.JoinedStr):
        return one_line(
            "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        )
    return None


def _in_call(node: ast.Call, names: dict[str, list[ast.expr]]) -> list[ast.expr]:
    """What may be the text of a warning call: its first argument, or what was assigned to that name before."""
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called not in WARNERS or not node.args:
        return []
    first = node.args[0]
    return names.get(first.id, []) if isinstance(first, ast.Name) else [first]


def _warnings_of(function: ast.AST) -> list[str]:
    """Texts of calls like warn("…"), of tuples (WARN, "…") and of attributes that keep one, in one function."""
    names: dict[str, list[ast.expr]] = {}
    found: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names.setdefault(getattr(target, "id", ""), []).append(node.value)
                found += [node.value] if getattr(target, "attr", "") in KEPT else []
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            found += _in_call(node, names)
        elif (
            isinstance(node, ast.Tuple)
            and node.elts
            and getattr(node.elts[0], "id", "") in ("WARN", "ERROR")
        ):
            found.append(node.elts[1])
    return [text for node in found for text in [template(node)] if text]


def _sentences(tree: ast.AST) -> list[str]:
    """Every text of five words or more but docstrings and errors: for files whose sentences all reach the user."""
    passed = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise | ast.Expr | ast.JoinedStr)
        for part in ast.walk(node)
        if not (isinstance(node, ast.JoinedStr) and part is node)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    }
    texts = [template(node) for node in ast.walk(tree) if id(node) not in passed]
    return [text for text in texts if text and text.count(" ") >= 4]


def warnings_in_code() -> dict[str, str]:
    """Every warning of the mapping node, its intake and its suggestions -> the file it stands in."""
    package = ROOT / "gp_mapping"
    files = [
        *(
            p
            for room in ("ros", "runtime", "intake", "store")
            for p in sorted((package / room).rglob("*.py"))
        ),
        package / "planning" / "suggest.py",
        package / "planning" / "offer.py",
        package / "mapping" / "notes" / "settings.py",
        package / "mapping" / "notes" / "frames.py",
        package / "mapping" / "notes" / "leaps.py",
        package / "mapping" / "notes" / "two_levels.py",
        package / "mapping" / "notes" / "repeats.py",
        package / "mapping" / "notes" / "displaced.py",
        package / "mapping" / "notes" / "gross.py",
        package / "mapping" / "repeated" / "recurring.py",
        package / "mapping" / "repeated" / "range_ends.py",
        package / "mapping" / "repeated" / "on_change.py",
    ]
    found: dict[str, str] = {}
    for path in files:
        if path.name in NOT_MAPPER:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        texts = [text for node in functions for text in _warnings_of(node)]
        if path.name in WHOLE or f"{path.parent.name}/{path.name}" in WHOLE:
            texts += _sentences(tree)
        found |= {
            text.strip(): str(path.relative_to(ROOT))
            for text in texts
            if len(text.strip("… ")) >= 4
        }
    return found
