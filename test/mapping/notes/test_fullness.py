"""A map whose budget does not suffice says so, and what mends it."""

import functools

import torch

from gp_mapping.core.types import Samples
from gp_mapping.mapping.notes.fullness import full_budget_note, fullness_notes, inputs_line
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.health import Health
from gp_mapping.runtime.worker_results import Status
from gp_mapping.settings.mapping import MapSettings

UT = 1e-6


@functools.cache
def reported(max_inducing: int) -> dict:
    """Of 57 m of ways over 12 m² of a rough field."""
    session = MapSession(
        MapSettings(
            lengthscale=0.5,
            signal_stddev=10 * UT,
            noise_stddev=0.2 * UT,
            constant_stddev=30 * UT,
            learn_hyperparameters=False,
            learn_time_offset=False,
            max_inducing=max_inducing,
            tiles=False,
            cell_length=0.2,
        )
    )
    t = torch.arange(0, 40, 0.04, dtype=torch.float64)
    x = torch.stack([2 + 2 * torch.cos(0.7 * t), 1.5 + 1.5 * torch.sin(1.1 * t)], 1)
    y = UT * (45 + 8 * torch.sin(5 * x[:, :1]) * torch.cos(4 * x[:, 1:]))
    noise = 0.2 * UT * torch.randn(len(t), 1, generator=torch.Generator().manual_seed(0)).double()
    session.ingest(Samples(x, y + noise, stamp=t + 1))
    session.flush()
    return session.report()


def test_a_budget_that_spoils_the_map_is_said_with_the_setting_that_mends_it():
    thin, enough = (reported(m) for m in (40, 1000))
    assert thin["budget_full"] > 0 and enough["budget_full"] == 0
    assert thin["prior_left"] > 10 * enough["prior_left"]
    assert enough["inputs_per_square_lengthscale"] > 2.5 > thin["inputs_per_square_lengthscale"]
    assert full_budget_note(enough) is None
    assert "max_inducing" in full_budget_note(thin) and "40" in full_budget_note(thin)
    # all of it together: nothing, one sentence, and what is left out before it
    assert fullness_notes(enough) == [] and fullness_notes(thin) == [full_budget_note(thin)]
    both = fullness_notes(thin | {"left_out": 7})
    assert "7 cells or measurements are left out" in both[0] and both[1:] == fullness_notes(thin)


def test_so_is_one_that_smooths_what_was_measured_though_its_inputs_lie_close():
    """Beyond three standard deviations of the noise; a full map that leaves hardly anything out is not."""
    full = reported(140)
    assert full["budget_full"] > 0 and full["inputs_per_square_lengthscale"] > 2.5
    assert "smooths what was measured" in full_budget_note(
        full
    ) and "raise max_inducing" in full_budget_note(full)
    noise = full["noise_stddev"] / full["hyperparameters"]["signal_stddev"]
    assert "times that of the noise" in full_budget_note(full | {"prior_left": 9.1 * noise**2})
    assert full_budget_note(full | {"prior_left": 8.9 * noise**2}) is None


def test_the_inputs_of_many_tiles_stand_beside_the_budget_of_each():
    """Their sum was said to be so many of the budget of one."""
    one = reported(40)
    assert inputs_line(one).startswith(f"inducing inputs {one['inducing']} of 40, ")
    many = one | {"tiles": 6, "tiles_in_memory": 4, "inducing": 87}
    said = "inducing inputs 87 in 4 tiles of at most 40 each; where the robot is, "
    assert inputs_line(many).startswith(said)
    assert "tile where the robot is gets coarser: " in full_budget_note(many)
    assert inputs_line(one | {"budget_full": 0}) is None


def test_diagnostics_say_it():
    status = Status(
        made=0.0,
        report=reported(40),
        received={},
        used=40,
        drops={},
        explanations={},
        warnings=[],
        waiting=0,
        last_stamp=None,
        queue=0,
        counts={},
    )
    areas = Health(5.0).areas(
        now=0.0,
        status=status,
        watches=[],
        paused=False,
        notes=[],
        limits=None,
        published=0,
        stamp_age=None,
        queue=0,
    )
    area = next(a for a in areas if a.name == "map")
    assert area.level == 1 and "raise max_inducing" in area.message


FULL = {
    "budget_full": True,
    "budget": 60,
    "inducing": 58,
    "inputs_per_square_lengthscale": 2.5,
    "prior_left": 0.3,
    "noise_stddev": 2.0,
    "hyperparameters": {"signal_stddev": 12.0},
}
LOST = "up to 30 % of the prior variance left where it was measured"


def test_each_bound_of_what_is_said_of_a_full_budget():
    full = "the budget of 60 inducing inputs is full and the map"
    smooths = (
        f"{full} smooths what was measured: {LOST}, 11 times that of the noise; raise max_inducing"
    )
    assert full_budget_note(FULL) == smooths and fullness_notes(FULL) == [smooths]
    for little in ({"prior_left": 0.25}, {"noise_stddev": None}, {"hyperparameters": {}}):
        assert full_budget_note(FULL | little) is None, "nine times that of the noise is well"
    assert full_budget_note(FULL | {"prior_left": 0.2501})
    assert "up to 90 %" in full_budget_note(FULL | {"prior_left": 0.9})
    for other in ({"budget_full": False}, {"inputs_per_square_lengthscale": None}):
        assert full_budget_note(FULL | other) is None
    thin = FULL | {"inputs_per_square_lengthscale": 2.4}
    assert full_budget_note(thin) == (
        f"{full} gets coarser everywhere: 2.4 inputs for each square of a lengthscale that was driven over "
        f"(2.5 are the least), {LOST}; raise max_inducing"
    )
    assert "everywhere" in full_budget_note(thin | {"tiles": 1})
    tiled = full_budget_note(thin | {"tiles": 2})
    assert "everywhere" not in tiled and "tile where the robot is gets coarser: 2.4" in tiled


def test_what_a_full_map_leaves_out_is_said_before_what_it_smooths():
    left = {"left_out": 7}
    said = "the map is full: 7 cells or measurements are left out; raise max_exact_samples, or take another model"
    assert fullness_notes(left) == [said] and fullness_notes({"left_out": 0}) == []
    assert fullness_notes(FULL | left) == [said, full_budget_note(FULL)]
    (tiled,) = fullness_notes(left | {"tiles": 3})
    assert (
        "7 cells or measurements on ground beyond its 3 tiles are left out; raise max_tiles"
        in tiled
    )


def test_how_densely_inputs_lie_is_said_of_a_budget_that_was_full():
    each = f"2.5 for each square of a lengthscale, at most {LOST.removeprefix('up to ').replace('30', '30.0')}"
    assert inputs_line(FULL) == f"inducing inputs 58 of 60, {each}"
    tiled = FULL | {"tiles": 2, "tiles_in_memory": 2}
    assert inputs_line(tiled) == (
        f"inducing inputs 58 in 2 tiles of at most 60 each; where the robot is, {each}"
    )
    assert inputs_line(FULL | {"budget_full": False}) is None
    assert inputs_line({k: v for k, v in FULL.items() if k != "prior_left"}) is None
