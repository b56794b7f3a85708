"""What a map says of its robot: right, with standard deviations that hold, and honest about what it cannot know."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from simulated import Robot, mapped, survey

from benchmark.calibration.biases import World
from benchmark.calibration.biases import mapped as crossed
from gp_mapping import Samples, create_map
from gp_mapping.analysis.calibration import calibration_report
from gp_mapping.analysis.robot_evidence import neighbourhoods

UT = 1e-6


@pytest.fixture(scope="module")
def lagging():
    """δ = .2 s, a bias of 1.5 µT ahead, correlated noise; and the same drive without the bias."""
    robot = Robot(delay=0.2, bias=1.5 * UT, correlated=0.3 * UT)
    mapping = survey(robot, 0)
    return mapping, survey(replace(robot, bias=0.0), 0), mapped(mapping)


@pytest.fixture(scope="module")
def said(lagging):
    """What the map of that drive says, which no test changes."""
    return calibration_report(lagging[2].map)


def test_finds_the_delay_and_says_so(said):
    c = said
    assert abs(c.offset - 0.2) < 3 * c.offset_stddev, c  # which is some .015 s
    assert 0.0005 < c.offset_stddev < 0.02 and c.offset_stddev <= c.offset_stddev_free
    assert c.has_offset and not c.offset_assumed
    assert "lags the pose by 0.1" in c.sentences()[0] or "lags the pose by 0.2" in c.sentences()[0]
    assert all(math.isfinite(v) for v in c.as_dict().values() if isinstance(v, float))


def test_what_turns_is_what_the_bias_adds(lagging, said):
    """The drive with the bias minus the drive without it, regressed on the heading."""
    mapping, plain, _ = lagging
    truth = np.linalg.lstsq(
        mapping.heading.numpy(), (mapping.y - plain.y).numpy()[:, 0], rcond=None
    )[0]
    c = said
    found = c.turning * np.array([math.cos(c.direction), math.sin(c.direction)])
    assert c.has_body_field and "turns with the robot" in " ".join(c.sentences())
    assert np.linalg.norm(found - truth) < max(
        0.25 * np.linalg.norm(truth), 4 * c.turning_stddev
    ), (found, truth, c)


def test_a_held_lever_arm_is_reported_as_assumed(said):
    c = said
    assert c.lever_assumed and c.along == 0.0 and c.across == 0.0
    assert 1e-4 < c.across_stddev < 0.02 and c.along_stddev > c.across_stddev, (
        "along trades with the delay"
    )
    assert not c.separable and c.correlation > 0.9 and "only their sum" in " ".join(c.sentences())
    assert abs(c.lag - 0.2 * c.speed) < 3 * c.lag_stddev and c.lag_stddev < 0.006, (
        "the sum is known"
    )


def test_nothing_is_reported_where_nothing_is_wrong():
    c = calibration_report(mapped(survey(Robot(correlated=0.3 * UT), 1)).map)
    assert not c.has_offset and abs(c.offset) < 0.02, c
    assert not c.has_body_field and not c.has_lever_arm, c
    assert "no offset is seen" in c.sentences()[0] and "nothing is seen that turns" in " ".join(
        c.sentences()
    )


def test_what_is_switched_off_is_called_assumed():
    session = mapped(
        survey(Robot(delay=0.2), 2)[:2000], learn_time_offset=False, heading_stddev=0.0
    )
    c = calibration_report(session.map)
    assert c.offset_assumed and c.turning_assumed and c.offset_in_use == 0.0
    assert "is assumed, not learned" in c.sentences()[0] and "assumed absent" in " ".join(
        c.sentences()
    )
    assert abs(c.offset - 0.2) < 0.06, "the data say where it would be"


def test_a_lever_arm_to_the_left_is_found():
    session = mapped(survey(Robot(arm=(0.0, 0.05)), 3), learn_lever_arm=True)
    c = calibration_report(session.map)
    assert abs(c.across - 0.05) < 0.015 and c.has_lever_arm, c
    assert not c.lever_assumed and any("sits" in text for text in c.sentences())


def test_the_exact_map_has_a_calibration_too(lagging):
    cells = mapped(lagging[0][:1000], model="exact")
    c, sparse = calibration_report(cells.map), calibration_report(mapped(lagging[0][:1000]).map)
    assert abs(c.offset - sparse.offset) < 0.05 and c.samples == sparse.samples
    assert abs(c.turning - sparse.turning) < 0.5 * UT


def test_an_empty_map_is_told_to_drive_on():
    with pytest.raises(RuntimeError, match="at least 5"):
        calibration_report(create_map("dual_svgp"))


def test_neighbourhoods_are_disjoint_and_bounded():
    x = 5 * torch.rand(1800, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocks = neighbourhoods(x)
    together = torch.cat(blocks)
    assert (
        len(blocks) == 8
        and len(together.unique()) == len(together)
        and max(map(len, blocks)) <= 250
    )


def test_what_turns_unevenly_is_a_systematic_error_of_the_shift(lagging, said):
    """A fifth of what turns, over the field's rms slope s √(5/3)/ℓ: at least that much is said of every shift."""
    session = lagging[2]
    theta, c = session.map.current_map.theta, said
    shift = (
        0.2
        * c.turning
        / session.map.current_map.scale
        * theta.lengthscale
        / (theta.signal_stddev * math.sqrt(5 / 3))
    )
    assert c.has_body_field and shift > 5e-4
    assert c.offset_stddev >= shift / c.speed and c.along_stddev >= shift and c.lag_stddev >= shift


def passes(constants, late: int = 4) -> list[Samples]:
    """Crossing passes of a drawn field, whose stamps are so many samples (1/20 s) late, with a constant each."""
    out = []
    for drive, constant in zip(World(0.0, len(constants), 2.4, 2.0).drives(0)[0], constants):
        ahead = torch.diff(drive.x, dim=0)
        heading = (ahead / ahead.norm(dim=1, keepdim=True).clamp_min(1e-9))[late - 1 :]
        x, y = drive.x[late:], drive.y[:-late] + constant
        out.append(Samples(x, y, stamp=drive.stamp[late:], heading=heading))
    return out


def test_constants_of_passes_are_neither_a_delay_nor_what_turns():
    """A drive without what turns: told apart from constants that are a dozen times the noise."""
    known = {"lengthscale": 0.6, "signal_stddev": 10 * UT, "noise_stddev": 0.3 * UT}
    known |= {"bias_stddev": 4 * UT, "heading_stddev": UT, "learn_time_offset": False}
    drives = passes((4 * UT, -4 * UT, 3 * UT))
    session = crossed(drives, model="exact", learn_hyperparameters=False, **known)
    c = calibration_report(session.map)
    assert abs(c.offset - 0.2) < 0.03 and c.offset_stddev < 0.05, c
    assert not c.has_body_field and c.turning < 0.3 * UT, c
