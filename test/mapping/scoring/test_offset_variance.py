"""What a time offset that is not known does to what a map says of its field."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from gp_mapping.core.registry import create_map
from gp_mapping.core.types import Samples
from gp_mapping.mapping.scoring import offset_variance
from gp_mapping.mapping.scoring.offset_variance import KeptVelocity, OffsetVariance
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings

UT = 1e-6
RATE, SPEED, LATE = 20.0, 0.5, 0.2  # Hz, m/s, s


def field_at(x: torch.Tensor) -> torch.Tensor:
    """A smooth field (N, 1), tesla."""
    a, b = 2.3 * x[:, :1], 2.9 * x[:, 1:2]
    return UT * (48.0 + 8.0 * torch.sin(a) * torch.cos(b) + 4.0 * torch.sin(1.3 * a + b))


def road(length: float = 9.0, back: bool = False) -> torch.Tensor:
    """(N, 2) places on a way that winds, and on request the same way back."""
    x = torch.arange(0.0, length, SPEED / RATE, dtype=torch.float64)
    there = torch.stack([x, 0.6 * torch.sin(0.8 * x)], 1)
    return torch.cat([there, there.flip(0)]) if back else there


def driven(x: torch.Tensor, late: float, seed: int = 0) -> Samples:
    """What a robot measures whose stamps are `late`."""
    velocity = torch.gradient(x, spacing=1 / RATE, dim=0)[0]
    noise = torch.randn(
        len(x), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    stamps = torch.arange(len(x), dtype=torch.float64) / RATE
    return Samples(x, field_at(x - late * velocity) + 0.3 * UT * noise, stamp=stamps)


def mapped(x: torch.Tensor, late: float = 0.0, **settings) -> MapSession:
    session = MapSession(MapSettings(**settings))
    session.ingest(driven(x, late))
    session.finish()
    return session


@pytest.fixture(scope="module")
def late_road() -> MapSession:
    return mapped(road(), LATE)


def covered(session: MapSession, x: torch.Tensor) -> float:
    told = session.predict(x)
    size = (field_at(x) - told.mean).abs() / told.variance.sqrt()
    return float((size <= 1.96).double().mean())


def test_a_road_driven_once_does_not_tell_whether_stamps_are_late_and_the_map_says_so(late_road):
    """A shift along the way changes nothing that the robot can see. Without it .5 of the road is covered."""
    x = road()[10:-10]
    assert covered(late_road, x) > 0.9
    told = late_road.predict(x)
    alone = late_road.map.predict(x).variance
    sure = replace(late_road.map.learned(), offset_variance=0.0)
    late_road.map.learned = lambda: sure
    try:
        assert covered(late_road, x) < 0.7
    finally:
        del late_road.map.learned
    assert float((told.variance / alone).median()) > 2.0


def test_what_the_robot_measures_on_the_same_way_is_late_by_as_much(late_road):
    """It passes at the same velocity, so nothing is added; in the other direction twice as much."""
    x = road()[20:-20]
    velocity = torch.gradient(road(), spacing=1 / RATE, dim=0)[0][20:-20]
    added = OffsetVariance.of(late_road.map, late_road.noise_variance)
    still = late_road.map.predict(x)
    at = x + added.offset * velocity  # so that all three ask for the field at x

    field, same, back = (
        added.widened(still, place, way).variance - still.variance
        for place, way in ((x, None), (at, velocity), (x - added.offset * velocity, -velocity))
    )
    assert float(same.mean()) < 0.02 * float(field.mean())
    assert float((back.sqrt() / field.sqrt()).median()) == pytest.approx(2.0, abs=0.1)


def test_what_is_added_is_what_another_offset_does_to_the_map():
    """Two maps of the same cells, whose offsets differ by .04 s: their difference over .04 s."""
    x = road()
    offsets, maps = (-0.02, 0.02), []
    velocity = torch.gradient(x, spacing=1 / RATE, dim=0)[0]
    batch = replace(driven(x, 0.0), velocity=velocity)
    for offset in offsets:
        fixed = {"lengthscale": 0.7, "signal_stddev": 8 * UT, "noise_stddev": 0.3 * UT}
        field = create_map(
            "dual_svgp", time_offset=offset, learn_hyperparameters=False, max_inducing=300, **fixed
        )
        field.update(batch)
        maps.append(field)

    beside = x[20:-20] + torch.tensor([0.0, 0.15], dtype=torch.float64)
    exact = (maps[1].predict(beside).mean - maps[0].predict(beside).mean) / (2 * 0.02)

    believed = replace(maps[0].learned(), offset_variance=0.01)
    maps[0].learned = lambda: believed
    added = OffsetVariance.of(maps[0], UT**2)
    still = maps[0].predict(beside)
    found = added.widened(still, beside, None).variance - still.variance
    wrong = found.sqrt() / 0.1 - exact.abs()
    assert float(wrong.square().mean().sqrt()) < 0.15 * float(exact.square().mean().sqrt())


def test_lanes_in_both_directions_cancel_a_shift():
    """Where two passes go opposite ways the mean of a map hardly moves with δ."""
    session = mapped(road(4.0, back=True), learn_hyperparameters=False, lengthscale=0.7)
    believed = replace(session.map.learned(), offset_variance=0.01)
    session.map.learned = lambda: believed
    added = OffsetVariance.of(session.map, session.noise_variance)
    mean_speed = np.linalg.norm(added.velocity_at(road(4.0)[10:-10].numpy()), axis=1)
    assert mean_speed.max() < 0.1 * SPEED


def test_a_drawing_shows_what_is_predicted(late_road):
    """At the places of cells whose neighbours are known: within a few per cent of the stddev."""
    grid = late_road.render()
    rows, columns = grid.known.nonzero().T
    x = torch.stack(
        [grid.origin[k] + (i + 0.5) * grid.resolution for k, i in ((0, columns), (1, rows))], 1
    )
    told = late_road.predict(x).stddev[:, 0]
    drawn = grid.stddev[rows, columns].to(told)
    assert float((drawn / told - 1.0).abs().mean()) < 0.02
    alone = late_road.map.predict(x).stddev[:, 0]
    assert float((told / alone).quantile(0.9)) > 1.2, "δ is most of it where it is uncertain"


def test_lanes_leave_nothing_to_add():
    """Where δ is known to milliseconds, where it is not learned, and before the first cell."""
    assert OffsetVariance.of(MapSession(MapSettings()).map, UT**2) is None
    session = mapped(road(3.0), learn_time_offset=False)
    assert OffsetVariance.of(session.map, session.noise_variance) is None
    known = replace(session.map.learned(), offset_variance=1e-8)
    session.map.learned = lambda: known
    assert OffsetVariance.of(session.map, session.noise_variance) is None


def test_a_map_that_has_not_taken_over_an_offset_knows_how_far_it_is_off():
    """Var about the map's own δ: that about the learned one, and the square between both."""
    session = mapped(road(3.0), learn_time_offset=False, time_offset=0.1)
    known = session.map.learned()
    other = replace(known, theta=replace(known.theta, time_offset=0.3), offset_variance=0.01)
    session.map.learned = lambda: other
    added = OffsetVariance.of(session.map, session.noise_variance)
    assert added.variance == pytest.approx(0.01 + 0.2**2) and added.offset == 0.1

    # each sample counts where the sensor was when it measured
    places, velocity = (part.numpy() for part in session.map.remembered_motion())
    assert np.allclose(added.samples, np.concatenate([places - 0.1 * velocity, velocity], 1))


def test_far_from_the_path_nothing_is_added(late_road):
    far = torch.tensor([[4.0, 6.0], [-7.0, 0.0]], dtype=torch.float64)
    added = OffsetVariance.of(late_road.map, late_road.noise_variance)
    assert not added.velocity_at(far.numpy()).any()
    still = late_road.map.predict(far)
    assert added.widened(still, far, None) is still


def test_a_vector_has_the_variance_of_a_common_shift():
    """All components of one place are wrong together: the norm's variance is that of b̂·c."""
    from gp_mapping.mapping.drawing.vector import excess_of, norm

    mean = np.array([[3.0, 1.0], [4.0, -2.0], [0.0, 2.0]])
    common = np.array([[0.2, -0.1], [0.3, 0.2], [-0.5, 0.4]])
    along = (mean * common).sum(0) / np.linalg.norm(mean, axis=0)
    of = [torch.from_numpy(part) for part in (mean, common)]
    deviation = norm(of[0], of[1] ** 2, excess_of(*of))[1].numpy()
    assert deviation == pytest.approx(np.abs(along)) and math.isfinite(deviation.sum())


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("count", [4, 5, 9])
def test_a_slope_is_exact_of_a_quartic_but_near_the_ends_and_of_few_cells(axis, count):
    places = 0.3 * np.arange(count) - 1.0
    values = np.broadcast_to(places**4, (2, 3, count))
    values = values if axis == 2 else values.transpose(0, 2, 1)
    slope = offset_variance._slope(torch.tensor(values), places, axis)  # noqa: SLF001
    slope = slope.movedim(axis, 2).numpy()
    plain = np.broadcast_to(np.gradient(places**4, places), (2, 3, count))
    inner = slice(2, -2) if count > 4 else slice(0, 0)
    np.testing.assert_allclose(
        slope[..., inner],
        4.0 * np.broadcast_to(places[inner] ** 3, slope[..., inner].shape),
        atol=1e-12,
    )
    ends = [i for i in range(count) if not (count > 4 and 2 <= i < count - 2)]
    np.testing.assert_allclose(slope[..., ends], plain[..., ends])


class Counting(OffsetVariance):
    """Counts the nodes at which it is asked."""

    asked = 0

    def velocity_at_nodes(self, nodes):
        Counting.asked += len(nodes)
        return super().velocity_at_nodes(nodes)


def test_a_drawing_computes_velocities_anew_only_near_samples_that_came_or_went():
    """What is kept equals what is computed from nothing, also of a second sample like another."""
    generator, axis, kept = np.random.default_rng(3), np.arange(0.0, 8.0, 0.1), KeptVelocity()
    samples = np.concatenate(
        [generator.uniform(0.0, 8.0, (60, 2)), generator.normal(size=(60, 2))], 1
    )
    near_one = (2 * 0.6 / 0.1 + 1) ** 2  # nodes within 3 h = ℓ of a sample along both axes

    def drawn(rows: np.ndarray, length: float = 0.6, offset: float = 0.0) -> int:
        shift = Counting(None, 1e-4, offset, length, cKDTree(rows[:, :2]), rows[:, 2:])
        before, Counting.asked = Counting.asked, 0
        found, asked = kept.at(shift, axis, axis), Counting.asked
        assert np.allclose(found, KeptVelocity().at(shift, axis, axis), rtol=0, atol=1e-14)
        Counting.asked = before
        return asked

    assert drawn(samples) == 80**2
    assert drawn(samples) == 0
    assert drawn(samples[generator.permutation(60)]) == 0
    came = np.concatenate([samples, [[4.0, 4.0, 1.0, -1.0]]])
    assert 0 < drawn(came) <= near_one
    assert 0 < drawn(np.concatenate([came, came[-1:]])) <= near_one
    assert 0 < drawn(samples) <= near_one  # both have gone
    assert 0 < drawn(samples[1:]) <= near_one
    assert drawn(samples, length=0.5) == 80**2 and drawn(samples, offset=0.01, length=0.5) == 80**2


def test_a_coarse_drawing_of_large_ground_has_no_more_nodes_than_cells():
    """They were .1 m apart whatever the cells: of 7 km a save asked for 42 GiB, of one the system killed the node."""
    axis = np.linspace(-500.0, 1500.0, 40)
    for nodes, between in KeptVelocity().around(axis, axis[:20], 0.1):
        assert np.array_equal(nodes, axis[: len(nodes)]) and np.array_equal(between @ nodes, nodes)
    (nodes, between), _ = KeptVelocity().around(axis, axis, 200.0)
    assert len(nodes) < len(axis) and np.allclose(between @ nodes, axis)
