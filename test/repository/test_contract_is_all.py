"""Nobody outside core/models asks a map for more than the contract: read from the syntax trees."""

import ast
from pathlib import Path

import pytest

from gp_mapping.core.field_map import CalibrationData, FieldMap, Planned, Snapshot

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gp_mapping"
NAMED = "offline", "fleet"  # objectives and sums of models that they name
FILES = [
    p
    for p in sorted(PACKAGE.rglob("*.py"))
    if "models" not in p.relative_to(PACKAGE).parts and p.relative_to(PACKAGE).parts[0] not in NAMED
]
KINDS = {
    kind.__name__: {name for name in dir(kind) if not name.startswith("_")}
    | set(getattr(kind, "__dataclass_fields__", ()))
    for kind in (FieldMap, Snapshot, Planned, CalibrationData)
}
CONTRACT = (
    "gp_mapping",
    *(f"gp_mapping.core.{name}" for name in ("field_map", "snapshot", "types")),
)
PROBES = {"hasattr", "getattr", "isinstance", "issubclass", "type", "vars", "setattr"}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(tree: ast.AST) -> set[str]:
    """Which of the contract's classes a file means by these names."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in CONTRACT
        for alias in node.names
    } & set(KINDS)


def annotated(function: ast.FunctionDef, meant: set[str]) -> dict[str, str]:
    """Arguments of a function that are maps or what maps give, by name."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    written = {
        a.arg: ast.unparse(a.annotation).strip("'\"").split(" ")
        for a in arguments
        if a.annotation is not None
    }
    kinds = {name: next((k for k in meant if k in words), None) for name, words in written.items()}
    return {name: kind for name, kind in kinds.items() if kind}


def kind_of(node: ast.expr, names: dict[str, str]) -> str | None:
    """Whether an expression is a map: an argument that says so, or what somebody's `.map` is."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if (
        isinstance(node, ast.Attribute)
        and node.attr == "map"
        and ast.unparse(node.value).endswith(("session", "_session", "self"))
    ):
        # a session's map; `self.map` of a class that is no session is whatever that class says
        return (
            "FieldMap" if not ast.unparse(node.value) == "self" or "MapSession" in names else None
        )
    return None


def faults(tree: ast.AST) -> list[str]:
    """What a file does with maps that the contract does not have."""
    found, meant = [], imported(tree)

    def look(node: ast.AST, names: dict[str, str]) -> None:
        if isinstance(node, ast.ClassDef) and node.name == "MapSession":
            names = names | {"MapSession": "MapSession"}
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = names | annotated(node, meant)
        if isinstance(node, ast.Attribute) and (kind := kind_of(node.value, names)) in KINDS:
            if node.attr not in KINDS[kind]:
                found.append(
                    f"line {node.lineno}: {ast.unparse(node)}: a {kind} has no {node.attr}"
                )
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in PROBES
            and node.args
        ):
            if kind_of(node.args[0], names) in KINDS:
                found.append(f"line {node.lineno}: {ast.unparse(node)}: a map is asked, not probed")
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "gp_mapping.core.models"
        ):
            found.append(
                f"line {node.lineno}: imports {node.module}: outside core/models no model has a name"
            )
        if isinstance(node, ast.Compare) and any(
            isinstance(part, ast.Attribute) and part.attr == "model"
            for part in (node.left, *node.comparators)
        ):
            found.append(
                f"line {node.lineno}: {ast.unparse(node)}: a model is asked what it can, not what its name is"
            )
        for child in ast.iter_child_nodes(node):
            look(child, names)

    look(tree, {})
    return found


# the one place that knows the models by their classes
REGISTRY = PACKAGE / "core" / "registry.py"


@pytest.mark.parametrize("path", [p for p in FILES if p != REGISTRY], ids=shown)
def test_a_map_is_asked_what_the_contract_has_and_nothing_else(path):
    found = faults(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    assert not found, f"{shown(path)}:\n" + "\n".join(found)


def test_nobody_else_compares_the_name_of_a_model_either():
    """Who knows models by their classes asks for their traits, as all others do."""
    for path in [REGISTRY, *(PACKAGE / "fleet").rglob("*.py")]:
        found = faults(ast.parse(path.read_text(encoding="utf-8"), str(path)))
        assert not [text for text in found if "what its name is" in text], shown(path)


@pytest.mark.parametrize(
    "probe",
    [
        "def f(field: FieldMap): return field.posterior",
        "def f(x, field: FieldMap): return hasattr(x, 'a') and hasattr(field, 'around')",
        "def f(p: Snapshot): return isinstance(p, Posterior)",
        "def f(p: FieldMap | None):\n    def g():\n        return p.basis\n    return g",
        "def f(session): return session.map.scaling is None",
        "def f(self): return self._session.map.theta",
        "class MapSession:\n    def f(self): return getattr(self.map, 'memory', None)",
        "class MapSession:\n    def f(self): return self.map.learner.steps",
        "from gp_mapping.core.models.wiski.model import Wiski",
    ],
)
def test_a_probe_is_found(probe):
    assert faults(ast.parse("from gp_mapping.core.field_map import FieldMap, Snapshot\n" + probe))


def test_what_the_contract_has_is_no_fault():
    assert not faults(
        ast.parse(
            "from gp_mapping import FieldMap\n"
            "def f(field: FieldMap, other):\n    return field.snapshot().predict(other.basis)\n"
            "def g(session): return session.map.counters()['jitter']"
        )
    )
