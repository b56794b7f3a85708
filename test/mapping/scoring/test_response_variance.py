"""What an uncertain time constant adds to the variance: the square of what the mean changes by."""

import math

import numpy as np
import torch
from slow_sensor import drive

from gp_mapping.core.types import Samples
from gp_mapping.mapping.moving import move_session
from gp_mapping.mapping.scoring import response_slopes
from gp_mapping.mapping.scoring.response_slopes import ResponseSlopes
from gp_mapping.mapping.scoring.response_variance import ResponseVariance
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.sensors import map_settings_for
from gp_mapping.store.checkpoint import load_checkpoint, save_checkpoint

DEVIATION = 0.1


def mapped(tau, deviation=DEVIATION, seed=1, count=320):
    """A map with a time constant that is given, and said to be uncertain."""
    settings = MapSettings(
        lengthscale=2.0,
        signal_stddev=1.5,
        noise_stddev=0.05,
        constant_stddev=4.5,
        learn_hyperparameters=False,
        local_scale=False,
        model="exact",
        response_time=tau,
        learn_response_time="never",
    )
    session = MapSession(map_settings_for("temperature", settings))
    response = session.response
    response.step, response.deviation = 0.4, deviation
    response.length, response.signal = 2.0, 1.5**2
    # as a map begins that has found it
    session.shown.slow = ResponseVariance(
        ResponseSlopes(*response.uncertainty, session.settings.kernel)
    )
    session.ingest(drive(seed, 3.0)[:count])
    session.flush()
    return session


def places():
    """In the part of the area that is driven."""
    x = torch.rand(200, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return x * torch.tensor([8.0, 3.0])


def added(session, x):
    """Standard deviation by the time constant."""
    own, told = session.slow, session.predict(x).variance
    session.shown.slow = ResponseVariance(ResponseSlopes(0.0, 2.0, 2.25, "matern52"))
    more = told - session.predict(x).variance
    session.shown.slow = own
    return more[:, 0].clamp_min(0.0).sqrt()


def test_it_is_what_the_mean_changes_by():
    """Against maps of the same drive with other time constants."""
    x, h = places(), 0.02
    low, high = (mapped(3.0 * math.exp(s * h), 0.0).predict(x).mean[:, 0] for s in (-1, 1))
    change = (high - low) / (2 * h)
    session = mapped(3.0)
    told = torch.from_numpy(session.slow.own.at(x.numpy()))
    assert change.square().mean().sqrt() > 0.3
    assert (told - change).square().mean() < 0.1 * change.square().mean()
    assert torch.allclose(added(session, x), DEVIATION * told.abs(), atol=1e-6)


def test_a_drawing_has_it_too():
    """As predictions have it at its cells."""
    session = mapped(3.0)
    grid, sure = session.render(), mapped(3.0, 0.0).render()
    rows, columns = (torch.arange(0, n, 15).double() for n in grid.mean.shape)
    x = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1).reshape(-1, 2)
    x = torch.tensor(grid.origin) + grid.resolution * (x + 0.5)
    drawn, without = (
        torch.as_tensor(g.stddev, dtype=torch.float64)[::15, ::15].reshape(-1) for g in (grid, sure)
    )
    more = (drawn.square() - without.square()).clamp_min(0.0).sqrt()
    expected = added(session, x)
    assert expected.max() > 0.05
    assert (more - expected).abs().max() < 0.01


def test_it_fades_away_from_what_was_driven():
    """Nothing is added where nothing was measured."""
    session = mapped(3.0)
    far = torch.tensor([[40.0, 40.0]], dtype=torch.float64)
    assert float(session.slow.own.at(far.numpy())[0]) == 0.0


def test_a_saved_map_has_it(tmp_path):
    """To the bit, and what is measured afterwards counts in both."""
    whole = mapped(3.0)
    half = mapped(3.0, count=200)
    assert half.slow.own.at(places().numpy()).any()
    file = save_checkpoint(tmp_path / "map.gpm", half.state_dict())
    half = MapSession.from_state_dict(load_checkpoint(file))
    whole = mapped(3.0, count=200)
    for each in (half, whole):
        each.ingest(drive(1, 3.0)[200:320])
    assert torch.equal(half.predict(places()).variance, whole.predict(places()).variance)


def test_it_moves_with_the_map():
    """Into another frame."""
    before = added(mapped(3.0), places())
    session = move_session(mapped(3.0), 30.0, -20.0, math.pi / 2)
    turned = torch.stack([30.0 - places()[:, 1], -20.0 + places()[:, 0]], 1)
    after = added(session, turned)
    # squares lie elsewhere
    assert (after - before).abs().max() < 0.2 * before.max()


def test_another_map_brings_its_own():
    """Two sensors err independently."""
    one, other = mapped(3.0), mapped(3.0, seed=2)
    alone = [added(each, places()) for each in (one, other)]
    one.merge(other)
    together = torch.hypot(*alone)
    assert torch.allclose(added(one, places()), together, atol=1e-6)


def test_at_a_place_it_is_what_a_drawing_has_there():
    """Both are linear between the nodes, whatever a lengthscale is in metres."""
    rng = np.random.default_rng(0)
    for length in (0.5, 200.0):
        slopes = ResponseSlopes(0.1, length, 1.0, "matern52")
        for k, (x, y) in enumerate(length * rng.uniform(-1.0, 1.0, (40, 2))):
            row = {"sensor_variance": [0.01], "response_slope": [math.sin(k)]}
            slopes.add(Samples([[x, y]], [[0.0]], **row))
        xs, ys = (np.sort(length * rng.uniform(-1.2, 1.2, n)) for n in (9, 7))
        told = slopes.at(np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2)).reshape(7, 9)
        assert np.abs(told).max() > 0.3
        np.testing.assert_allclose(told, slopes.of_cells(xs, ys), atol=1e-12)


def test_what_is_kept_is_bounded(monkeypatch):
    """The longest unvisited square is dropped first, and counted; D changes there alone."""
    monkeypatch.setattr(response_slopes, "_SQUARES", 50)
    slopes = ResponseSlopes(0.1, 1.0, 1.0, "matern52")
    for i in range(80):
        cell = Samples([[0.2 * i, 0.0]], [[0.0]], sensor_variance=[0.01], response_slope=[1.0])
        slopes.add(cell)
        slopes.at(torch.tensor([[0.2 * i, 0.0], [0.0, 0.0]]).numpy())
    assert slopes.count == 50 and slopes.forgotten == 30
    first, last = slopes.at(torch.tensor([[0.0, 0.0], [15.0, 0.0]]).numpy())
    assert first == 0.0 and abs(last - 1.0) < 0.1
    again = ResponseSlopes.restored(slopes.state_dict())
    assert again.at(torch.tensor([[15.0, 0.0]]).numpy())[0] == last


def test_a_time_constant_that_is_certain_adds_nothing():
    """As one that was given."""
    session = mapped(3.0, 0.0)
    assert not session.slow.is_active
    assert float(added(session, places()).max()) < 1e-9


def test_a_square_says_the_mean_of_all_that_it_was_told():
    """In whatever order, by their weights."""
    means = []
    for slopes in ((1.0, 4.0), (4.0, 1.0)):
        held = ResponseSlopes(0.1, 1.0, 1.0, "matern52")
        for slope in slopes:
            variance = [0.01 if slope == 1.0 else 0.02]
            place, value = [[0.02, 0.02]], [[0.0]]
            held.add(Samples(place, value, sensor_variance=variance, response_slope=[slope]))
        assert held.count == 1
        means.append(float(held.at(torch.tensor([[0.02, 0.02]]).numpy())[0]))
    assert means[0] == means[1] and abs(means[0] - 2.0) < 0.1
