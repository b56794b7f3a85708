"""Driven ground that is not drawn: told by a real session whose drawings may evaluate few points."""

import torch
from nav_msgs.msg import OccupancyGrid
from ros_helpers import QUICK, NodeProcess, Peer

from gp_mapping import Samples
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.drawing_lag import DrawingLag, undrawn_share
from gp_mapping.settings.mapping import MapSettings


def lanes(session, count, start):
    t = torch.arange(count, dtype=torch.float64)
    x = torch.stack([0.1 * t % 6.0, 0.5 * torch.floor(t / 60) + start], 1)
    session.ingest(Samples(x, 45e-6 + 5e-6 * torch.sin(x[:, 0]), stamp=1000 * start + 0.1 * t))


def test_the_share_falls_as_drawings_catch_up():
    session, lag = (
        MapSession(MapSettings(resolution=0.1, max_inducing=100, learn_hyperparameters=False)),
        DrawingLag(),
    )
    lanes(session, 240, 0.0)
    grid = session.render(None)
    lag.look(session, grid, 0.0)
    assert undrawn_share(session.path, grid) < 0.02 and lag.state(0.0) == (0.0, 0.0)

    lanes(session, 480, 3.0)  # far from what is drawn
    shares = []
    for now in range(2, 2000, 2):
        grid = session.render(100)
        lag.look(session, grid, float(now))
        shares.append(lag.state(float(now)))
        if not session.renderer.points_stale:
            break
    assert shares[0][0] > 0.2 and shares[-1] == (0.0, 0.0) and len(shares) > 5
    assert shares[2][1] == 4.0, "for how long already"
    assert lag.state(float(now) + 10.0) == (0.0, 0.0), "nobody draws: nothing is known"


def test_places_beyond_the_picture_are_not_drawn():
    session = MapSession(MapSettings(resolution=0.1, max_inducing=100))
    lanes(session, 60, 0.0)
    grid = session.render(None)
    assert undrawn_share([[1e9, 0.0], [-50.0, 3.0]], grid) == 1.0 and undrawn_share([], grid) == 0.0


def test_a_node_whose_drawings_lag_says_so(tmp_path):
    few = {"draw_budget": 100, "publish_rate": 0.5, "resolution": 0.05}
    with NodeProcess(tmp_path, **QUICK | few, reliable_inputs=True) as node, Peer() as peer:
        peer.wait_for_node()
        peer.listen(OccupancyGrid, "/mapping/mean")
        peer.drive(0.0, 40.0, rate=25, speed=20.0)
        peer.until(
            lambda: any("driven ground is not drawn yet" in text for text in peer.messages),
            what="nothing is said of what is not drawn",
        )
        assert peer.number("undrawn share of the path") > 0.02
        assert node.stop() == 0
