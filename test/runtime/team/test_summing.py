"""The sum of robots' maps is the map of all data, whatever the robots differ in."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from team_scene import (
    CLOSE,
    QUICK,
    difference,
    drives,
    members_of,
    messages_of,
    own_of,
    session_of,
    source_of,
    sum_of,
)

from benchmark.robots import Robot, drive, world_of
from gp_mapping.intake.sensors.setup import SETUP
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.incoming import MemoryPool, Source
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.team import SUM_BUDGETS
from gp_mapping.sim.robot import lawnmower

X = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 2.2, (80, 2)))


def test_the_sum_is_the_map_of_all_data():
    one, two = (session_of(part, **CLOSE) for part in drives())
    both = session_of(*drives(), **CLOSE)
    made = sum_of(*members_of(source_of(one), source_of(two, name="robot2")), settings=one.settings)
    assert len(made.used) == 2 and not made.failed and not made.refused and not made.notes
    assert max(difference(made.session, both, X)) < 0.1
    assert made.session.cell_count == both.cell_count and made.session.raw_count == both.raw_count
    assert made.session.report()["path_length"] == pytest.approx(both.report()["path_length"])
    # with the same inputs: as the maps themselves merge
    merged = copy.deepcopy(one)
    merged.merge(two)
    assert max(difference(made.session, merged, X)) < 1e-4


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("solve_gp", {}),
        ("fitc", {}),
        ("exact", {}),
        ("wiski", {"wiski_form": "matrix_free"}),
        ("wiski", {"wiski_form": "dense"}),
    ],
)
def test_the_sum_of_any_model(model, more):
    settings = QUICK | {"model": model} | more
    one, two = (session_of(part, **settings) for part in drives())
    made = sum_of(*members_of(source_of(one), source_of(two, name="robot2")), settings=one.settings)
    assert len(made.used) == 2, (made.failed, made.refused)
    one.merge(two)
    one.map.use_budget()
    assert max(difference(made.session, one, X)) < 0.1


@pytest.mark.parametrize("model", ["dual_svgp", "fitc"])
def test_the_sum_is_the_exact_gp_whatever_inputs_the_robots_have(model):
    """All cells are remembered: what the robots' own maps leave out is not lost for the sum."""
    settings = QUICK | {"model": model}
    one, two = (session_of(part, **settings) for part in drives())
    exact = session_of(*drives(), **(QUICK | {"model": "exact"}))
    assert max(difference(one, exact, X)) > 1.0  # of the other robot's ground, and of its own
    made = sum_of(*members_of(source_of(one), source_of(two, name="robot2")), settings=one.settings)
    assert max(difference(made.session, exact, X)) < 0.1
    assert len(made.session.map.inducing_inputs()) <= 0.8 * 2 * one.settings.max_inducing


def test_the_order_of_robots_changes_nothing_and_own_data_count_once():
    one, two = (session_of(part, **QUICK) for part in drives())
    a, b = source_of(one), source_of(two, name="robot2")
    made = sum_of(*members_of(a, b))
    again = sum_of(*members_of(b, a))
    assert torch.equal(made.session.predict(X).mean, again.session.predict(X).mean)
    alone = sum_of(own_of(one))
    assert max(difference(alone.session, one, X)) < 1e-6
    # a robot that is told to merge itself, too
    twice = sum_of(own_of(one), *members_of(a, b))
    assert len(twice.used) == 2 and [r for _, r, _ in twice.refused] == ["same_map"]
    assert twice.session.cell_count == made.session.cell_count


def test_the_robot_is_where_its_own_map_has_it():
    """Whatever the others are called, and however far they drove; of one saved map its own copy counts."""
    one, two = (session_of(part, **QUICK) for part in drives())
    for name in ("a", "z"):
        made = sum_of(*members_of(source_of(two, name=name)), own_of(one))
        assert len(made.used) == 2 and made.session.position == one.position
        areas = made.session.path_trace.extent.choose_drawn(lambda low, high: True, 0.1)[0]
        assert areas[0].place == one.position
    again = sum_of(*members_of(source_of(one, name="copy")), own_of(one))
    assert [m.own for m in again.used] == [True]
    assert [(m.name, reason) for m, reason, _ in again.refused] == [("copy", "same_map")]


def test_learned_hyperparameters_are_agreed_on():
    settings = QUICK | {
        "learn_hyperparameters": True,
        "inducing_information": 0.0,
        "max_inducing": 500,
    }
    one, two = (session_of(part, **settings) for part in drives())
    made = sum_of(*members_of(source_of(one), source_of(two, name="robot2")), settings=one.settings)
    lengths = sorted(s.map.hyperparameters()["lengthscale"] for s in (one, two))
    assert (
        lengths[0] <= made.theta["lengthscale"] * 1.05
        and made.theta["lengthscale"] <= lengths[1] * 1.05
    )
    assert len(made.used) == 2
    # it predicts what neither has seen as well as the map of both
    assert made.session.predict(X).variance.mean() < one.predict(X).variance.mean()


def test_strangers_are_refused_in_one_sentence():
    one, two = (session_of(part, **QUICK) for part in drives())
    elsewhere = session_of(drives()[1], frame="map", **QUICK)
    gas = session_of(drives()[1], quantity="gas", **QUICK)
    other = session_of(drives()[1], **(QUICK | {"anisotropy": 2.0}))
    for stranger, reason, word in (
        (elsewhere, "other_frame", "merge_transforms"),
        (gas, "other_quantity", "gas"),
        (other, "other_settings", "anisotropy"),
    ):
        made = sum_of(own_of(one), *members_of(source_of(stranger, name="robot2")), frame="odom")
        assert [r for _, r, _ in made.refused] == [reason] and word in made.refused[0][2]
        assert "\n" not in made.refused[0][2] and len(made.used) == 1
        assert max(difference(made.session, one, X)) < 1e-6
    assert (
        len(sum_of(own_of(one), *members_of(source_of(two, name="robot2")), frame="odom").used) == 2
    )


@pytest.mark.parametrize("model", ["dual_svgp", "wiski", "exact"])
def test_maps_that_found_other_kernels_are_one_map_of_that_of_most_cells(model):
    """A robot that goes on with a map of before the team: the sum is as if it had had the team's kernel."""
    settings = QUICK | {"model": model}
    smooth = settings | {"kernel": "matern92"}
    one, two = session_of(drives()[0], **settings), session_of(drives()[1], **smooth)
    assert one.cell_count > two.cell_count
    # the settings of neither robot name what it has found
    here = sum_of(
        own_of(one), *members_of(source_of(two, name="robot2")), settings=MapSettings(**settings)
    )
    there = sum_of(
        own_of(two), *members_of(source_of(one, name="robot1")), settings=MapSettings(**settings)
    )
    alike = session_of(drives()[1], **settings)
    wanted = sum_of(
        own_of(one), *members_of(source_of(alike, name="robot2")), settings=one.settings
    )
    for made in (here, there):
        assert len(made.used) == 2 and "matern92" in made.notes[0], (made.refused, made.failed)
        assert max(difference(made.session, wanted.session, X)) < 0.05
        again = MapSession.from_state_dict(copy.deepcopy(made.session.state_dict()))
        assert max(difference(again, made.session, X)) < 1e-9
        assert again.report()["kernel"] == "matern52"


def test_one_robot_with_another_kernel_than_its_settings_is_shown_as_it_is():
    two = session_of(drives()[1], **(QUICK | {"kernel": "matern92"}))
    made = sum_of(own_of(two), settings=MapSettings(**QUICK))
    assert not made.refused and not made.notes
    assert max(difference(made.session, two, X)) < 1e-6


def test_robots_may_make_inputs_in_other_ways():
    """The sum chooses its own inputs: by which rule a robot chose its own is no reason to leave it out."""
    one, part = session_of(drives()[0], **QUICK), drives()[1][:300]
    sums = []
    for own in ({}, {"inducing_information": 0.3, "inducing_tolerance": 1e-3}):
        two = source_of(session_of(part, **(QUICK | own)), name="robot2")
        sums.append(sum_of(own_of(one), *members_of(two), settings=one.settings))
        assert len(sums[-1].used) == 2, (sums[-1].failed, sums[-1].refused)
    assert max(difference(sums[1].session, sums[0].session, X)) < 0.1


@pytest.mark.parametrize(
    "own, its, words",
    [
        (
            {"likelihood": "censored", "lower_limit": 4.0e-5},
            {"lower_limit": 3.8e-5},
            "likelihood do not add up: 'censored(3.8e-05, inf)' there, 'censored(4e-05, inf)' here",
        ),
        ({"likelihood": "student_t"}, {"degrees_of_freedom": 9.0}, "('degrees', 9.0)"),
        ({}, {"threshold": 0.9, "classes": 5, "lower_limit": 3.8e-5}, ""),
    ],
)
def test_maps_of_other_likelihoods_are_of_another_kind(own, its, words):
    """Numbers of a likelihood that neither has are of no kind."""
    part = drives()[0][:150]
    one, two = (session_of(part, **(QUICK | own | more)) for more in ({}, its))
    made = sum_of(own_of(one), *members_of(source_of(two, name="robot2")), settings=one.settings)
    assert not made.failed and len(made.used) == 2 - bool(words)
    if words:
        ((_, reason, text),) = made.refused
        assert reason == "other_settings" and words in text and "\n" not in text


def test_a_map_for_which_there_is_no_room_leaves_no_trace_in_the_sum():
    """Its neighbours' paths are theirs, its constants are not agreed on, and it may be added later."""
    settings = QUICK | {"model": "exact", "max_exact_samples": 45}
    part = drives()[0]
    sessions = {
        f"robot{i}": session_of(part[cut], **settings)
        for i, cut in enumerate((slice(0, 250), slice(250, 900), slice(900, 1100)))
    }
    for name, session in sessions.items():
        session.about |= {"map_id": f"map of {name}", SETUP: {"mount": name}}
    a, b, c = (member for n, s in sessions.items() for member in members_of(source_of(s, name=n)))
    made = sum_of(a, b, c, settings=sessions["robot0"].settings)
    assert made.used == [a, c] and [(m, r) for m, r, _ in made.refused] == [(b, "not_merged")]
    assert "exceed max_exact_samples 45" in made.refused[0][2] and not made.failed
    assert len(made.touched) == 2
    for name, touched in zip(("robot0", "robot2"), made.touched):
        assert torch.equal(touched, sessions[name].path_trace.points()), name
    assert made.session.about["made_of"] == ["map of robot0", "map of robot2"]
    # they carry the sensor in different ways: another recording has no setup to go on with
    assert SETUP not in made.session.about
    # what goes on from the map that was left out is not in the sum twice
    sessions["robot2"].about["made_of"] = ["map of robot1"]
    (child,) = members_of(source_of(sessions["robot2"], name="robot2"))
    again = sum_of(a, b, child, settings=sessions["robot0"].settings)
    assert again.used == [a, child] and [m for m, *_ in again.refused] == [b]


def test_where_a_map_has_gone_or_changed_is_told_and_nowhere_else():
    one, two = (session_of(part, **QUICK) for part in drives())
    a, b = members_of(source_of(one)) + members_of(source_of(two, name="robot2"))
    both = sum_of(a, b)
    unchanged = sum_of(a, b, before=both)
    later = sum_of(replace(a, version=("later",)), b, before=both)
    without = sum_of(a, before=both)
    paths = one.path_trace.points(), two.path_trace.points()
    for made, touched in ((both, paths), (unchanged, ()), (later, paths[:1]), (without, paths[1:])):
        assert len(made.touched) == len(touched)
        assert all(torch.equal(*pair) for pair in zip(made.touched, touched))


def test_a_robot_in_another_frame_is_moved():
    one, two = (session_of(part, **QUICK) for part in drives())
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    part, shift = drives()[1], torch.tensor([5.0, 2.0], dtype=torch.float64)
    there = type(part)(
        (part.x - shift) @ turn, part.y, stamp=part.stamp, heading=part.heading @ turn
    )
    other = session_of(there, frame="map", **QUICK)
    made = sum_of(
        own_of(one),
        *members_of(source_of(other, name="robot2")),
        frame="odom",
        transforms={"robot2": (5.0, 2.0, np.pi / 2)},
    )
    assert len(made.used) == 2 and made.session.about["frame"] == "odom"
    expected = sum_of(own_of(one), *members_of(source_of(two, name="robot2")), frame="odom")
    # the turned robot's cells, and so its inputs, are the same to rounding of its path
    assert max(difference(made.session, expected.session, X)) < 0.3


def test_a_map_that_cannot_be_turned_keeps_no_other_out():
    session = session_of(drives()[0][:900], **(QUICK | {"model": "wiski"}))
    session.about["map_id"] = "of both"
    a, b = members_of(source_of(session), source_of(session, name="robot2"))
    made = sum_of(a, b, settings=session.settings, transforms={"robot1": (0.0, 0.0, 0.5)})
    assert [(m, r) for m, r, _ in made.refused] == [(a, "cannot_be_moved")] and made.used == [b]


def test_delays_that_differ_are_said_and_stay_each_robots_own():
    one = session_of(drives()[0], **QUICK)
    late = session_of(drives()[1], **(QUICK | {"time_offset": 0.3}))
    made = sum_of(*members_of(source_of(one), source_of(late, name="robot2")))
    assert len(made.notes) == 1 and "0.3 s late" in made.notes[0]
    both = source_of(session_of(drives()[0], **(QUICK | {"time_offset": 0.3})))
    assert not sum_of(*members_of(both, source_of(late, name="robot2"))).notes, "late alike"


def test_a_sensor_that_one_robot_has_found_to_be_slow_is_said_where_another_has_not():
    fast, slow = (session_of(drives()[i][:300], **QUICK) for i in (0, 1))
    slow.response.seconds, slow.response.found = 2.5, True
    both = members_of(source_of(fast), source_of(slow, name="robot2"))
    (note,) = sum_of(*both).notes
    assert "the sensor of robot2 is found" in note and "response_time: 2.5" in note
    # one that was given; one robot alone, also with its map of before a restart
    assert not sum_of(both[1]).notes and not sum_of(*members_of(source_of(fast, slow))).notes
    slow.response.found = False
    assert not sum_of(*members_of(source_of(fast), source_of(slow, name="robot2"))).notes


def test_maps_of_tiles_go_tile_by_tile():
    """Each in a message of its own, those on the shelf, too; the sum is as the maps themselves merge."""
    tiled = QUICK | {
        "max_inducing": 60,
        "memory_size": 150,
        "map_tile_side": 3.0,
        "lengthscale": 0.3,
        "cell_length": 0.2,
        "tiles_in_memory": 9,
    }
    world = world_of(3, 6.0, 3.4)
    one = session_of(drive(Robot(speed=2.0), world, lawnmower(0.4, 0.4, 5.6, 1.6, 0.4), 3), **tiled)
    two = session_of(
        drive(Robot(speed=2.0), world, lawnmower(0.4, 1.8, 5.6, 3.0, 0.4), 4, 1001.0), **tiled
    )
    assert min(one.report()["tiles"], two.report()["tiles"]) > 9 == one.report()["tiles_in_memory"]
    source = source_of(one)
    told = source.status(0.0)
    assert told["tiles"] == one.report()["tiles"] and told["received"] == told["tiles"] + 1
    messages = messages_of(one)
    for missing in (messages[0], messages[-1]):
        incomplete = Source("robot1", MemoryPool(100.0))
        for message in messages:
            if message is not missing:
                incomplete.accept(message, 0.0)
        assert not incomplete.ready(), "a map of which a tile is missing is no map"
    made = sum_of(*members_of(source, source_of(two, name="robot2")), settings=one.settings)
    for session in (one, two):
        session.map.widen_budget(SUM_BUDGETS)
    one.merge(two)
    one.map.use_budget()
    assert len(made.used) == 2 and max(difference(made.session, one, one.path[::9])) < 1e-3
    # in more than the budget of one map, and that is said
    sum_of_tiles = made.session.map
    most = max(len(tile.map.basis) for tile in sum_of_tiles.tiles.values())
    assert most <= SUM_BUDGETS * 60 == made.session.report()["budget"]
    assert made.session.settings.max_inducing == 60


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [({"frame": "map"}, "other_frame"), ({"quantity": "gas"}, "other_quantity")],
)
def test_ones_own_map_says_in_which_frame_and_of_what_the_sum_is_also_if_it_is_not_in_it(
    theirs, reason
):
    own, other = (part[:120] for part in drives())
    mine = own_of(session_of(own, **(QUICK | {"anisotropy": 2.0})))
    members = members_of(source_of(session_of(other, **theirs, **QUICK)))
    made = sum_of(mine, *members)
    assert [why for _, why, _ in made.refused] == ["other_settings", reason] and not made.used
