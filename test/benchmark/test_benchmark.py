"""The benchmark runs, stores what it measured, and writes its page from what is stored."""

import ast
import importlib
import inspect
import json
import math
import mmap
import pathlib
from unittest import mock

import numpy as np
import pytest
import torch
from pretended_card import CARD, pretended_card
from torch.utils.flop_counter import FlopCounterMode

from benchmark import batch, faults, protocol, tables, timing
from benchmark.__main__ import APART, PARTS, main, module_of
from benchmark.costs import cost, gpu
from benchmark.costs.cost import Stream
from benchmark.faults import rows
from benchmark.plans import exploration
from benchmark.plans.exploration_routes import NAME, route_of
from benchmark.plans.exploration_worlds import SIGHT, Sight, make_world
from benchmark.recordings import RecordingsAbsent, recordings_folder
from benchmark.repository import mutants
from benchmark.repository.house import measured
from gp_mapping import Samples, create_map


def test_quick_cost_prints_stores_and_writes(tmp_path, capsys):
    assert main(["cost", "--quick", "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    stored = json.loads((tmp_path / "cost.json").read_text())
    assert stored["environment"]["quick"] and stored["environment"]["processor_seconds"] > 0
    titles = [t["title"] for t in stored["tables"]]
    assert len(titles) == 7 and all(f"### {title}" in printed for title in titles)
    for table in stored["tables"]:
        assert table["rows"] and all(len(row) == len(table["columns"]) for row in table["rows"])
        numbers = [v for row in table["rows"] for v in row if isinstance(v, int | float)]
        assert all(math.isfinite(v) for v in numbers)
        # a difference of two times that were measured may be anything
        below = [
            (table["title"], row[0], name, v)
            for row in table["rows"]
            for (name, _), v in zip(table["columns"], row)
            if name != "more than alone" and isinstance(v, int | float) and v < 0
        ]
        assert not below, "a time or a size below 0"
    ratio = stored["tables"][0]["rows"][0][1]
    assert ratio > 1.0, "an update cannot be cheaper than its floor"
    page = tmp_path / "page.md"
    assert main(["report", "--output", str(tmp_path), "--document", str(page)]) == 0
    assert all(f"### {title}" in page.read_text() for title in titles)
    assert "Numbers to reach" not in page.read_text(), "a quick run is not to be judged"


def test_drives_of_exploration_are_kept_until_all_of_them_are_stored(tmp_path, monkeypatch, capsys):
    """A measurement of hours that is interrupted goes on; one of other sources begins anew."""
    made, ends = [], 5

    def drive(*world):
        if len(made) == ends:
            raise KeyboardInterrupt
        made.append(world)
        return {"world": list(world), "auc": float("nan")}

    monkeypatch.setattr(exploration, "_drive", drive)
    monkeypatch.setattr(exploration, "KINDS", ("gp open",))

    def told(rows):
        assert all(math.isnan(row["auc"]) for row in rows), "what was kept comes back as it was"
        return [], [tables.Table(str(len(rows)), [])]

    monkeypatch.setattr(exploration, "tables", told)
    call = ["exploration", "--output", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        main(call)
    kept = tmp_path / "exploration_drives.jsonl"
    kept.write_text(kept.read_text()[:-9])  # killed while it wrote the fifth
    ends = math.inf
    assert main(call) == 0
    every = len(exploration.POLICIES) * len(exploration.BUDGETS) * 4
    assert len(made) == every + 1 and made[4] == made[5] and len(set(made)) == every
    assert "4 rows are kept from before" in capsys.readouterr().err and not kept.exists()

    made, ends = [], 3
    with pytest.raises(KeyboardInterrupt):
        main(call)
    monkeypatch.setattr(exploration, "digest_of", lambda *sources: "another")
    ends = 6
    with pytest.raises(KeyboardInterrupt):
        main(call)
    assert "0 rows are kept from before, 3 of another version" in capsys.readouterr().err
    assert len(kept.read_text().splitlines()) == 3 and made[:3] == made[3:]


def test_a_route_of_a_file_is_driven_as_far_as_the_budget(tmp_path):
    world, file = make_world("gp rooms", 0), tmp_path / "route.csv"
    near = sorted(world.area.free.centres().tolist(), key=lambda x: math.dist(x, world.start))
    stops = [x for x in near if 0.6 < math.dist(x, world.start) < 0.7][:1] + near[60:61]
    file.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in stops))
    found = exploration.explore(world, route_of(file), 9.0)
    way = 0.65 + math.dist(*stops)
    assert way - 0.5 < found["metres"] < way + 0.5 and len(found["decisions"]) == 3
    assert exploration.explore(world, route_of(file), 0.4)["metres"] == pytest.approx(0.4, abs=0.06)
    file.write_text("x,y\n99,1\n")
    with pytest.raises(
        ValueError, match=r"route.csv: waypoint 1, \(99, 1\) m, is more than 2 m off"
    ):
        exploration.explore(world, route_of(file), 1.0)


def test_routes_of_files_beside_policies(tmp_path, monkeypatch, capsys):
    explore = exploration.explore
    monkeypatch.setattr(exploration, "BUDGETS", {"short": 30.0, "long": 20.0})  # 1.5 and 2 m
    call = ["exploration", "--quick", "--output", str(tmp_path), "--routes"]
    routes = tmp_path / "routes"

    def refused(words):
        assert main([*call, str(routes)]) == 2
        assert words in capsys.readouterr().err

    refused("there is no such folder for routes")
    routes.mkdir()
    refused("there is no route for a world in")
    told = json.loads((routes / "worlds" / "gp_open_0_short.json").read_text())
    world = make_world("gp open", 0)
    assert told["budget"] == pytest.approx(world.size / 30.0) and told["start"] == list(world.start)
    free = np.array([[cell == "1" for cell in row] for row in told["free"]])
    at = ((world.start - told["origin"]) / told["resolution"]).astype(int)
    assert free[at[1], at[0]] and free.sum() * told["resolution"] ** 2 == pytest.approx(world.size)
    file = routes / "gp_open_0_short.csv"
    for text, words in (
        ("1.0,2.0\n", "the first line is to be x,y"),
        ("x,y\n", "there is no waypoint"),
        ("x,y\n1,2\n3,nan\n", "waypoint 2 is '3,nan', not two numbers (m)"),
    ):
        file.write_text(text)
        refused(words)
    file.write_text("x,y\n3.0,3.0\n")
    (routes / "gp_open_short.csv").write_text("x,y\n3.0,3.0\n")
    refused("gp_open_short.csv: this is no route of a world in")
    (routes / "gp_open_short.csv").unlink()

    driven = []

    def quick(world, decide, budget, seed):
        driven.append(decide)
        return explore(world, decide if callable(decide) else "random", budget, seed)

    monkeypatch.setattr(exploration, "explore", quick)
    assert main([*call, str(routes)]) == 0
    shown = capsys.readouterr().out
    assert driven[1:] == list(exploration.BESIDE_ROUTES) and f"| {NAME} |" in shown
    assert "1 of 1 worlds have a route in a file" in shown and "long" not in shown
    for option in ["--routes", str(routes)], ["--seed", "3"]:
        assert main(["cost", *option]) == 2
        assert f"cost: it has no {option[0]}" in capsys.readouterr().err


def test_a_robot_sees_walls_as_far_as_the_next_one_and_what_lies_behind_a_door():
    occupied = np.zeros((40, 100))
    occupied[:, 20] = 100.0
    occupied[18:24, 20] = 0.0  # a door
    sight = Sight(occupied)
    sight.look(np.array([1.05, 2.05]))
    row, column = np.mgrid[:40, :100]
    x, y = 0.1 * column + 0.05, 0.1 * row + 0.05
    near = np.hypot(x - 1.05, y - 2.05) < SIGHT - 0.1
    through = np.abs(y - 2.05) < 0.2 * (x - 1.05)  # the door is 0.6 m wide, 1 m away
    free = sight.free().clearance > 0.0
    room = column < 20
    assert free[room & near].all() and free[~room & near & through].all()
    assert not free[~room & ~near & (x > 5.2)].any(), "farther than it sees"
    assert not free[(column > 21) & (np.abs(y - 2.05) > 0.5 * (x - 1.05))].any(), "through a wall"
    assert not free[occupied > 0.0].any()


def test_parts_of_single_models_are_parts_like_the_others(tmp_path, capsys):
    for name in APART:
        module = importlib.import_module(module_of(name))
        assert name in PARTS and (
            name == "models"
            or (
                list(inspect.signature(module.run).parameters)[:3] == ["quick", "where", "only"]
                and module.TABLES == inspect.signature(module.run).parameters["only"].default
            )
        )
    assert main(["classification", "--quick", "--only", "counts", "--output", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "classification.json").read_text())
    assert len(stored["tables"]) == 1 and "### Counts and three classes" in capsys.readouterr().out
    assert not (tmp_path / "benchmarks.md").exists(), "its tables belong into docs/models.md"
    for part, words in (
        ("classification", "classes, gross_errors, counts"),
        ("live", "it has no --only"),
    ):
        assert main([part, "--quick", "--only", "krige", "--output", str(tmp_path)]) == 2
        assert words in capsys.readouterr().err


def test_absent_recordings_are_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GP_MAPPING_DATA", str(tmp_path / "nowhere"))
    assert main(["accuracy", "--quick", "--output", str(tmp_path)]) == 2
    assert "GP_MAPPING_DATA" in capsys.readouterr().err
    assert not (tmp_path / "accuracy.json").exists()


def test_goals_say_whether_they_are_met():
    goals = [tables.Goal("fast", 2.5, high=3.0, unit="ms"), tables.Goal("right", 0.5, 0.9, 0.98)]
    where = timing.environment(False) | {
        "load_after": 0.0,
        "seconds": 1.0,
        "processor_seconds": 1.0,
    }
    part = tables.Part("cost", goals, [], where)
    lines = tables.document([part]).splitlines()
    assert next(line for line in lines if "fast" in line).endswith("| 2.50 ms | ≤ 3 ms | yes |")
    assert next(line for line in lines if "right" in line).endswith(
        "| 0.500 | 0.9 to 0.98 | **no** |"
    )


def samples(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = 3 * torch.rand(n, 2, dtype=torch.float64, generator=g)
    return Samples(x, 45e-6 + 8e-6 * torch.sin(2 * x[:, 0]) * torch.cos(x[:, 1]))


def test_the_judges_agree_with_the_exact_map():
    """GPyTorch's exact GP, our SGPR with z = x, and our exact model are one and the same GP."""
    data, there = samples(60, 0), samples(40, 1).x
    ours = create_map("exact", centre=data.y.mean(0), constant_stddev=1e-12, **protocol.GIVEN)
    ours.update(data)
    expected = ours.predict(there)
    theta = (protocol.LENGTHSCALE, protocol.SIGNAL, protocol.NOISE)
    for judge in (batch.GPyTorchExact(data, 60, 0, *theta), batch.SGPR(data, data.x, *theta)):
        found = judge.predict(there)
        torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-4 * 1e-6)
        torch.testing.assert_close(found.variance, expected.variance, rtol=1e-4, atol=1e-4 * 1e-12)
        torch.testing.assert_close(found.noise_variance, expected.noise_variance, rtol=1e-9, atol=0)


def test_bytes_of_a_state_and_of_the_process():
    state = {"a": torch.zeros(3, dtype=torch.float64), "b": {"c": [torch.zeros(2), 1.0]}, "d": None}
    assert cost.tensor_bytes(state) == 32
    before = timing.resident_bytes()
    held = np.frombuffer(
        mmap.mmap(-1, 64_000_000), np.uint8
    )  # fresh pages: malloc may have some left from other tests
    held[:] = 1
    assert timing.resident_bytes() - before > 0.9 * len(held)


def test_recordings_are_found_or_said_to_be_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("GP_MAPPING_DATA", str(tmp_path))
    with pytest.raises(RecordingsAbsent, match="magnetic-data"):
        recordings_folder()
    (tmp_path / "invensense").mkdir()
    (tmp_path / "invensense" / "1-mag.csv").write_text("1,2,3\n")
    assert recordings_folder() == tmp_path / "invensense"


def test_faults_are_real_faults(tmp_path):
    """Each one changes the module, it is still Python, and nothing is done to a docstring or an annotation."""
    source = tmp_path / "module.py"
    source.write_text(
        'def f(x: "tuple[1, 2]", y=2.0):\n    """1 < 2"""\n    if x < 1 and not y:\n        print(x)\n'
        "    return x + y if x is None else x in (True, 0.5)\n"
    )
    plain, found = ast.unparse(ast.parse(source.read_text())), mutants.faults_in(source)
    texts = [mutants.mutated(fault) for fault in found]
    assert len(set(texts)) == len(texts) and plain not in texts
    assert all(compile(text, "module", "exec") for text in texts)
    for line in (
        "if x <= 1 and (not y):",
        "if x < 1 or not y:",
        "if not (x < 1 and (not y)):",
        "return x - y if",
        "x is not None",
        "x not in (True, 0.5)",
        "(False, 0.5)",
        "(True, 1.0)",
        "y=4.0",
        "return None",
    ):
        assert sum(line in text for text in texts) >= 1, line
    assert all("tuple[1, 2]" in text and "1 < 2" in text for text in texts)


def test_what_changes_nothing_is_no_fault(tmp_path):
    source = tmp_path / "module.py"
    source.write_text(
        "class A:\n    def __repr__(self):\n        return 'A' if self.x < 1 else 'B'\n"
        "@cached(maxsize=8)\ndef f(x):\n    if x:\n        return None\n    return max(x, 1e-12)\n"
        "if TYPE_CHECKING:\n    from a import b\n"
    )
    found = [(fault.line, fault.what) for fault in mutants.faults_in(source)]
    assert found == [(6, "the condition turned round"), (8, "nothing returned")]


def test_what_gives_the_same_to_whoever_looks_is_no_fault_and_what_is_beside_it_is(tmp_path):
    source = tmp_path / "module.py"
    source.write_text(
        "ROWS = 4  # at a time: time and memory alone\nMOST = 4  # of them\n"
        "def f(x, wake):\n    wake.wait(0.5)\n    ended = wake.wait(0.5)\n    y = wake.wait(x) + 1\n"
        "    y = x > 1e-9 * y, y == 1e-12, x < 1.0\n    return False\n"
        "def g(x):\n    x.reshape(-1, 2)[-1]\n    return True\n"
    )
    found = [(fault.line, fault.what) for fault in mutants.faults_in(source)]
    assert sorted(found) == [
        (2, "another number"),
        (4, "a call left out"),
        (5, "another number"),
        (6, "another number"),
        (6, "another operator"),
        (7, "another number"),
        (7, "another operator"),
        (7, "compare otherwise"),
        (7, "compare otherwise"),
        (8, "the other truth value"),
        (10, "another number"),
        (10, "another number"),
        (11, "nothing returned"),
        (11, "the other truth value"),
    ]


def test_mirrored_tests_are_those_that_name_the_module_and_then_those_of_its_folder():
    root = pathlib.Path(mutants.__file__).resolve().parents[2]
    near = mutants.mirrored_tests(root / "gp_mapping/mapping/motion/path.py")
    naming = [path for path in near if "gp_mapping.mapping.motion.path" in path.read_text()]
    assert root / "test/mapping/motion/test_path.py" in naming and near[: len(naming)] == naming
    assert root / "test/mapping/motion/test_extent.py" in near[len(naming) :]
    shelf = mutants.mirrored_tests(root / "gp_mapping/core/models/tiled/shelf.py")
    assert shelf and all(path.parent == root / "test/core/models/tiled" for path in shelf)
    assert len({*near}) == len(near)


def test_a_fault_that_matters_is_noticed_and_a_module_as_it_is_passes(tmp_path):
    root = pathlib.Path(mutants.__file__).resolve().parents[2]
    name = root / "gp_mapping/store/scratch/own_folder.py"
    fault = next(f for f in mutants.faults_in(name) if f.what == "nothing returned")
    none = mutants.Fault(
        name, 1, 0, 0, "nothing returned"
    )  # of the module itself: it stays what it is
    assert mutants.mutated(none) == ast.unparse(ast.parse(name.read_text()))
    assert dict(mutants.judged([fault, none], tmp_path)) == {fault: True, none: False}


def test_faults_measured_in_parts_keep_the_rows_of_the_others(tmp_path):
    page, kills = tmp_path / "page.md", [rows.Row("a", 1, 1), rows.Row("b", 2, 2)]
    page.write_text(f"before\n{faults.MARKS[0]}\n{faults.MARKS[1]}\nafter\n")
    faults.write_page(rows.table({"kill": kills, "soak": [rows.Row("c", 3, 3)]}).markdown(), page)
    whole = page.read_text()
    faults.write_page(rows.table({"kill": [rows.Row("d", 4, 4)]}).markdown(), page)
    told = page.read_text().splitlines()
    found = [line.split(" | ")[1:3] for line in told if line.startswith(("| kill", "| soak"))]
    assert found == [["d", "4"], ["c", "3"]]
    faults.write_page(rows.table({"kill": kills}).markdown(), page)
    assert page.read_text() == whole


def test_a_house_is_counted(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "core" / "models").mkdir(parents=True)
    (tmp_path / "top.py").write_text(
        "# one comment\n"
        "class One:\n"
        "    def wide(self, a, b):\n"
        '        """Two.\n\n        Args:\n            a: x.\n        """\n'
        "        c, d = a, b\n"
        "\n"
        "        return self._own + c._theirs + super()._parents\n"
    )
    (tmp_path / "room" / "probes.py").write_text(
        "def asks(field, x):\n    return hasattr(field, 'z'), isinstance(x, DualSVGP), getattr(x, 'y')\n"
    )
    probing = "def asks(field):\n    return hasattr(field, 'z')\n"
    (tmp_path / "core" / "models" / "may.py").write_text(probing + "#" * 101 + "\n")
    house = measured(tmp_path)
    assert dict(house.lines) == {"(top)": 11, "room": 2, "core": 3}
    assert dict(house.folders) == {"(top)": 1, "room": 1, "core/models": 1}
    assert (house.reaches, house.probes, house.sections, house.wide) == (1, 2, 1, 1)
    assert sorted(house.functions) == [2, 2, 9] and house.classes == [10]
    assert house.documented == 1 / 3 and house.tuples == 1.0
    assert house.blank == 1 / 5 and house.comments == 2 / 16 and house.long == 1 / 16


def test_a_number_that_is_not_finite_is_stored_as_json(tmp_path):
    rows.store("odd", [rows.Row("a", 1, 1, worst=math.nan)], {"load": math.inf}, tmp_path)
    text = (tmp_path / "odd.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert rows.stored(tmp_path)["odd"][0].worst is None


def test_without_a_card_the_page_says_not_run(tmp_path, capsys):
    arguments = ["gpu", "--quick", "--only", "updates,calls", "--output", str(tmp_path)]
    with mock.patch("torch.cuda.is_available", lambda: False):
        assert main(arguments) == 0
    page = capsys.readouterr().out
    assert "Card: not run, since there is no CUDA device here" in page
    rows = [line for line in page.splitlines() if "| float" in line]
    assert rows and all(row.count("not run") == 3 for row in rows)
    # an update with 200 samples waits no more often for a card than one with 20
    waits = [int(line.split("|")[3]) for line in page.splitlines() if line.startswith("| update")]
    assert 0 < waits[1] <= waits[0]


def counted_flops(work) -> float:
    """Floating-point operations of some work, as torch counts them; of solves and factors by their formulas."""
    aten = torch.ops.aten

    def of_solve(factor, right, *_, out_shape=None, **__) -> float:
        return float(factor[-1] ** 2 * right[-1])

    def of_factor(matrix, *_, out_shape=None, **__) -> float:
        return matrix[-1] ** 3 / 3.0

    def of_sum(total, a, b, *_, out_shape=None, **__) -> float:
        return 2.0 * a[0] * a[1] * b[1]

    formulas = {
        aten.linalg_solve_triangular: of_solve,
        aten.linalg_cholesky_ex: of_factor,
        aten.addmm_: of_sum,
    }
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_work_of_the_rooflines_is_what_an_update_and_a_drawing_do(dtype):
    m = 200
    stream = Stream(m, dtype=dtype, max_inducing=m)
    stream.batch()
    x = gpu.grid_of(256) * (stream.side / 16)
    flop, _ = gpu.update_work(m, 100, dtype)
    assert counted_flops(stream.batch) == pytest.approx(sum(flop.values()), rel=0.05)
    flop, _ = gpu.drawing_work(m, len(x), dtype)
    assert counted_flops(lambda: stream.map.predict(x)) == pytest.approx(flop[dtype], rel=0.05)


def test_the_table_of_a_card_is_filled_where_there_is_one(monkeypatch, capsys):
    card = gpu.Roofline("pretended", {"float64": 1e11, "float32": 2e11}, 1e11)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "_roofline", lambda: card)
    monkeypatch.setattr(gpu, "CARD", CARD)
    with pretended_card() as counts:
        part = gpu.run(True, where := {}, ("updates",))
    assert where["card"] == "pretended" and counts.launches > 1000
    assert len(part.tables[0].rows) == 4
    assert all(gpu.NOT_RUN not in row for row in part.tables[0].rows)
