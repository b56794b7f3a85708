"""The hull of the path: against a judge that measures distances, for lines and single places, and as the one policy."""

import numpy as np
import pytest
import torch
from scipy.spatial import Delaunay

from gp_mapping import Samples
from gp_mapping.commands.saved import next_places
from gp_mapping.mapping.session import MapSession
from gp_mapping.planning.hull import grown_hull, inside_convex, within_hull
from gp_mapping.planning.offer import offer
from gp_mapping.runtime.surveying.suggester import Suggester
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings

X, Y = np.arange(-1.0, 6.0, 0.1), np.arange(-2.0, 5.0, 0.1)
CENTRES = np.stack(np.meshgrid(X, Y), -1)  # (H, W, 2)


def distance_to_hull(places, points):
    """Slow and sure: 0 inside, else the distance to the nearest edge; of points in a line, to what joins its ends."""
    places, points = (
        places.reshape(-1, 2),
        np.unique(points, axis=0),
    )  # in order: first and last, ends of a line
    flat = np.linalg.matrix_rank(points - points.mean(0), tol=1e-9) < 2
    edges = [(0, len(points) - 1)] if flat else Delaunay(points).convex_hull
    best = np.full(len(places), np.inf)
    for a, b in points[np.asarray(edges)]:
        d = b - a
        t = np.clip((places - a) @ d / max(d @ d, 1e-300), 0, 1)
        best = np.minimum(best, np.linalg.norm(places - a - t[:, None] * d, axis=1))
    if not flat:
        best[Delaunay(points).find_simplex(places) >= 0] = 0.0
    return best


PATHS = {
    "lanes": np.array([[0, 0], [4, 0], [4, 1], [0, 1], [0, 2], [4, 2.5]], float),
    "line": np.stack([np.linspace(0, 3, 50), np.linspace(0, 1.5, 50)], 1),
    "place": np.array([[2.0, 1.0]] * 9),
    "two": np.array([[0.0, 0.0], [3.0, 3.0]]),
    "level": np.stack([np.linspace(0, 3, 50), np.zeros(50)], 1),
    "cloud": np.random.default_rng(0).normal(2.0, 1.0, (40, 2)),
}


@pytest.mark.parametrize("beyond", [0.2, 1.0])
@pytest.mark.parametrize("name", PATHS)
def test_the_grown_hull_is_what_lies_near(name, beyond):
    path = PATHS[name]
    inside = inside_convex(grown_hull(path, beyond), X, Y)
    away = distance_to_hull(CENTRES, path).reshape(inside.shape)
    assert inside[away <= 0.99 * beyond].all() and not inside[away > beyond + 1e-9].any()


def test_the_far_corner_of_the_world_keeps_its_digits():
    path = PATHS["lanes"] + 1e6
    assert np.array_equal(
        within_hull(path, X + 1e6, Y + 1e6, 0.37), within_hull(PATHS["lanes"], X, Y, 0.37)
    )


@pytest.mark.parametrize(("away", "inside"), [(0.0005, True), (0.002, False), (0.5, False)])
def test_a_grid_of_one_cell_has_no_spacing(away, inside):
    told = within_hull([[3.0 + away, 4.0]], np.array([3.0]), np.array([4.0]), 0.0)
    assert told.shape == (1, 1) and bool(told[0, 0]) is inside


def test_a_pose_that_leapt_away_does_not_stretch_the_hull():
    path = np.concatenate([PATHS["lanes"], [[1100.0, 900.0]]])
    assert np.array_equal(within_hull(path, X, Y, 0.0), within_hull(PATHS["lanes"], X, Y, 0.0))
    assert not within_hull([[1100.0, 900.0]], X, Y, 0.0).any()


@pytest.mark.parametrize(
    "path, beyond", [([[np.nan, 0.0]], 0.1), ([], 0.1), ([[0.0, 0.0]], 0.0), ([[0.0, 0.0]], np.inf)]
)
def test_what_has_no_hull_is_said(path, beyond):
    with pytest.raises(ValueError, match="expected finite places"):
        grown_hull(path, beyond)


# near what the field is: to find starts takes the first cells in again and again
STARTS = {
    "lengthscale": 0.8,
    "signal_stddev": 5e-6,
    "noise_stddev": 0.3e-6,
    "constant_stddev": 15e-6,
}


@pytest.fixture(scope="module")
def driven():
    """An L: the corner opposite to it was never seen, and lies in the drawn window."""
    session = MapSession(MapSettings(resolution=0.1, margin=1.0, max_inducing=80, **STARTS))
    t = torch.linspace(0, 1, 120, dtype=torch.float64)
    x = torch.cat([torch.stack([4 * t, 0 * t], 1), torch.stack([4 + 0 * t, 3 * t], 1)])
    session.ingest(
        Samples(x, 45e-6 + 5e-6 * torch.sin(2 * x[:, 0]), stamp=torch.arange(240.0).double() * 0.1)
    )
    session.flush()
    return session, session.render()


@pytest.mark.parametrize("kind", ["gain_per_metre", "variance"])
@pytest.mark.parametrize("beyond", [0.0, 0.5])
def test_live_and_offline_are_one_policy(driven, kind, beyond):
    """The same settings give the same places; those of the defaults are those of a node as it is started."""
    session, grid = driven
    settings = NodeSettings(suggestion_kind=kind, suggestion_margin=beyond)
    live = Suggester(settings)
    found = live(session, grid, tuple(session.path[-1].tolist()), None, "odom")
    saved = next_places(session, grid, 5, settings)
    assert [(s.x, s.y, s.score) for s in found] == [(s.x, s.y, s.score) for s in saved] and len(
        found
    ) == 5
    assert saved.kind == kind
    away = distance_to_hull(found.positions.numpy(), session.path.numpy())
    assert away.max() <= max(beyond, grid.resolution) + 1e-9
    assert "hull of the path" in live.obstacles and live.note == ""
    assert distance_to_hull(CENTRES, session.path.numpy()).max() > 1.0, (
        "the judge itself sees places beyond"
    )


@pytest.mark.parametrize("kind", ["gain_per_metre", "variance"])
def test_a_pose_that_leapt_away_sends_no_robot_there(kind):
    """A kilometre away, and near enough to be drawn with the room: nobody drove there, so nobody is sent."""
    t = torch.linspace(0, 1, 300, dtype=torch.float64)
    x = torch.stack([3 * t, 2 * torch.sin(9 * t).abs()], 1)
    x[100], x[200] = torch.tensor([900.0, -500.0]), torch.tensor([28.0, 1.0])
    session = MapSession(MapSettings(resolution=0.1, max_inducing=80, **STARTS))
    # a field without any noise would be known from one place to the next
    noise = torch.randn(300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = 45e-6 + 5e-6 * torch.sin(2 * x[:, 0]) + 1e-7 * noise
    session.ingest(Samples(x, y, stamp=torch.arange(300.0).double() * 0.1))
    session.flush()
    found = next_places(session, session.render(), 5, NodeSettings(suggestion_kind=kind))
    room = np.array([p for p in x.tolist() if p[0] < 4.0])
    assert len(found) == 5 and distance_to_hull(found.positions.numpy(), room).max() < 0.5, (
        found.positions
    )


def test_the_command_line_asks_as_a_node_does_by_default(driven):
    session, grid = driven
    found, node = next_places(session, grid, 3), NodeSettings()
    assert found.kind == node.suggestion_kind and len(found) == 3
    assert torch.pdist(found.positions).min() >= node.suggestion_distance


def test_more_is_allowed_further_out(driven):
    session, grid = driven
    near, far = (offer(session, grid, 1, beyond=b)[0].score for b in (0.0, 1.0))
    assert far > near
