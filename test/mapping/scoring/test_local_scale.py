"""The local scale: 1 far away and without scores, the scores' own size where there are many, bounded, resumable."""

import numpy as np
import pytest
import torch
from survey_paths import even, waves

from gp_mapping import MapSettings, Samples
from gp_mapping.mapping.scoring import local_scale
from gp_mapping.mapping.scoring.local_scale import LocalScale, ScaleOfGrid
from gp_mapping.mapping.session import MapSession


def scored(n=4000, seed=0, size=6.0):
    """Scores of twice the stated sd on the left half, half of it on the right."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, size, (n, 2))
    return x, np.where(x[:, 0] < size / 2, 4.0, 0.25) * rng.normal(size=n) ** 2


def test_one_without_scores_and_far_from_them():
    scale = LocalScale(0.3)
    assert (scale.scale_at(np.zeros((3, 2))) == 1.0).all() and scale.scale_at(
        np.zeros((0, 2))
    ).shape == (0,)
    scale.add([[0.0, 0.0]] * 50, [9.0] * 50)
    assert scale.scale_at([[50.0, 0.0]])[0] == 1.0
    assert scale.scale_at([[0.0, 0.0]])[0] > 3.0


def test_follows_what_the_scores_say_of_a_place():
    scale = LocalScale(0.3)
    scale.add(*scored())
    left, right = scale.scale_at([[1.5, 3.0], [1.0, 2.0]]), scale.scale_at([[4.5, 3.0], [5.0, 2.0]])
    assert (2.0 < left).all() and (left < 6.0).all() and (0.2 < right).all() and (right < 0.8).all()


def test_honest_scores_leave_the_stddev_alone():
    rng = np.random.default_rng(1)
    scale = LocalScale(0.3)
    scale.add(rng.uniform(0, 6, (4000, 2)), rng.normal(size=4000) ** 2)
    assert np.abs(np.sqrt(scale.scale_at(rng.uniform(0.5, 5.5, (200, 2)))) - 1.0).mean() < 0.12


def test_is_the_formula():
    """Against the sum over bins, written out."""
    scale = LocalScale(1.0)
    x, square = np.array([[0.2, 0.3], [0.6, 0.1], [1.5, 0.5]]), np.array([4.0, 1.0, 9.0])
    scale.add(x, square)
    at = np.array([0.9, 0.2])
    bins = [(x[:2].mean(0), 0.4, 0.2 * 5.0), (x[2], 0.2, 0.2 * 9.0)]
    kernel = [np.exp(-((at - b[0]) ** 2).sum() / 2) - np.exp(-9 / 2) for b in bins]
    expected = (5 + sum(k * b[2] for k, b in zip(kernel, bins))) / (
        5 + sum(k * b[1] for k, b in zip(kernel, bins))
    )
    assert scale.scale_at(at[None])[0] == pytest.approx(expected, rel=1e-12)


def test_is_continuous_across_bins():
    """On a fine line: of a tenth of the step, a tenth of the change, without jumps where bins end."""
    scale = LocalScale(0.3)
    scale.add(*scored())
    x = np.arange(2.5, 3.5, 2e-4)
    fine = scale.scale_at(np.stack([x, np.full(len(x), 2.5)], 1))
    changes = [np.abs(np.diff(of)).max() for of in (fine, fine[::10])]
    assert changes[0] < 0.11 * changes[1], changes
    # at the kernel's end it is as it is beyond
    alone = LocalScale(0.3)
    alone.add([[0.0, 0.0]] * 50, [9.0] * 50)
    near, end, beyond = alone.scale_at([[0.899, 0.0], [0.9 - 1e-9, 0.0], [0.9, 0.0]])
    assert near > 1.0 and end == pytest.approx(1.0, abs=1e-8) and beyond == 1.0


def test_a_grid_shows_what_is_asked_for_point_by_point():
    scale = LocalScale(0.3)
    scale.add(*scored())
    xs, ys = np.arange(-1, 7, 0.02) + 0.01, np.arange(0, 5, 0.02) + 0.01
    drawn = ScaleOfGrid().scale_of_cells(scale, xs, ys)
    assert drawn.shape == (len(ys), len(xs))
    rng = np.random.default_rng(2)
    i, j = rng.integers(0, len(ys), 300), rng.integers(0, len(xs), 300)
    asked = scale.scale_at(np.stack([xs[j], ys[i]], 1))
    assert np.abs(np.sqrt(drawn[i, j] / asked) - 1).max() < 0.01
    assert ScaleOfGrid().scale_of_cells(scale, xs[:1], ys[:1]).shape == (1, 1)
    xs = 2.7 + 0.005 * np.arange(
        121
    )  # asked for at every tenth cell, and a straight line between them
    np.testing.assert_allclose(
        ScaleOfGrid().scale_of_cells(scale, xs, ys[150:151])[0],
        np.interp(xs, xs[::10], scale.scale_at(np.stack([xs[::10], np.full(13, ys[150])], 1))),
        1e-6,
    )


def test_a_grid_that_is_kept_is_what_one_made_anew_is(monkeypatch):
    """Whatever changes κ: scores, a full table, another robot's scores, forgetting, loading, or a factor everywhere."""
    monkeypatch.setattr(local_scale, "_BINS", 150)
    scale, kept, rng = LocalScale(0.3), ScaleOfGrid(), np.random.default_rng(5)
    xs, ys = np.arange(-1, 7, 0.05), np.arange(0, 5, 0.05)
    other = LocalScale(0.3)
    other.add(rng.uniform(0, 5, (30, 2)), rng.uniform(0, 9, 30))
    happen = {
        60: lambda: scale.join(other),
        120: lambda: scale.forget_near([2.0, 2.0], 0.7),
        180: lambda: scale.load_state_dict(other.state_dict()),
        240: lambda: setattr(scale, "everywhere", 1.3),
    }
    for step in range(300):
        x = 2.5 + 2.4 * np.array([np.sin(0.05 * step), np.cos(0.081 * step)])
        scale.add([x] * (1 + step % 3), rng.uniform(0, 25, 1 + step % 3))
        happen.get(step, lambda: None)()
        if step % 7 == 0 or step in happen:
            np.testing.assert_allclose(
                kept.scale_of_cells(scale, xs, ys),
                ScaleOfGrid().scale_of_cells(scale, xs, ys),
                rtol=1e-6,
            )
    scale.add(rng.uniform(0, 5, (1000, 2)), rng.uniform(0, 9, 1000))  # more than are told apart
    np.testing.assert_allclose(
        kept.scale_of_cells(scale, xs, ys), ScaleOfGrid().scale_of_cells(scale, xs, ys), rtol=1e-6
    )
    np.testing.assert_allclose(
        kept.scale_of_cells(scale, xs[3:], ys),
        ScaleOfGrid().scale_of_cells(scale, xs[3:], ys),
        rtol=1e-6,
    )


def test_a_score_is_looked_up_where_it_counts_and_only_once(monkeypatch):
    scale, kept, asked = LocalScale(0.3), ScaleOfGrid(), []
    scale.add(*scored())
    xs, ys = np.arange(-10, 10, 0.05), np.arange(-10, 10, 0.05)
    everywhere = kept.scale_of_cells(scale, xs, ys)
    real = LocalScale.scale_at
    monkeypatch.setattr(
        LocalScale, "scale_at", lambda self, x: asked.append(len(x)) or real(self, x)
    )
    assert np.array_equal(kept.scale_of_cells(scale, xs, ys), everywhere) and not asked
    scale.add([[1.0, 1.0]], [9.0])
    assert not np.array_equal(kept.scale_of_cells(scale, xs, ys), everywhere)
    assert sum(asked) < 0.02 * len(xs) * len(ys), "a square of six widths, not the grid"


def test_at_a_few_places_it_is_what_it_is_at_all(monkeypatch):
    """To the bit, also where there are no bins, and in whatever order the bins have come."""
    scale, rng = LocalScale(0.3), np.random.default_rng(3)
    scale.add(rng.uniform(0, 60, (5000, 2)), rng.uniform(0, 9, 5000))
    places = rng.uniform(-5, 65, (400, 2))
    alone = np.concatenate([scale.scale_at(x[None]) for x in places])
    monkeypatch.setattr(local_scale, "_TOGETHER", 60)
    assert np.array_equal(alone, scale.scale_at(places))
    other, state = LocalScale(0.3), scale.state_dict()
    other.load_state_dict(state | {"bins": state["bins"].flip(0)})
    assert np.array_equal(alone, other.scale_at(places))
    assert np.count_nonzero(alone == 1.0) > 10 and scale.scale_at([[500.0, 0.0]])[0] == 1.0


def test_what_changed_is_forgotten_and_old_scores_fade():
    scale = LocalScale(0.3)
    scale.add([[0.1, 0.1]] * 2000, [25.0] * 2000)
    scale.add([[5.0, 5.0]] * 100, [4.0] * 100)
    scale.add([[0.1, 0.1]] * 1000, [1.0] * 1000)
    assert scale.scale_at([[0.1, 0.1]])[0] < 1.1, (
        "scores of long ago weigh no more than the bin's bound"
    )
    elsewhere = scale.scale_at([[5.0, 5.0]])[0]
    scale.forget_near([5.0, 5.0], 0.5)
    assert elsewhere > 2.0 and scale.scale_at([[5.0, 5.0]])[0] == 1.0


def test_bounded_and_resumed_exactly():
    scale = LocalScale(0.1)
    x = np.stack([np.arange(30000) * 0.2, np.zeros(30000)], 1)
    scale.add(x, np.ones(30000))
    assert len(scale) == 20000
    again = LocalScale(9.0)
    again.load_state_dict(scale.state_dict())
    assert (again.scale_at(x[-50:]) == scale.scale_at(x[-50:])).all()
    assert torch.equal(again.state_dict()["bins"], scale.state_dict()["bins"])


def test_two_maps_scores_are_those_of_one_that_saw_both():
    """Also where both have scored, and each has its own."""
    x, score = scored(600)
    whole, left, right = (LocalScale(0.3) for _ in range(3))
    mine = np.arange(600) % 3 > 0
    mine[x[:, 1] < 2.0], mine[x[:, 1] > 4.0] = True, False
    for scale, rows in ((whole, mine), (whole, ~mine), (left, mine), (right, ~mine)):
        scale.add(x[rows], score[rows])
    left.join(right)
    assert len(left) == len(whole)
    places = np.random.default_rng(2).uniform(0, 6, (100, 2))
    assert left.scale_at(places) == pytest.approx(whole.scale_at(places), rel=1e-9)
    assert np.abs(left.scale_at(places) - right.scale_at(places)).max() > 0.5


def test_bins_that_both_have_fade_to_the_heaviest_that_may_be():
    """W and Z by the formula: of a bin of both that is too heavy, all shrinks by one factor."""
    one, other = LocalScale(1.0), LocalScale(0.4)
    one.add(np.full((90, 2), 0.25), np.full(90, 4.0))  # 18 of the 20 that a bin may weigh
    one.add([[3.5, 0.5]], [1.0])
    other.add(np.full((60, 2), 0.3), np.full(60, 0.5))
    other.add([[3.6, 0.5], [7.5, 7.5]], [2.0, 3.0])
    one.join(other)
    rows = sorted(one.sums())
    full = 20.0 / (18.0 + 12.0)
    expected = [
        [0.2, 0.2 * 3.0, 0.2 * 7.5, 0.2 * 7.5],
        [0.4, 0.2 * 3.0, 0.2 * 7.1, 0.2 * 1.0],
        [20.0, full * (18 * 4.0 + 12 * 0.5), full * (18 * 0.25 + 12 * 0.3), full * (4.5 + 3.6)],
    ]
    assert np.allclose(rows, sorted(expected))


def test_a_rough_stretch_is_known_on_the_first_metres():
    """Two lanes, smooth on the left and rough on the right, before hyper-parameters have settled."""
    x = even(
        torch.tensor([[0.0, 0.0], [8.0, 0.0], [8.0, 0.6], [0.0, 0.6]], dtype=torch.float64),
        step=0.02,
    )
    smooth, rough = waves(2.0, 3), waves(0.3, 4)
    y = 45.0 + 5.0 * smooth(x) + 5.0 * (x[:, :1] > 4.0) * rough(x)
    y = y + 0.2 * torch.randn(
        len(x), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5)
    )
    session = MapSession(MapSettings(field_scale=1.0, heading_stddev=0.0))
    session.ingest(Samples(x, y, stamp=torch.arange(len(x), dtype=torch.float64) / 20.0))
    assert session.map.learning_steps < 60
    left, right = (float(session.local_scale_at([[at, 0.3]])[0]) for at in (2.0, 6.0))
    assert right > 1.2 * left and left < 1.0, (left, right)


def test_it_is_active_where_it_changes_any_variance():
    scale = LocalScale(0.3)
    assert not scale.is_active
    scale.everywhere = 2.0
    assert scale.is_active
    scale.everywhere = 1.0
    scale.add([[0.0, 0.0]], [1.0])
    assert scale.is_active
