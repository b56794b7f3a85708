"""`gp-mapping view` against a real mapper over DDS: what it serves is what the mapper says; a browser shows it."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from nav_msgs.msg import Path
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from ros_helpers import QUICK, ROOT, STARTS, NodeProcess, Peer, cloud_array
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import Trigger
from view_data import decode
from web_browser import browser_or_skip

from benchmark import warm


def fetch(address, path):
    with urllib.request.urlopen(address + path, timeout=10) as answer:
        body = answer.read()
        return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body


def status(address):
    return json.loads(fetch(address, "api/status"))


class View:
    """`gp-mapping view` as a user starts it, on a free port; its first line of output names the address."""

    def __init__(self, *arguments):
        self.process = warm.Popen(
            [sys.executable, "-m", "gp_mapping.cli", "view", "--port", "0", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.greeting = self.process.stdout.readline()
        self.address = self.greeting.split()[0] if self.greeting else ""

    def __enter__(self):
        assert self.address.startswith("http://"), self.process.stderr.read()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    """A mapper in the namespace robot that has driven for 12 s, a peer, and a viewer of it."""
    with (
        NodeProcess(
            tmp_path_factory.mktemp("view"),
            arguments=["-r", "__ns:=/robot"],
            suggestion_rate=2.0,
            **QUICK,
            **STARTS,
        ) as node,
        Peer(namespace="/robot") as peer,
        View("--namespace", "robot") as view,
    ):
        peer.wait_for_node()
        peer.until(lambda: status(view.address)["overlay"] >= 0, what="no answer")
        peer.drive(0.0, 12.0, speed=4.0)
        peer.until(
            lambda: (status(view.address)["map"] or {}).get("number"), what="no map in the viewer"
        )
        yield node, peer, view


def test_what_is_served_is_the_map(robot):
    """Cell by cell the newest cloud of the mapper, to the 16 bits of the wire."""
    _, peer, view = robot
    clouds = peer.listen(PointCloud2, "/robot/mapping/field")
    peer.until(lambda: clouds, what="no cloud")
    peer.settle()

    def same():
        xyz, (header, mean, stddev) = (
            cloud_array(clouds[-1]),
            decode(fetch(view.address, "api/map")),
        )
        if header["cells"] != len(xyz):
            return False  # one of the two is a drawing ahead
        columns = np.floor((xyz[:, 0] - header["origin"][0]) / header["resolution"]).astype(int)
        rows = np.floor((xyz[:, 1] - header["origin"][1]) / header["resolution"]).astype(int)
        return (
            header["frame"] == "odom"
            and np.isfinite(mean).sum() == len(xyz)
            and np.allclose(mean[rows, columns], xyz[:, 4], atol=2e-9)
            and np.allclose(stddev[rows, columns], xyz[:, 5], atol=2e-9)
        )

    peer.until(same, what="the viewer's map differs from the mapper's")
    limits = decode(fetch(view.address, "api/map"))[0]["limits"]
    assert 30e-6 < limits[0] < limits[1] < 60e-6 and limits[2] == 0.0


def test_status_says_what_the_node_says(robot):
    _, peer, view = robot
    peer.until(lambda: status(view.address)["unit"], what="the unit was not asked for")
    peer.until(
        lambda: status(view.address)["suggestions"] and status(view.address)["overlay"],
        what="no suggestions",
    )

    def samples():
        areas = {each["area"]: each for each in status(view.address)["diagnostics"]}
        return int(areas["map"]["values"]["samples"]) if "map" in areas else 0

    peer.until(lambda: samples() > 500, what="not all is in the map")
    found = status(view.address)
    assert (found["node"], found["unit"], found["scale"], found["silent"]) == (
        "/robot/mapping",
        "uT",
        1e-6,
        False,
    )
    areas = {each["area"]: each for each in found["diagnostics"]}
    assert set(areas) >= {"input", "map", "timing"}
    assert abs(found["robot"]["x"] - 2.0) < 2.1 and found["map"]["frame"] == "odom"
    path = np.array(json.loads(fetch(view.address, "api/overlay"))["path"])
    assert len(path) > 20 and path[:, 0].min() > -0.2 and path[:, 0].max() < 2.2
    peer.until(
        lambda: "(magnetic_field) for" in json.dumps(status(view.address)),
        what="silence is not passed on",
    )


def test_a_browser_shows_it(robot):
    """The page in headless Chromium: the map, both quantities, the read-out under the mouse, moving, warnings."""
    _, peer, view = robot
    with browser_or_skip() as browser:
        browser.open(view.address)
        browser.until(
            lambda: browser.script("return Boolean(shown.image && shown.status.unit)"),
            "no map on the page",
        )
        browser.until(
            lambda: browser.text("#node") == "/robot/mapping", "the page does not say of whom it is"
        )
        box = browser.script(
            "const b = document.querySelector('#map').getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height]"
        )
        middle = box[0] + box[2] / 2, box[1] + box[3] / 2
        browser.hover(*middle)
        browser.until(lambda: " ± " in browser.text("#readout"), "no value under the mouse")
        text = browser.text("#readout")
        assert text.endswith("µT") and 30 < float(text.split(": ")[1].split(" ±")[0]) < 60, text
        picture = "return document.querySelector('#map').toDataURL()"
        field = browser.script(picture)
        assert browser.text("#legend-low").endswith("µT")
        browser.click("#show-stddev")
        assert browser.script(picture) != field and browser.text("#legend-low") == "0 µT"
        at = browser.script("return view.x")
        browser.drag(*middle, 60, 0)
        assert browser.script("return view.x") < at
        browser.click("#fit")
        assert browser.script("return view.x") == pytest.approx(at, abs=0.5)
        browser.until(
            lambda: "(odometry) for" in browser.text("#problems"), "the page shows no warning"
        )
        assert browser.console() == []


def test_the_page_tells_of_a_survey(robot):
    """The plan as it is on ~/plan, and what the mapper says of its budget; both on the page."""
    _, peer, view = robot
    assert status(view.address)["plan"] == []
    plans = peer.listen(Path, "/robot/mapping/plan")
    peer.call(
        SetParameters,
        "/robot/mapping/set_parameters",
        SetParameters.Request(
            parameters=[
                Parameter("plan_budget", value=6.0).to_parameter_msg(),
                Parameter("plan_margin", value=0.5).to_parameter_msg(),
            ]
        ),
    )
    peer.call(Trigger, "/robot/mapping/survey/start", Trigger.Request())

    def shown():
        poses = [p.pose.position for p in plans[-1].poses] if plans else []
        told = np.array(status(view.address)["plan"]).reshape(-1, 2)
        return (
            len(poses) > 2
            and len(told) == len(poses) + 1
            and np.allclose(told[:-1], [(p.x, p.y) for p in poses])
        )

    peer.until(shown, what="the plan is not passed on")
    with browser_or_skip() as browser:
        browser.open(view.address)
        browser.until(
            lambda: "budget left" in browser.text("#survey"), "the page says nothing of the survey"
        )
        assert "running" in browser.text("#survey") and "stddev at the plan's end" in browser.text(
            "#survey"
        )
        browser.until(lambda: browser.script("return Boolean(shown.image)"), "no map on the page")
        with_plan = browser.script("return document.querySelector('#map').toDataURL()")
        browser.click("#show-plan")
        assert browser.script("return document.querySelector('#map').toDataURL()") != with_plan
        assert browser.console() == []
    peer.call(Trigger, "/robot/mapping/survey/stop", Trigger.Request())
    peer.until(
        lambda: status(view.address)["plan"] == [],
        what="a stopped survey keeps its plan on the page",
    )


def test_keys_buttons_and_fingers_move_the_map(robot):
    with browser_or_skip() as browser:
        browser.open(robot[2].address)
        browser.until(lambda: browser.script("return Boolean(shown.image)"), "no map on the page")
        state = lambda: browser.script("return [view.x, view.y, view.scale]")  # noqa: E731
        box = browser.script(
            "const b = document.querySelector('#map').getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height]"
        )
        x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
        browser.script("document.querySelector('#map').focus()")
        start = state()
        browser.keys("ArrowRight", "ArrowUp", "ArrowUp")
        moved = state()
        assert moved[0] == pytest.approx(start[0] + 60 / start[2]) and moved[2] == start[2]
        assert moved[1] == pytest.approx(start[1] + 120 / start[2])
        browser.keys("+", "+", "-")
        assert state()[2] == pytest.approx(1.25 * start[2]) and state()[:2] == pytest.approx(
            moved[:2]
        )
        browser.click("#nearer")
        browser.click("#farther")
        browser.click("#farther")
        assert state()[2] == pytest.approx(start[2])
        browser.keys("0")
        assert browser.script("return view.fitted")

        before = state()
        browser.pinch(x, y, 100, 200)
        assert state()[2] == pytest.approx(2 * before[2], rel=0.05), (
            "two fingers twice as far apart"
        )
        assert state()[:2] == pytest.approx(before[:2], abs=3 / before[2]), (
            "the place between them stays"
        )
        browser.pinch(x, y, 200, 200, dx=50)
        assert state()[0] == pytest.approx(before[0] - 50 / state()[2], abs=3 / before[2])
        assert browser.console() == []


def test_a_node_that_is_started_again_brings_its_own_unit_and_its_own_map(tmp_path):
    """The old map is grey under a node that has none yet; and its numbers are never read in another unit."""

    def started(**settings):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return NodeProcess(folder, arguments=["-r", "__ns:=/again"], **{**QUICK, **settings})

    with Peer(namespace="/again") as peer, View("--namespace", "again") as view:
        with started() as node:
            peer.wait_for_node()
            peer.until(lambda: status(view.address)["overlay"] >= 0)
            peer.drive(0.0, 6.0, speed=4.0)
            peer.until(
                lambda: status(view.address)["map"] and status(view.address)["unit"],
                what="no map, or no unit",
            )
            found = status(view.address)
            assert (found["unit"], found["scale"], found["map"]["old"]) == ("uT", 1e-6, False)
            node.process.kill()
        peer.until(
            lambda: status(view.address)["silent"], what="nobody notices that the node is gone"
        )
        with started(field_unit="nT", field_scale=1e-9), browser_or_skip() as browser:
            peer.until(
                lambda: status(view.address)["unit"] == "nT", what="the unit of the run before"
            )
            found = status(view.address)
            assert found["scale"] == 1e-9 and found["map"]["old"] and not found["silent"]
            browser.open(view.address)
            browser.until(
                lambda: "run before" in browser.text("#state"), "an old map looks like a new one"
            )
            assert browser.script("return document.querySelector('#map').classList.contains('old')")
            assert "not live" in browser.text("#aged")
            peer.wait_for_node()
            peer.drive(0.0, 6.0, speed=4.0)
            peer.until(
                lambda: not status(view.address)["map"]["old"], what="the new map counts as old"
            )
            browser.until(
                lambda: browser.text("#legend-low").endswith("nT"), "the legend keeps the old unit"
            )
            browser.until(
                lambda: (
                    not browser.script(
                        "return document.querySelector('#map').classList.contains('old')"
                    )
                ),
                "still grey",
            )


def test_warnings_end_where_they_end(robot):
    """Explanations hold semicolons of their own."""
    _, peer, view = robot
    peer.until(
        lambda: any(
            "(odometry) for" in text
            for each in status(view.address)["diagnostics"]
            for text in each["problems"]
        ),
        what="no warning",
    )
    for each in status(view.address)["diagnostics"]:
        assert all(text.strip() for text in each["problems"])
        assert not any(key.startswith("warning ") for key in each["values"])


def test_nobody_looks_nobody_draws(robot, monkeypatch):
    """Subscriptions end some time after the last question, and come back with the next one."""
    from gp_mapping.ros.clients import view_feed

    monkeypatch.setattr(view_feed, "_IDLE", 0.5)
    _, peer, _ = robot
    feed = view_feed.LiveFeed("/robot/mapping")
    try:

        def ours() -> int:
            return sum(
                info.node_name == "gp_mapping_view"
                for info in peer.node.get_subscriptions_info_by_topic("/robot/mapping/field")
            )

        before = ours()
        feed.touch()
        feed.spin(0.3)
        peer.until(lambda: ours() == before + 1, what="no subscription")
        feed.spin(0.7)
        peer.until(lambda: ours() == before, what="still subscribed")
        feed.touch()
        end = time.monotonic() + 10
        while feed.map() is None and time.monotonic() < end:
            feed.touch()
            feed.spin(0.1)
        assert len(feed.map().columns["x"]) > 100
    finally:
        feed.close()


def test_another_name_is_suggested_and_the_end_is_clean(robot):
    """Nothing comes from /mapping here; the page says which mapper there is. SIGTERM ends it with exit code 0."""
    _, peer, _ = robot
    with View("--address", "127.0.0.1") as lost:
        peer.until(lambda: status(lost.address)["elsewhere"] == ["/robot/mapping"], what="no hint")
        found = status(lost.address)
        assert found["heard"] is None and found["map"] is None and found["diagnostics"] == []
        lost.process.send_signal(signal.SIGTERM)
        assert lost.process.wait(10) == 0


def test_other_machines_see_it_only_after_a_warning():
    with View("--address", "0.0.0.0") as view:
        port = int(view.address.rstrip("/").rpartition(":")[2])
        assert view.address == f"http://127.0.0.1:{port}/"
        request = urllib.request.Request(
            view.address + "api/status", headers={"Host": "robot.local"}
        )
        assert urllib.request.urlopen(request, timeout=10).status == 200
        os.kill(view.process.pid, signal.SIGINT)
        _, said = view.process.communicate(timeout=10)
        assert (
            view.process.returncode == 0 and "no password" in said and f"ssh -N -L {port}:" in said
        )


def test_the_view_loads_ground_that_is_not_drawn_any_more(tmp_path):
    """`window: 1` draws a square about the robot; what lies behind it is asked for when it is looked at."""
    with (
        NodeProcess(tmp_path, **QUICK, **STARTS, window=1.0) as node,
        Peer(mapper="mapping") as peer,  # and not to that of the fixture
        View() as view,
    ):
        peer.wait_for_node()
        peer.until(lambda: status(view.address)["overlay"] >= 0, what="no answer")
        field = peer.listen(PointCloud2, "/mapping/field")
        peer.drive(0.0, 64.0, rate=10, speed=16.0)  # 16 lanes: 4.8 m
        peer.until(
            lambda: (status(view.address)["map"] or {}).get("number"), what="no map in the viewer"
        )
        peer.settle()

        def driven():
            return json.loads(fetch(view.address, "api/overlay"))["path"]

        peer.until(lambda: len(driven()) > 20, what="no path")
        path, drawn = driven(), cloud_array(field[-1])
        behind = np.array([p for p in path if np.abs(drawn[:, :2] - p).max(1).min() > 0.2])
        assert len(behind) > 20, (drawn[:, :2].min(0), drawn[:, :2].max(0), path[-3:])

        x, y = behind[len(behind) // 2]
        question = f"api/window?low={x - 0.4},{y - 0.4}&high={x + 0.4},{y + 0.4}"
        peer.until(lambda: fetch(view.address, question), what="no answer of the mapper")
        header, mean, stddev = decode(fetch(view.address, question))
        assert header["frame"] == "odom" and header["resolution"] == pytest.approx(0.05, rel=0.01)
        row, column = (
            int((at - first) / header["resolution"])
            for at, first in ((y, header["origin"][1]), (x, header["origin"][0]))
        )
        assert 30e-6 < mean[row, column] < 60e-6 and 0 < stddev[row, column] < 3e-6
        assert node.process.poll() is None

        with browser_or_skip() as browser:
            browser.open(view.address)
            browser.until(
                lambda: browser.script("return Boolean(shown.image && shown.path.length)"), "no map"
            )
            browser.script(
                f"view.fitted = false; view.x = {x}; view.y = {y}; view.scale = 400; redraw();"
            )
            there = f"return shown.part && cellAt(shown.part, {x}, {y})"
            browser.until(
                lambda: (browser.script(there) or -1) >= 0, "the page has not loaded what it shows"
            )
            told = browser.script(
                f"return valueAt(shown.part, 'mean', cellAt(shown.part, {x}, {y}))"
            )
            assert told == pytest.approx(mean[row, column], abs=3e-7)
            assert browser.console() == []
