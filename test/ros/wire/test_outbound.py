"""Results to messages: values, limits, geometry, and no slow lists."""

import time
from array import array

import numpy as np
import pytest
import torch
from rclpy.serialization import deserialize_message, serialize_message
from ros_helpers import cloud_array, grid_array
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from gp_mapping.mapping.drawing.grid import FieldGrid
from gp_mapping.ros.wire import markers, outbound

HEADER = Header(frame_id="odom")


def grid_of(height=3, width=4, origin=(1.0, -2.0), resolution=0.5) -> FieldGrid:
    mean = 40e-6 + 1e-6 * torch.arange(height * width, dtype=torch.float64).reshape(height, width)
    stddev = torch.full_like(mean, 2e-6)
    known = torch.ones_like(mean, dtype=torch.bool)
    known[0, 0] = False
    return FieldGrid(origin, resolution, mean, stddev, known, 1e-6, 7)


def test_occupancy_grid_goes_back_to_si():
    grid = grid_of()
    limits = outbound.field_limits(grid)
    message = outbound.occupancy_grid(grid, grid.mean, limits.mean_low, limits.mean_high, HEADER)
    cells = grid_array(deserialize_message(serialize_message(message), type(message)))
    assert cells[0, 0] == -1
    known = grid.known.numpy()
    assert cells[known].min() >= 1 and cells[known].max() <= 98
    back = limits.mean_low + (cells - 1) / 97 * (limits.mean_high - limits.mean_low)
    np.testing.assert_allclose(
        back[known], grid.mean.numpy()[known], atol=(limits.mean_high - limits.mean_low) / 194
    )


def test_occupancy_grid_geometry_is_row_zero_at_the_smallest_y():
    message = outbound.occupancy_grid(grid_of(), grid_of().mean, 40e-6, 51e-6, HEADER)
    assert (message.info.width, message.info.height, message.info.resolution) == (4, 3, 0.5)
    assert (message.info.origin.position.x, message.info.origin.position.y) == (1.0, -2.0)
    assert message.header.frame_id == "odom" and message.info.origin.orientation.w == 1.0
    assert list(message.data[:4]) == sorted(message.data[:4]) and message.data[4] > message.data[3]


def test_cloud_has_the_known_cells_only_at_their_centres():
    grid = grid_of()
    message = outbound.field_cloud(grid, HEADER)
    points = cloud_array(deserialize_message(serialize_message(message), type(message)))
    assert message.width == 11 and message.row_step == 11 * 24 and message.is_dense
    np.testing.assert_allclose(points[0], [1.75, -1.75, 0, 41e-6, 41e-6, 2e-6], rtol=1e-6)
    expected = grid.centres().numpy()[grid.known.reshape(-1).numpy()]
    np.testing.assert_allclose(points[:, :2], expected)


def test_nothing_known_gives_no_limits_and_an_empty_cloud():
    grid = grid_of()
    blank = FieldGrid(
        grid.origin, grid.resolution, grid.mean, grid.stddev, grid.known & False, 1e-6, 8
    )
    assert outbound.field_limits(blank) is None
    assert outbound.field_cloud(blank, HEADER).width == 0
    assert set(outbound.occupancy_grid(blank, blank.mean, 0.0, 1.0, HEADER).data) == {-1}


@pytest.mark.parametrize(
    "low, high", [(38.2e-6, 57.9e-6), (-3.0, 4.0), (5e-5, 5e-5), (0.0, 0.0), (1e6, 1e6 + 1e-3)]
)
def test_nice_limits_contain_the_range_and_waste_little(low, high):
    a, b = outbound.nice_limits(low, high)
    assert a < b and a <= low + 1e-9 * (b - a) and b >= high - 1e-9 * (b - a)
    if high - low > 1e-6 * max(abs(low), abs(high)):
        assert (b - a) <= 1.3 * (high - low)


def test_limits_stand_still_while_the_range_hardly_moves():
    assert outbound.nice_limits(38.21e-6, 57.90e-6) == outbound.nice_limits(38.25e-6, 57.86e-6)


def test_a_megapixel_is_filled_in_milliseconds_through_buffers():
    values = torch.rand(1000, 1000, dtype=torch.float64)
    grid = FieldGrid((0.0, 0.0), 0.05, values, values, values > 0.1, 1e-6, 1)
    start = time.perf_counter()
    message = outbound.occupancy_grid(grid, values, 0.0, 1.0, HEADER)
    cloud = outbound.field_cloud(grid, HEADER)
    assert isinstance(message.data, array) and isinstance(cloud.data, array)
    assert time.perf_counter() - start < 1.5  # about 0.1 s; lists take tens of seconds


def test_poses_look_the_way_one_arrives():
    message = outbound.pose_array([(1.0, 0.0), (1.0, 2.0)], (0.0, 0.0), HEADER)
    assert message.poses[0].orientation.z == pytest.approx(0.0)
    assert message.poses[1].orientation.z == pytest.approx(np.sin(np.pi / 4))
    goal = outbound.pose_stamped([(1.0, 0.0), (1.0, 2.0)], None, HEADER)
    assert (goal.pose.position.x, goal.pose.orientation.w, goal.header.frame_id) == (
        1.0,
        1.0,
        "odom",
    )


def test_limits_message_names_its_numbers():
    message = outbound.limits_message(outbound.Limits(1.0, 2.0, 0.0, 3.0))
    assert [d.label for d in message.layout.dim] == [
        "mean_low",
        "mean_high",
        "stddev_low",
        "stddev_high",
    ]
    assert list(message.data) == [1.0, 2.0, 0.0, 3.0]


def test_markers_are_stable_bounded_and_legible():
    many = torch.rand(9000, 2, dtype=torch.float64)
    message = markers.map_markers(
        inducing=many[:3],
        memory=many,
        path=many[:1],
        path_starts=torch.ones(1) > 0,
        suggestions=(),
        grid=grid_of(),
        limits=outbound.Limits(38e-6, 58e-6, 0.0, 5e-6),
        unit="uT",
        scale=1e-6,
        header=HEADER,
    )
    by_name = {m.ns: m for m in message.markers}
    assert tuple(by_name) == markers.NAMESPACES and {m.id for m in message.markers} == {0}
    assert len(by_name["inducing"].points) == 3
    assert len(by_name["memory"].points) <= 4000
    assert by_name["path"].action == Marker.DELETE  # one point is no line
    assert by_name["legend"].text == "mean 38 to 58 uT\nstddev 0 to 5 uT"
    serialize_message(message)
    assert markers.delete_all(HEADER).markers[0].action == Marker.DELETEALL


@pytest.mark.parametrize("points", [5, 1999, 5000, 20000])
def test_the_path_has_no_line_where_a_pass_begins(points):
    path = torch.stack(
        [torch.arange(points, dtype=torch.float64), torch.zeros(points, dtype=torch.float64)], 1
    )
    starts = torch.zeros(points) > 0
    starts[[0, points // 2]] = True
    message = markers.map_markers(
        inducing=(),
        memory=(),
        path=path,
        path_starts=starts,
        suggestions=(),
        grid=None,
        limits=None,
        unit="uT",
        scale=1e-6,
        header=HEADER,
    )
    line = {m.ns: m for m in message.markers}["path"]
    ends = torch.tensor([p.x for p in line.points]).reshape(-1, 2)
    assert line.type == Marker.LINE_LIST and len(line.points) <= 4000
    driven = (ends[:, 0] < points // 2) == (ends[:, 1] < points // 2)
    step = max(1, -(-2 * points // 4000))
    assert bool(driven.all()) and len(ends) == len(range(0, points, step)) - 2


def test_a_cloud_in_used_memory_is_the_same_as_in_fresh_memory():
    """The node keeps the memory: maps of other sizes, larger, smaller and empty, leave nothing of themselves."""
    room, rng = array("B"), np.random.default_rng(0)
    for height, width in ((40, 70), (90, 33), (5, 4), (64, 64)):
        values = torch.from_numpy(rng.normal(size=(height, width)))
        for known in (values > 0.3, values > -9.0, values > 9.0):
            grid = FieldGrid((1.5, -2.0), 0.05, values, values.abs(), known, 1e-6, 1)
            used, fresh = (outbound.field_cloud(grid, HEADER, *given) for given in ((room,), ()))
            assert bytes(used.data) == bytes(fresh.data) and used.width == int(known.sum())
            points = np.frombuffer(bytes(used.data), "<f4").reshape(-1, 6)
            at = known.numpy().nonzero()
            np.testing.assert_allclose(points[:, 0], 1.5 + 0.05 * (at[1] + 0.5), rtol=1e-6)
            np.testing.assert_allclose(
                points[:, 1], -2.0 + 0.05 * (at[0] + 0.5), rtol=1e-5, atol=1e-6
            )
            np.testing.assert_array_equal(points[:, 4], np.float32(values.numpy()[at]))
