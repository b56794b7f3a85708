"""Single suggestions keep to the region and the keep-out areas, as plans do."""

import pytest
from survey_scene import Robot, floor, settings

from gp_mapping.planning.area.polygon import Polygon
from gp_mapping.runtime.surveying.rules import RulesNow
from gp_mapping.runtime.surveying.suggester import Suggester

KINDS = ("gain_per_metre", "variance", "integrated_variance")
REGION = [(0.4, 0.4), (2.2, 0.4), (2.2, 3.0), (0.4, 3.0)]


@pytest.fixture(scope="module")
def robot() -> Robot:
    return Robot(settings(), floor(wall=False))


def suggest(kind, rules):
    return Suggester(settings(suggestion_kind=kind, suggestion_count=3), rules=rules)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_they_lie_in_the_region_and_out_of_keep_out_areas(robot, kind, free):
    grid, rules = robot.session.render(), RulesNow()
    live, message = suggest(kind, rules), robot.message if free else None

    def places():
        return live(robot.session, grid, tuple(robot.at), message, "map").positions.numpy()

    assert (len(places()) or not free) and not live.should_ask_again
    rules.restrict("region", REGION, "map", "map")
    assert live.should_ask_again, "a robot that stands is told, too"
    before = places()
    assert (
        len(before)
        and Polygon.from_corners(REGION).contains(before).all()
        and not live.should_ask_again
    )
    if not free:
        assert "inside the region" in live.obstacles

    x, y = before[0]
    area = [(x - 0.2, y - 0.2), (x + 0.2, y - 0.2), (x + 0.2, y + 0.2), (x - 0.2, y + 0.2)]
    rules.restrict("keep_out", area, "map", "map")
    assert live.should_ask_again
    after, kept = places(), Polygon.from_corners(area)
    radius = live.settings.robot_radius
    assert len(after) and Polygon.from_corners(REGION).contains(after).all()
    assert not kept.contains(after).any() and (kept.distance(after) >= radius).all()
    rules.restrict("keep_out", [], "map", "map")
    assert live.should_ask_again


def test_a_region_without_a_free_place_is_the_reason(robot):
    rules = RulesNow()
    rules.restrict("region", [(70.0, 0.0), (71.0, 0.0), (71.0, 1.0)], "map", "map")
    for kind in KINDS:
        found = suggest(kind, rules)(
            robot.session, robot.session.render(), tuple(robot.at), robot.message, "map"
        )
        assert not len(found) and "no free place lies inside the region" in found.reason


def test_a_setting_that_changes_while_the_robot_stands_is_another_question(robot):
    """The map does not change then, and nothing else asked: five places stayed for ever where one was set."""
    grid, live = robot.session.render(), suggest("variance", RulesNow())
    assert len(live(robot.session, grid, tuple(robot.at), robot.message, "map")) == 3
    live.settings = settings(suggestion_kind="variance", suggestion_count=1)
    assert live.should_ask_again
    assert len(live(robot.session, grid, tuple(robot.at), robot.message, "map")) == 1
    assert not live.should_ask_again
