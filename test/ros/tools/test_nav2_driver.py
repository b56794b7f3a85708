"""What the driver makes of a Nav2 that refuses, goes away or never ends; Nav2's side is the test's."""

import types

import pytest

pytest.importorskip("rclpy")

from action_msgs.srv import CancelGoal
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Path
from rclpy.task import Future

from gp_mapping.ros.tools import nav2


class Client:
    """An action client; sent: goals, and the futures of their answers."""

    def __init__(self):
        self.ready, self.sent, self.tell = True, [], None

    def server_is_ready(self):
        return self.ready

    def send_goal_async(self, goal, tell):
        self.tell = tell
        self.sent.append((goal, Future()))
        return self.sent[-1][1]


class Handle:
    def __init__(self, accepted):
        self.accepted, self.result, self.cancelled = accepted, Future(), 0
        self.taken_back = Future()

    def get_result_async(self):
        return self.result

    def cancel_goal_async(self):
        self.cancelled += 1
        return self.taken_back


class Scene:
    """A driver with a plan of one pose.

    said: its warnings.  lost: places that it gave up.  blocked: why the robot did not get on.
    """

    def __init__(self, monkeypatch):
        self.now, self.said, self.lost, self.blocked = 0.0, [], [], []
        goal = types.SimpleNamespace(Goal=types.SimpleNamespace)
        monkeypatch.setattr(
            nav2, "import_module", lambda _: types.SimpleNamespace(NavigateToPose=goal)
        )
        self.client = Client()
        monkeypatch.setattr(nav2, "ActionClient", lambda *_: self.client)
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        logger = types.SimpleNamespace(warning=lambda text, **_: self.said.append(text))
        node = types.SimpleNamespace(get_logger=lambda: logger)
        self.driver = nav2.Nav2Driver(
            node, lambda *lost: self.lost.append(lost), on_blocked=self.blocked.append
        )
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


def test_a_goal_that_never_ends_is_taken_back_and_the_robot_is_said_not_to_get_on(scene):
    handle = scene.answer(True)
    first = scene.driver.attempt
    scene.client.tell(types.SimpleNamespace(feedback=types.SimpleNamespace(number_of_recoveries=1)))
    assert None is not first != scene.driver.attempt  # Nav2 is still trying

    scene.driver.give_up("no progress")
    assert handle.cancelled == 1 and scene.driver.attempt is None and not scene.blocked
    handle.result.set_result(types.SimpleNamespace(status=nav2.CANCELED, result=None))
    handle.taken_back.set_result(CancelGoal.Response())
    scene.step(20.0)
    assert scene.blocked == ["no progress"] and len(scene.client.sent) == 1 and scene.driver.idle


def test_a_goal_that_nav2_has_lost_is_sent_again_and_no_place_is_blamed(scene):
    """Discovery keeps a killed server for 20 s: one that is there again by then was not missed."""
    handle = scene.answer(True)
    scene.driver.give_up("no progress")
    unknown = CancelGoal.Response.ERROR_UNKNOWN_GOAL_ID
    handle.taken_back.set_result(CancelGoal.Response(return_code=unknown))
    assert len(scene.client.sent) == 2 and "sent again" in scene.said[0] and not scene.blocked

    # the newest goal stays where an older one is answered only now
    scene.answer(True)
    scene.driver.give_up("no progress")
    scene.driver.follow(Path(poses=[PoseStamped()] * 2))
    newest = scene.answer(True)
    assert scene.driver.attempt is not None and not newest.cancelled


@pytest.mark.parametrize("asked", ["goal", "cancel"])
def test_a_nav2_that_does_not_answer_is_asked_again(scene, asked):
    """An answer can be lost while discovery goes on: the robot stood for ever."""
    if asked == "cancel":
        scene.answer(True)
        scene.driver.give_up("no progress")
    scene.step(9.0)
    assert len(scene.client.sent) == 1 and not scene.said
    scene.step(2.0)
    assert len(scene.client.sent) == 2 and "not answered for 10 s" in scene.said[0]
    scene.answer(True)
    scene.step(20.0)
    assert len(scene.client.sent) == 2 and not (scene.lost or scene.blocked)
