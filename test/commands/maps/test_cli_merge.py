"""`gp-mapping merge`: the sum of maps is the map of all recordings, and what cannot be added is refused."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from small_drive import field, lanes, write_drive

from gp_mapping import cli
from gp_mapping.analysis.digits import decimals
from gp_mapping.commands.merge.command import _lateness
from gp_mapping.commands.merge.text import summary
from gp_mapping.settings.team import transforms_of
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint
from gp_mapping.store.trial import tried_session

HELD = [
    "learn_hyperparameters=false",
    "learn_time_offset=false",
    "heading_stddev=0.0",
    "follow_changes=false",
    "robust=false",
    "lengthscale=0.7",
    "signal_stddev=8e-6",
    "noise_stddev=3e-7",
    "constant_stddev=3e-5",
    "cell_length=0.2",
    "local_scale=false",
    "inducing_information=0",
    "inducing_tolerance=1e-5",
    "predictive_noise=false",
]
SETTINGS = [word for setting in HELD for word in ("--set", setting)]


def mapped(folder, name, *bags, settings=SETTINGS):
    assert (
        cli.main(
            ["map", *map(str, bags), "--output", str(folder / name), "--suggest", "0", *settings]
        )
        == 0
    )
    return folder / name


def opened(folder):
    return tried_session(load_checkpoint(folder / "map.gpm"), folder / "map.gpm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teams")
    write_drive(folder / "a", lanes(count=3))
    write_drive(folder / "b", lanes(0.9, count=3), 2000.0, seed=1)
    mapped(folder, "of_a", folder / "a")
    mapped(folder, "of_b", folder / "b")
    return folder


def test_the_sum_is_the_map_of_both_bags(folder, capsys):
    """Given θ, and with every cell remembered; what differs is which inducing inputs were chosen (tolerance 1e-5)."""
    both = opened(mapped(folder, "both", folder / "a", folder / "b"))
    capsys.readouterr()
    assert (
        cli.main(
            ["merge", str(folder / "of_a"), str(folder / "of_b"), "--output", str(folder / "sum")]
        )
        == 0
    )
    printed = capsys.readouterr().out
    added = opened(folder / "sum")
    # of a sum, in its file and its report, and none of the settings
    assert added.report()["budget"] == 4 * added.settings.max_inducing
    places = torch.from_numpy(np.random.default_rng(0).uniform([-0.3, -0.3], [2.3, 2.0], (200, 2)))
    p, q = added.predict(places), both.predict(places)
    assert float(((p.mean - q.mean).abs() / q.stddev).max()) < 0.01
    assert float((p.stddev / q.stddev - 1).abs().max()) < 0.02
    mine, its = added.report(), both.report()
    for name in ("samples", "cells", "passes"):
        assert (
            mine[name] == its[name]
            and f"{mine[name]} {name.replace('samples', 'measurements')}" in printed
        )
    assert mine["path_length"] == pytest.approx(its["path_length"], rel=0.02)
    assert (
        added.render().origin == both.render().origin
        and added.render().shape == both.render().shape
    )
    report = json.loads((folder / "sum" / "report.json").read_text())
    assert [row["cells"] for row in report["maps"]] == [
        opened(folder / n).cell_count for n in ("of_a", "of_b")
    ]
    # what the maps had, and what the sum has
    lines = printed.splitlines()
    head = next(line for line in lines if line.endswith("the sum"))
    assert head.split() == ["of_a", "of_b", "the", "sum"]
    assert (
        next(line for line in lines if line.startswith("lengthscale m")).split()[2:]
        == ["0.700"] * 3
    )
    reads = next(line for line in lines if line.startswith("offset from those before µT"))
    assert len([word for word in reads.split() if word == "–"]) == 2  # of the first, of the sum
    assert sum("; frame " in line for line in lines) == 2
    assert (folder / "sum" / "map.png").is_file() and report["hyperparameters_of"] in printed


def test_a_map_of_another_frame_is_carried_into_the_first(folder, capsys):
    """As if its poses had been in that frame all along."""
    yaw, shift = 2.2, np.array([30.0, -12.0])
    turn = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])

    def elsewhere(i, vector, place):
        return vector, np.append(turn.T @ (place[:2] - shift), 0.0)

    write_drive(folder / "b_elsewhere", lanes(0.9, count=3), 2000.0, seed=1, spoil=elsewhere)
    there = mapped(folder, "of_b_elsewhere", folder / "b_elsewhere")
    assert (
        cli.main(
            ["merge", str(folder / "of_a"), str(folder / "of_b"), "--output", str(folder / "here")]
        )
        == 0
    )
    assert (
        cli.main(
            [
                "merge",
                str(folder / "of_a"),
                str(there),
                "--transform",
                f"{there.name}=30,-12,2.2",
                "--output",
                str(folder / "carried"),
            ]
        )
        == 0
    )
    carried, here = opened(folder / "carried"), opened(folder / "here")
    places = torch.from_numpy(np.random.default_rng(0).uniform([-0.3, -0.3], [2.3, 2.0], (200, 2)))
    p, q = carried.predict(places), here.predict(places)
    assert float(((p.mean - q.mean).abs() / q.stddev).max()) < 0.02
    assert float((p.stddev / q.stddev - 1).abs().max()) < 0.02
    assert carried.report()["path_length"] == pytest.approx(here.report()["path_length"], rel=0.01)
    assert np.abs(carried.path.numpy().min(0) - here.path.numpy().min(0)).max() < 0.2

    capsys.readouterr()
    for transform, words in (
        ("nowhere=1,2,3", "is none of the maps"),
        (f"{there.name}=1,2", "expected a map and x"),
        (f"{there.name}=1,2,nan", "expected a map and x"),
        ("1,2,3", "expected a map and x"),
        (f"{there.name}=4,5,6", "has one already"),
        (f"{there.name}=1e9,0,0", "farther than 1e+08 m"),
    ):
        given = [f"{there}=1,2,3"] if "already" in words else []
        assert (
            cli.main(
                [
                    "merge",
                    str(folder / "of_a"),
                    str(there),
                    *(word for text in [*given, transform] for word in ("--transform", text)),
                    "--output",
                    str(folder / "none"),
                ]
            )
            == 2
        )
        error = capsys.readouterr().err
        assert (
            words in error
            and len(error.strip().splitlines()) == 1
            and not (folder / "none").exists()
        )


def test_delays_that_differ_are_said_and_settled(folder, capsys):
    late = mapped(folder, "late", folder / "b", settings=[*SETTINGS, "--set", "time_offset=0.2"])
    capsys.readouterr()
    assert (
        cli.main(["merge", str(folder / "of_a"), str(late), "--output", str(folder / "settled")])
        == 0
    )
    printed = capsys.readouterr().out
    assert "0.2 s late" in printed and _lateness(-0.2) == "0.2 s early"
    delays = next(line for line in printed.splitlines() if line.startswith("time_offset s"))
    assert delays.split()[3] == "0.200"


def test_places_of_sensors_that_differ_are_said_and_settled(folder, capsys):
    """Each map knows its sensor's place on the robot: cells lie where their own sensor was."""
    state = load_checkpoint(folder / "of_b" / "map.gpm")
    state["map"]["theta"] = state["map"]["theta"] | {"lever_arm_along": 0.2}
    save_checkpoint(folder / "arm" / "map.gpm", state)
    seen = []
    for name in ("of_b", "arm"):
        capsys.readouterr()
        words = [str(folder / "of_a"), str(folder / name), "--output", str(folder / "placed")]
        assert cli.main(["merge", *words]) == 0
        said = "sits 0.2 m from where that of" in capsys.readouterr().out
        assert said == (name == "arm")
        seen.append(opened(folder / "placed").memory)
    apart = (seen[1] - seen[0]).norm(dim=1)
    mine, its = (opened(folder / name).cell_count for name in ("of_a", "of_b"))
    assert len(apart) == mine + its
    assert sorted(apart.tolist()) == pytest.approx(mine * [0.0] + its * [0.2], abs=0.02)


def test_maps_of_fields_of_another_smoothness_get_one_kernel(folder, capsys):
    """What is remembered is taken in again: the sum is that of maps with that kernel, to .1 sd."""
    smooth = mapped(
        folder, "smooth", folder / "b", settings=[*SETTINGS, "--set", "kernel=matern72"]
    )
    capsys.readouterr()
    for name in ("smooth", "of_b"):
        words = [str(folder / "of_a"), str(folder / name), "--output", str(folder / f"{name}_sum")]
        assert cli.main(["merge", *words]) == 0
        said = f"the kernel of {smooth}/map.gpm was matern72" in capsys.readouterr().out
        assert said == (name == "smooth")
    one, other = (opened(folder / f"{name}_sum") for name in ("smooth", "of_b"))
    assert one.started_settings.kernel == "matern52" and one.cell_count == other.cell_count
    x = torch.cat([one.memory, one.memory + 0.2])
    one, other = one.predict(x), other.predict(x)
    assert float(((one.mean - other.mean) / other.stddev).abs().max()) < 0.1
    assert float((one.stddev / other.stddev).log().abs().max()) < 0.1


def test_another_kernel_and_another_delay_are_both_settled(folder, capsys):
    other = ["kernel=matern72", "time_offset=0.2"]
    words = [word for each in other for word in ("--set", each)]
    late = mapped(folder, "late_smooth", folder / "b", settings=[*SETTINGS, *words])
    capsys.readouterr()
    assert cli.main(["merge", str(folder / "of_a"), str(late), "--output", str(folder / "x")]) == 0
    printed = capsys.readouterr().out
    assert "was matern72" in printed and f"the sensor of {late}/map.gpm is 0.2 s late" in printed


def test_the_sum_of_exact_maps_is_exact(folder):
    """But for the weights of the second bag's cells: the white noise in them is told from the cells before."""
    exact = [*SETTINGS, "--set", "model=exact"]
    parts = [mapped(folder, f"exact_{name}", folder / name, settings=exact) for name in ("a", "b")]
    both = opened(mapped(folder, "exact_both", folder / "a", folder / "b", settings=exact))
    assert (
        cli.main(["merge", *map(str, parts), "--output", str(folder / "exact_sum"), "--json"]) == 0
    )
    places = 2.0 * torch.rand(
        (50, 2), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    p, q = (session.predict(places) for session in (opened(folder / "exact_sum"), both))
    assert float(((p.mean - q.mean).abs() / q.stddev).max()) < 0.01
    assert float((p.stddev / q.stddev - 1).abs().max()) < 0.01


def test_maps_that_forget_are_brought_to_one_time(folder, capsys):
    """As the map of both bags, in which the first one has faded while the second was measured."""
    fading = [*SETTINGS, "--set", "model=exact", "--set", "forgetting_time=600"]
    parts = [
        mapped(folder, f"fading_{name}", folder / name, settings=fading) for name in ("a", "b")
    ]
    both = opened(mapped(folder, "fading_both", folder / "a", folder / "b", settings=fading))
    capsys.readouterr()
    assert cli.main(["merge", *map(str, parts), "--output", str(folder / "fading_sum")]) == 0
    assert "s before the newest of these maps" in capsys.readouterr().out
    added, first = opened(folder / "fading_sum"), opened(parts[0])
    places = torch.from_numpy(np.random.default_rng(0).uniform([-0.3, -0.3], [2.3, 2.0], (50, 2)))
    p, q, alone = (session.predict(places) for session in (added, both, first))
    assert float(((p.mean - q.mean).abs() / q.stddev).max()) < 0.01
    assert float((p.stddev / q.stddev - 1).abs().max()) < 0.01
    stamps = [session.newest_stamp for session in (first, added)]
    assert stamps[1] == opened(parts[1]).newest_stamp and first.age(stamps[1]) < 0.3
    assert float((first.predict(places).stddev / alone.stddev).max()) > 1.3


def test_with_everything_learned_the_sum_knows_both_places(folder, capsys):
    """θ differs; the one with more cells keeps its own, and the map goes on with other bags afterwards."""
    write_drive(folder / "long", lanes(count=5), seed=3)
    learned = [
        mapped(folder, name, folder / bag, settings=["--set", "cell_length=0.2"])
        for name, bag in (("la", "long"), ("lb", "b"))
    ]
    capsys.readouterr()
    assert (
        cli.main(
            ["merge", *map(str, reversed(learned)), "--output", str(folder / "lsum"), "--json"]
        )
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["hyperparameters_of"] == str(folder / "la" / "map.gpm")
    # each value of both maps, as it stands in the report, and that of the sum
    la, lb = (next(r for r in result["maps"] if f"/{n}/" in r["file"]) for n in ("la", "lb"))
    assert la["newest_pass"] < lb["newest_pass"] and lb["reads"] == lb["apart"]["values"][0]
    printed = summary(result, opened(folder / "lsum")).splitlines()
    turns = next(line for line in printed if line.startswith("turns with the robot µT"))
    own = [decimals(1e6 * part["turning"]) for part in (lb, la, result)]
    assert turns.split()[5:] == own
    constants = next(line for line in printed if line.startswith("constants of the passes"))
    assert "la " in constants and "lb " in constants and constants.count("±") >= 2
    merged, parts = opened(folder / "lsum"), [opened(part) for part in learned]
    for corners, own in ((lanes(count=5), parts[0]), (lanes(0.9, count=3), parts[1])):
        x = torch.from_numpy(np.concatenate([np.linspace(a, b, 9) for a, b in pairwise(corners)]))
        truth = field(x[:, 0].numpy(), x[:, 1].numpy())
        error, alone = (
            float(np.sqrt(((s.predict(x).mean[:, 0].numpy() - truth) ** 2).mean()))
            for s in (merged, own)
        )
        assert error < 1.2 * alone + 0.05e-6, (error, alone)
    before = merged.cell_count
    assert (
        cli.main(
            [
                "map",
                str(folder / "a"),
                "--output",
                str(folder / "more"),
                "--resume",
                str(folder / "lsum" / "map.gpm"),
                "--suggest",
                "0",
            ]
        )
        == 0
    )
    assert opened(folder / "more").cell_count > before


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["of_a"], "expected two or more"),
        (["of_a", "of_a"], "given twice"),
        (["of_a", "copy"], "copies of one map"),
        (["of_a", "warm"], "field_unit"),
        (["of_a", "exact"], "model"),
        (["of_a", "nowhere"], "nowhere"),
        (["of_a", "elsewhere"], "add --allow-frame-change"),
        (["of_a", "elsewhere"], "--transform elsewhere=x,y,yaw"),
        (["nameless", "of_a", "elsewhere"], "add --allow-frame-change"),
        (["of_a", "axis"], "only maps of one quantity"),
    ],
)
def test_what_cannot_be_added_is_one_line(folder, capsys, arguments, words):
    if "copy" in arguments:
        shutil.copytree(folder / "of_a", folder / "copy")
    if "exact" in arguments:
        mapped(folder, "exact", folder / "b", settings=[*SETTINGS, "--set", "model=exact"])
    changed = {
        "warm": ("settings", "field_unit", "degC"),
        "elsewhere": ("about", "frame", "hall"),
        "nameless": ("about", "frame", ""),
        "axis": ("about", "quantity", "magnetic_field, x"),
    }
    for name in changed.keys() & set(arguments):
        state = load_checkpoint(folder / "of_b" / "map.gpm")
        part, key, value = changed[name]
        state[part] = state[part] | {key: value}
        for held in ("recordings", "measured"):  # else two of them were maps of one bag
            state["about"].pop(held)
        save_checkpoint(folder / name / "map.gpm", state)
    capsys.readouterr()
    assert (
        cli.main(
            ["merge", *(str(folder / name) for name in arguments), "--output", str(folder / "none")]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert (
        words in error and len(error.strip().splitlines()) == 1 and not (folder / "none").exists()
    )


def test_sensors_that_do_not_read_alike_are_said(folder, tmp_path, capsys):
    """Tuesday's reads 1.2 µT more where both have been; what is said of two that read alike is nothing."""
    for name, more in (("alike", 0.0), ("apart", 2e-6)):
        write_drive(
            tmp_path / name,
            lanes(0.1, count=3),
            5000.0,
            seed=2,
            spoil=lambda i, v, p, more=more: (v + np.array([more, 0.0, 0.0]), p),
        )
        there = mapped(tmp_path, f"of_{name}", tmp_path / name)
        capsys.readouterr()
        words = ["--output", str(tmp_path / f"sum_{name}"), "--json"]
        assert cli.main(["merge", str(folder / "of_a"), str(there), *words]) == 0
        result = json.loads(capsys.readouterr().out)
        said = [text for text in result["warnings"] if "do not read alike" in text]
        (row,) = [row for row in result["maps"] if "apart" in row]
        assert row["apart"]["places"] > 20
        assert row["apart"]["values"][0] == pytest.approx(0.6 * more, abs=0.1e-6)
        assert len(said) == (more > 0)
    assert said[0].startswith(f"{row['file']} reads +1.")


def test_maps_whose_frames_do_not_lie_as_is_said_contradict_each_other(folder, capsys):
    """b was measured 0.9 m beside a: moved back onto a it is another field there; in its place it is none."""
    for transform, contradicts in ((None, False), ("of_b=0.3,-0.9,0.0", True)):
        words = ["--output", str(folder / "frames"), "--json"]
        words += [] if transform is None else ["--transform", transform]
        maps = [str(folder / name) for name in ("of_a", "of_b")]
        assert cli.main(["merge", *maps, *words]) == 0
        result = json.loads(capsys.readouterr().out)
        said = [text for text in result["warnings"] if "contradicts what it is added to" in text]
        assert len(said) == contradicts
    (row,) = [row for row in result["maps"] if "apart" in row]
    assert row["apart"]["ratios"][0] > 3.0 and "do not lie as is said" in said[0]


@pytest.mark.parametrize("transform", ["of_b=1,2", "of_b=1,2,nan", "of_b=1,2,45"])
def test_a_transform_is_three_numbers_and_its_angle_in_radians(folder, capsys, transform):
    """45 was taken for 45 rad, seven turns and 58°: a wrong sum without a word."""
    maps = [str(folder / name) for name in ("of_a", "of_b")]
    words = ["--output", str(folder / "turned"), "--transform", transform]
    assert cli.main(["merge", *maps, *words]) == 2
    assert "(metres, radians: 45° are 0.785)" in capsys.readouterr().err
    with pytest.raises(ValueError, match="radians: 45° are 0.785"):
        transforms_of(transform.replace(",", " "))
