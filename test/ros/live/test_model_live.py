"""Every model live: a drive over real DDS into the real node; what it publishes is the core's map of those samples."""

import math

import numpy as np
import pytest
import torch
from nav_msgs.msg import OccupancyGrid
from ros_helpers import (
    NS,
    ROOT,
    Peer,
    cloud_array,
    grid_array,
    magnetic_field,
    odometry,
    spin,
    spin_until,
)
from sensor_msgs.msg import PointCloud2
from std_msgs.msg import Float64MultiArray

from gp_mapping.core.registry import model_names
from gp_mapping.intake import Intake
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import read_parameter_file
from gp_mapping.sim.evaluation import near_path, score_map
from gp_mapping.sim.simulation import OdometryReading, Simulation, SimulationSettings
from gp_mapping.sim.world import WorldSettings

# the size of a model is not what is tested; all that each file says of it counts, but for that
SMALL = {
    "max_inducing": 80,
    "resolution": 0.1,
    "publish_rate": 5.0,
    "marker_rate": 5.0,
    "reliable_inputs": True,
    "learn_hyperparameters": True,
}


@pytest.fixture(scope="module")
def drive():
    """A simulation, and its messages in the order of their stamps: 20 s, 8 m over a floor with dipoles under it."""
    simulation = Simulation(
        SimulationSettings(duration=20.0, field_rate=10.0, odometry_rate=10.0, spacing=0.5),
        WorldSettings(seed=3, width=3.0, depth=3.0),
    )
    out = []
    for reading in simulation:
        stamp = 1_700_000_000 * NS + reading.stamp_ns
        if isinstance(reading, OdometryReading):
            message = odometry(stamp, reading.x, reading.y)
            turn = message.pose.pose.orientation
            turn.z, turn.w = math.sin(reading.yaw / 2), math.cos(reading.yaw / 2)
        else:
            message = magnetic_field(stamp, reading.field[2])
            message.magnetic_field.x, message.magnetic_field.y = map(float, reading.field[:2])
        out.append((isinstance(reading, OdometryReading), message))
    return simulation.world, out


def core_map(node, messages) -> MapSession:
    """The same messages through intake and core, without node, threads and DDS."""
    intake, session = Intake(node.intake_settings), MapSession(node.map_settings)
    for pose, message in messages:
        intake.add_pose_message(message) if pose else intake.add_measurement(message)
    for new_pass, samples in intake.batches():
        if new_pass:
            session.break_pass()
        session.ingest(samples)
    return session


def play(node, peer: Peer, messages) -> None:
    """All messages over DDS, as fast as the node takes them."""
    spin_until(
        node,
        peer,
        lambda: (
            peer.field_publisher.get_subscription_count()
            and peer.odometry_publisher.get_subscription_count()
        ),
    )
    spin(node, peer, 0.3)  # the other direction of discovery
    for i, (pose, message) in enumerate(messages):
        (peer.odometry_publisher if pose else peer.field_publisher).publish(message)
        if i % 50 == 0:
            spin(node, peer, 0.01)


@pytest.mark.parametrize("name", model_names())
def test_what_the_node_publishes_is_the_core_s_map(node_of, drive, name):
    world, messages = drive
    node, peer = node_of(
        **(read_parameter_file(ROOT / "config" / "models" / f"{name}.yaml") | SMALL)
    )
    field, mean, stddev, limits = (
        peer.listen(kind, f"/mapping/{topic}")
        for kind, topic in (
            (PointCloud2, "field"),
            (OccupancyGrid, "mean"),
            (OccupancyGrid, "stddev"),
            (Float64MultiArray, "limits"),
        )
    )
    play(node, peer, messages)
    core = core_map(node, messages)
    spin_until(node, peer, lambda: node.worker.status.report["samples"] == core.raw_count)
    spin_until(
        node,
        peer,
        lambda: (
            node.worker.results
            and node.worker.results.revision
            == node.worker.revision
            == node.publishers_._outputs["field"].revision
        ),
    )
    drawn = node.worker.results.grid
    spin_until(
        node,
        peer,
        lambda: (
            field
            and field[-1].width == int(drawn.known.sum())
            and limits
            and mean
            and stddev
            and mean[-1].header.stamp == stddev[-1].header.stamp == field[-1].header.stamp
            and tuple(limits[-1].data) == tuple(node.publishers_.limits)
        ),
    )  # they come on a topic of their own
    status = node.worker.status
    assert not (
        node.parameter_warnings or status.warnings or sum(status.drops.values()) or status.counts
    )

    names = [f.name for f in field[-1].fields]
    assert ("mean_z" in names) == (name == "curl_free")
    points = cloud_array(field[-1], names)
    x, live_mean, live_stddev = (
        points[:, :2].astype(float),
        points[:, 4].astype(float),
        points[:, 5].astype(float),
    )
    told = core.predict(torch.from_numpy(x))
    expected, spread = (
        told.mean.norm(dim=1) if name == "curl_free" else told.mean[:, 0],
        told.stddev[:, 0],
    )
    near = near_path(x, core.path.numpy(), 0.2)
    assert near.sum() > 300
    # the drawing splines between points, and what lies far from the newest samples may be drawn a little earlier
    off = np.abs(live_mean - expected.numpy())[near] / (spread.numpy()[near] + 1e-7)
    assert np.quantile(off, 0.98) < 0.2, (
        f"{name}: the published mean is {np.quantile(off, 0.98):.2f} stddevs off"
    )
    if name != "curl_free":  # there it is of the norm, and of each component in columns of its own
        ratio = live_stddev[near] / spread.numpy()[near]
        assert np.abs(np.quantile(ratio, [0.02, 0.98]) - 1.0).max() < 0.1

    score = score_map(live_mean[near], live_stddev[near], world.norm(x[near]))
    assert score.rmse < 0.5 * score.field_stddev
    assert score.coverage > (0.4 if name == "sor" else 0.6)  # sor is too sure by design

    low = np.array(limits[-1].data)
    for message, values, (bottom, top) in (
        (mean[-1], drawn.mean, low[:2]),
        (stddev[-1], drawn.stddev, low[2:]),
    ):
        cells, known = grid_array(message), drawn.known.numpy()
        assert (cells[~known] == -1).all()
        back = bottom + (cells[known] - 1) / 97.0 * (top - bottom)
        assert np.abs(back - values.numpy()[known]).max() <= 0.51 * (top - bottom) / 97.0
