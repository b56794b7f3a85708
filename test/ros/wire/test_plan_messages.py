"""A plan as messages for RViz."""

import numpy as np
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from gp_mapping.planning.plan import Plan
from gp_mapping.ros.wire.plans import plan_markers


def test_markers_show_what_each_part_gains_and_what_all_of_it_is_worth():
    line = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0]])
    plan = Plan(
        "route",
        line,
        stops=line[1:],
        visits=np.array([[1.0, 0.0], [2.0, 0.5], [2.0, 1.0]]),
        gains=np.array([4e-12, 1e-12, -1e-28]),  # rounding
        metres=3.0,
        seconds=11.6,
        stddev_now=12.5e-6,
        stddev_then=2.94e-6,
    )
    markers = {m.ns: m for m in plan_markers(plan, Header(frame_id="odom"), "µT", 1e-6).markers}
    assert list(markers) == ["plan", "plan_gain", "plan_stops", "plan_score"]
    assert all(m.action == Marker.ADD and m.header.frame_id == "odom" for m in markers.values())
    assert [c.r for c in markers["plan_gain"].colors] == [1.0, 0.5, 0.0]
    score = markers["plan_score"]
    assert score.text == "3.0 m, 12 s\nstddev 12.5 to 2.94 µT"
    assert (score.pose.position.x, score.pose.position.y) == (2.0, 1.0)

    none = plan_markers(Plan("route", reason="the survey is paused"), Header(), "µT", 1e-6).markers
    assert {m.action for m in none} == {Marker.DELETE} and len(none) == 4
