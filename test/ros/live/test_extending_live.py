"""Parts of somebody else's package in the real node, by entry points; and a topic of one's own beside it."""

import os

import pytest
from extending import install
from nav_msgs.msg import OccupancyGrid
from ros_helpers import NodeProcess, Peer, field_at, grid_array
from std_msgs.msg import Float64


@pytest.fixture
def installed(tmp_path, monkeypatch):
    folder = install(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    )
    return folder


def test_a_model_and_a_kernel_of_ones_own_run_in_the_node(installed):
    with (
        NodeProcess(
            installed,
            model="own",
            kernel="rational_quadratic",
            learn_hyperparameters=False,
            publish_rate=5.0,
            resolution=0.1,
            reliable_inputs=True,
        ) as node,
        Peer() as peer,
    ):
        means, shares = (
            peer.listen(OccupancyGrid, "/mapping/mean"),
            peer.listen(Float64, "/known/fraction"),
        )
        with NodeProcess(installed, module="known"):
            peer.wait_for_node()
            peer.until(
                lambda: peer.node.count_subscribers("/mapping/stddev") == 1,
                what="the other node does not listen",
            )
            peer.drive(0.0, 6.0, rate=25, speed=4.0)
            peer.until(lambda: means and shares, what="a map, and what the other node says of it")
            peer.settle()
            grid = grid_array(means[-1])
            assert (grid >= 0).sum() > 50 and 0.0 < shares[-1].data <= 1.0
            assert field_at(0.0, 0.0) > 0.0
        assert node.stop() == 0, node.log
        assert "Traceback" not in node.log
