"""The table of a fleet names the robot whose sensor is wrong, says what of it is, and names nobody where none is."""

import json
from collections import deque
from dataclasses import fields, replace

import numpy as np
import pytest
from fleet_bags import parameters
from small_drive import lanes, write_drive

from gp_mapping import cli
from gp_mapping.commands.fleet.table import table_of, text_of
from gp_mapping.fleet.bags import agreed_by, read_bags
from gp_mapping.fleet.engine import LocalEngine
from gp_mapping.fleet.mapping import map_bags

GOOD = 4
# starts: to find them each map takes its first cells in again and again, which is for mapping/beginning/test_start.py
STARTS = {
    "lengthscale": 0.8,
    "signal_stddev": 8e-6,
    "noise_stddev": 3e-7,
    "constant_stddev": 2.4e-5,
}
SETTINGS = parameters(**STARTS)


def late(count):
    """Poses of so many samples ago: the sensor is ahead of them."""
    past = deque(maxlen=count + 1)

    def spoil(i, vector, place):
        past.append(place)
        return vector, past[0]

    return spoil


def noisy(stddev):
    generator = np.random.default_rng(5)
    return lambda i, vector, place: (vector + stddev * generator.standard_normal(3), place)


def loose(i, vector, place):
    return (vector * 30.0, place) if i % 11 == 5 else (vector, place)


FAULTS = {
    "scale": ("scale", lambda i, v, p: (1.3 * v, p)),
    "dead_axis": ("scale", lambda i, v, p: (v * [0, 1, 1], p)),
    "bias": ("bias", lambda i, v, p: (v + np.array([3e-6, 0.0, 0.0]), p)),
    "noise": ("white", noisy(1e-6)),
    "delay": ("delay", late(6)),
    "gross": ("gross", loose),
}


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """Good robots, then one of each fault, all read."""
    folder, paths = tmp_path_factory.mktemp("table"), []
    spoilt = {f"robot{i}": None for i in range(GOOD)} | {
        name: spoil for name, (_, spoil) in FAULTS.items()
    }
    for i, (name, spoil) in enumerate(spoilt.items()):
        shift = 0.07 * (i if i < GOOD else 1.5)
        write_drive(
            folder / name,
            lanes(shift, 2, 2.5),
            1000.0 * (i + 1),
            rate=20.0,
            seed=i,
            noise=0.2e-6,
            spoil=spoil,
        )
        paths.append(str(folder / name))
    return read_bags(LocalEngine(), paths, SETTINGS, {}, most=90)


def some(bags, which):
    """Some of the bags."""
    columns = {
        f.name: [getattr(bags, f.name)[i] for i in which]
        for f in fields(bags)
        if isinstance(getattr(bags, f.name), list) and f.name != "warnings"
    }
    return replace(bags, **columns)


def table(bags, which):
    chosen, settings = some(bags, which), SETTINGS.map
    engine = LocalEngine()
    made = map_bags(engine, chosen, agreed_by(chosen, settings), settings)
    return table_of(engine, chosen, made)


def test_nobody_is_named_in_a_good_fleet(bags):
    found = table(bags, range(GOOD))
    assert found["mend"] == [] and "no robot of these 4 lies far" in text_of(found)[-1]
    for row in found["table"]:
        assert (
            abs(row["gain"] - 1.0) < 0.02
            and abs(row["bias"]) < 0.2
            and row["noise"] == pytest.approx(0.22, abs=0.1)
        )


@pytest.mark.parametrize("fault", FAULTS)
def test_the_robot_that_is_wrong_is_found(bags, fault):
    number = GOOD + list(FAULTS).index(fault)
    found = table(bags, [*range(GOOD), number])
    figure, bag = FAULTS[fault][0], bags.jobs[number].bag
    assert {one["bag"] for one in found["mend"]} == {bag}, found["mend"]
    assert figure in {one["figure"] for one in found["mend"]}
    row = next(row for row in found["table"] if row["bag"] == bag)
    line = next(line for line in text_of(found) if line.startswith(bag))
    assert "*" in line and len(found["table"]) == GOOD + 1
    # the others' figures are as without it: it is not in the map that they are compared with
    if FAULTS[fault][0] in ("scale", "bias"):
        assert row["left_out"] and "without the cells of " + bag in "\n".join(text_of(found))
        for other in found["table"][:GOOD]:
            assert abs(other["gain"] - 1.0) < 0.03 and abs(other["bias"]) < 0.4, other
    truth = {
        "scale": ("gain", 1.3, 0.1),
        "bias": ("bias", 1.8, 0.6),
        "delay": ("delay", -0.3, 0.08),
    }
    if fault in truth:
        name, value, within = truth[fault]
        usual = found["usual"][name] if name != "gain" else 0.0
        assert row[name] - usual == pytest.approx(value, abs=within)


@pytest.mark.parametrize("good", [1, 2])
def test_of_two_or_three_robots_nobody_can_tell_which_one_is_wrong(bags, good):
    found = table(bags, [*range(good), GOOD])
    (said,) = found["notes"]
    assert found["mend"] == [] and not any(row["left_out"] for row in found["table"])
    assert f"{good + 1} robots with ground in common, where they do not read alike (scale " in said
    assert "nobody can tell which one is wrong" in text_of(found)[-1]
    assert "no robot of these" not in "".join(text_of(found))


def test_two_robots_that_read_alike_are_said_to(bags):
    found = table(bags, [0, 1])
    assert found["mend"] == [] and "where they read alike" in found["notes"][0]


def test_check_with_workers_prints_the_table(bags, tmp_path, capsys):
    words = [
        *(bags.jobs[i].bag for i in (0, 1, 2, GOOD)),
        str(tmp_path / "nowhere"),
        "--workers",
        "1",
        "--calibration-cells",
        "60",
        *(word for name, value in STARTS.items() for word in ("--set", f"{name}={value}")),
    ]
    assert cli.main(["check", *words, "--output", str(tmp_path / "out"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((tmp_path / "out" / "report.json").read_text())
    assert len(result["table"]) == 4 and result["mend"][0]["figure"] == "failed"
    assert bags.jobs[GOOD].bag in {one["bag"] for one in result["mend"]}

    assert cli.main(["check", *words[:3], "--workers", "1", "--against", "x"]) == 2
    assert "--against" in capsys.readouterr().err
