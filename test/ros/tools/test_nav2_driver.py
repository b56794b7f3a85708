"""What the driver makes of a Nav2 that refuses, goes away and comes back; Nav2's side is the test's."""

import types

import pytest

pytest.importorskip("rclpy")

from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path
from rclpy.task import Future

from gp_mapping.ros.tools import nav2


class Client:
    """An action client; sent: goals, and the futures of their answers."""

    def __init__(self):
        self.ready, self.sent = True, []

    def server_is_ready(self):
        return self.ready

    def send_goal_async(self, goal, _):
        self.sent.append((goal, Future()))
        return self.sent[-1][1]


class Handle:
    def __init__(self, accepted):
        self.accepted, self.result, self.cancelled = accepted, Future(), 0

    def get_result_async(self):
        return self.result

    def cancel_goal_async(self):
        self.cancelled += 1


class Scene:
    """A driver with a plan of one pose; said: its warnings.  lost: places that it gave up."""

    def __init__(self, monkeypatch):
        self.now, self.said, self.lost = 0.0, [], []
        goal = types.SimpleNamespace(Goal=types.SimpleNamespace)
        monkeypatch.setattr(
            nav2, "import_module", lambda _: types.SimpleNamespace(NavigateToPose=goal)
        )
        self.client = Client()
        monkeypatch.setattr(nav2, "ActionClient", lambda *_: self.client)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        logger = types.SimpleNamespace(warning=lambda text, **_: self.said.append(text))
        node = types.SimpleNamespace(get_logger=lambda: logger)
        self.driver = nav2.Nav2Driver(node, lambda *lost: self.lost.append(lost))
        self.driver.follow(Path(poses=[PoseStamped()] * 2))

    def answer(self, accepted):
        handle = Handle(accepted)
        future = self.client.sent[-1][1]
        future.set_result(handle)
        return handle

    def step(self, seconds):
        self.now += seconds
        self.driver.step()


@pytest.fixture
def scene(monkeypatch):
    return Scene(monkeypatch)


def test_a_plan_waits_for_a_nav2_that_is_not_active_and_no_place_is_blamed(scene):
    """Every place was reported as unreachable, one after the other, until Nav2 was active."""
    for tries in range(1, 4):
        scene.answer(False)
        scene.step(0.5)
        assert len(scene.client.sent) == tries
        scene.step(0.6)
        assert len(scene.client.sent) == tries + 1 and not scene.lost
    assert "not active" in scene.said[0]

    scene.answer(True)
    # a server that takes goals refuses this one: it is the place
    scene.driver.follow(Path(poses=[PoseStamped()] * 2))
    scene.answer(False)
    assert len(scene.lost) == 1 and scene.driver.idle


@pytest.mark.parametrize("answered", [True, False])
def test_a_plan_goes_on_when_a_nav2_that_went_away_is_there_again(scene, answered):
    """The robot stood for ever, and nothing was said."""
    first, asked = scene.answer(True) if answered else None, scene.client.sent[-1][1]
    scene.client.ready = False
    scene.step(1.0)
    assert "Nav2 has gone" in scene.said[0] and scene.driver.idle and not scene.lost
    scene.client.ready = True
    scene.step(1.0)
    assert len(scene.client.sent) == 2 and not scene.driver.idle
    second = scene.answer(True)

    # an answer of the one that was gone, after all, is none to the new goal
    if answered:
        first.result.set_result(types.SimpleNamespace(status=6, result=None))
    else:
        late = Handle(True)
        asked.set_result(late)
        assert late.cancelled == 1
    assert not scene.lost and not second.cancelled and not scene.driver.idle
