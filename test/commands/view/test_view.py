"""The page of `gp-mapping view`: the map on the wire, the server's manners, wrong usage. No ROS here."""

import gzip
import http.client
import json
import socket
import struct
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from test_cli import wrong
from view_data import decode

from gp_mapping.commands.view.map_image import MOST_CELLS, cell_size, encode_map
from gp_mapping.commands.view.server import ViewServer


def lattice(width, height, resolution=0.05, origin=(0.0, 0.0), known=None):
    """Columns of a field cloud in its own order and precision, float32 as on the wire."""
    known = np.ones((height, width), bool) if known is None else known
    rows, columns = np.nonzero(known)
    x = np.float32(origin[0] + (columns + 0.5) * resolution).astype(float)
    y = np.float32(origin[1] + (rows + 0.5) * resolution).astype(float)
    return {
        "x": x,
        "y": y,
        "mean": 45e-6 + 1e-6 * columns + 2e-6 * rows,
        "stddev": 1e-6 + 1e-8 * rows * columns,
    }


@pytest.mark.parametrize("origin", [(0.0, 0.0), (-3.2, 900.0), (2000.0, -2000.0)])
def test_every_cell_comes_back_where_it_was(origin):
    known = np.random.default_rng(0).random((37, 61)) > 0.3
    columns = lattice(61, 37, origin=origin, known=known)
    header, mean, stddev = decode(encode_map(3, columns, (0, 1, 0, 1), "odom"))
    assert (header["number"], header["frame"], header["cells"], header["every"]) == (
        3,
        "odom",
        known.sum(),
        1,
    )
    assert header["resolution"] == pytest.approx(0.05, rel=2e-3)
    assert np.allclose(header["origin"], origin, atol=0.002 + 1e-7 * abs(np.array(origin)).max())
    assert np.array_equal(~np.isnan(mean), known)
    assert np.allclose(mean[known], columns["mean"], atol=1e-9) and np.allclose(
        stddev[known], columns["stddev"], 1e-4
    )


def test_a_large_map_is_averaged_within_the_bound():
    columns = lattice(1100, 900)
    header, mean, _ = decode(encode_map(1, columns, (0, 1, 0, 1)))
    assert header["width"] * header["height"] <= MOST_CELLS and header["every"] == 2
    assert header["resolution"] == pytest.approx(0.1)
    assert mean[0, 0] == pytest.approx(columns["mean"][[0, 1, 1100, 1101]].mean(), abs=1e-7)
    assert not np.isnan(mean).any()


@pytest.mark.parametrize("far", [1e4, 1e12, 3e38])
def test_a_cell_at_the_end_of_the_world_costs_no_more(far):
    columns = lattice(5, 5)
    columns["x"][-1] = columns["y"][-1] = far
    header, mean, _ = decode(encode_map(1, columns, (0, 1, 0, 1)))
    assert mean.size <= MOST_CELLS and np.isfinite(mean).any() and header["every"] > 1


def test_empty_single_and_flat_maps():
    empty = {name: np.empty(0) for name in ("x", "y", "mean", "stddev")}
    assert decode(encode_map(1, empty, (0, 1, 0, 1)))[1].shape == (0, 0)
    header, mean, stddev = decode(encode_map(1, lattice(1, 1), (0, 1, 0, 1)))
    assert (header["resolution"], mean.shape) == (0.05, (1, 1)) and mean[0, 0] == pytest.approx(
        45e-6
    )
    assert stddev[0, 0] == pytest.approx(1e-6)
    assert cell_size(*(lattice(1, 8, 0.2)[k] for k in "xy")) == pytest.approx(0.2)


class Feed:
    """What a LiveFeed offers."""

    touched = 0
    number = 0

    def touch(self):
        self.touched += 1

    def status(self):
        return {"node": "/mapping", "map": None}

    def overlay(self):
        return {"number": 1, "path": [(0.1, 0.2)] * 500, "inducing": []}

    def map(self):
        return (
            SimpleNamespace(
                number=self.number, frame="odom", columns=lattice(9, 7), limits=(0.0, 1.0, 0.0, 1.0)
            )
            if self.number
            else None
        )

    def window(self, low, high):
        self.asked = low, high
        return (
            SimpleNamespace(
                number=7,
                frame="odom",
                columns=lattice(4, 3, origin=low),
                limits=(0.0, 1.0, 0.0, 1.0),
            )
            if self.number
            else None
        )


@pytest.fixture
def served():
    """A feed, and ask(path, host=…, method=…) -> status, headers, body."""
    feed = Feed()
    server = ViewServer("127.0.0.1", 0, feed)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(path, host="localhost:1", method="GET"):
        connection = http.client.HTTPConnection(*server.server_address, timeout=10)
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        headers = dict(answer.getheaders())
        return (
            answer.status,
            headers,
            gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body,
        )

    yield feed, ask, server
    server.shutdown()
    server.server_close()


def test_page_needs_nothing_from_elsewhere(served):
    """A robot's network has no internet: every file of the page comes from here, and the browser is held to it."""
    _, ask, _ = served
    for path, kind, word in (
        ("/", "text/html", b"<!DOCTYPE html>"),
        ("/view.js", "text/javascript", b"api/status"),
        ("/draw.js", "text/javascript", b"decodeMap"),
        ("/view.css", "text/css", b"#readout"),
    ):
        status, headers, body = ask(path)
        assert status == 200 and headers["Content-Type"].startswith(kind) and word in body
        assert "default-src 'none'" in headers["Content-Security-Policy"] and b"http://" not in body
        assert b"https://" not in body and b"innerHTML" not in body


def test_answers(served):
    feed, ask, _ = served
    assert ask("/api/map")[0] == 204
    assert json.loads(ask("/api/status")[2])["node"] == "/mapping"
    assert len(json.loads(ask("/api/overlay?again")[2])["path"]) == 500
    feed.number = 4
    status, headers, body = ask("/api/map")
    assert (
        status == 200 and headers["Cache-Control"] == "no-store" and decode(body)[0]["number"] == 4
    )
    assert ask("/api/map", method="HEAD")[2] == b""
    assert feed.touched == 5
    assert ask("/../../etc/passwd")[0] == 404 and ask("/api/status", method="POST")[0] == 501


def test_a_part_of_the_map_is_asked_for_by_its_corners(served):
    feed, ask, _ = served
    assert ask("/api/window?low=1,2&high=3,4.5")[0] == 204, "not answered yet"
    feed.number = 4
    status, _, body = ask("/api/window?low=-1,2&high=3,4.5")
    header, mean, _ = decode(body)
    assert status == 200 and feed.asked == ((-1.0, 2.0), (3.0, 4.5)) and mean.shape == (3, 4)
    assert header["origin"] == pytest.approx([-1.0, 2.0], abs=1e-6)
    for query in (
        "",
        "?low=1,2",
        "?low=1,2&high=a,b",
        "?low=3,2&high=1,4",
        "?low=1,2&high=nan,4",
        "?low=1&high=2",
        "?low=1,2&high=1e9,1e9",
        "?low=1,2,3&high=4,5,6",
    ):
        assert ask(f"/api/window{query}")[0] == 400, query


def test_a_fault_of_an_answer_is_said_once_and_one_of_its_reader_never(served, capfd):
    """The page asks several times a second; it gets an answer, and the others go on."""
    feed, ask, server = served
    feed.status = lambda: {"node": 1 / 0}
    feed.overlay = lambda: {"number": float("nan")}
    for _ in range(3):
        code, _, body = ask("/api/status")
        assert code == 500 and b"the terminal of gp-mapping view says why" in body
    assert ask("/api/overlay")[0] == 500 and ask("/")[0] == 200
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2 and "/api/status failed, ZeroDivisionError: division by zero" in said[0]
    assert "/api/overlay failed, ValueError" in said[1]

    # who hangs up before the answer, with a reset
    feed.status = lambda: {"text": [str(i) * 50 for i in range(200000)]}
    with socket.create_connection(server.server_address, timeout=10) as reader:
        reader.sendall(b"GET /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    feed.status = lambda: {}
    assert ask("/api/status")[0] == 200 and not capfd.readouterr().err


@pytest.mark.parametrize(
    "host, code",
    [
        ("127.0.0.1:8765", 200),
        ("[::1]:8765", 200),
        ("localhost", 200),
        ("robot.example:8765", 403),
        ("", 403),
    ],
)
def test_another_name_for_this_machine_is_refused(served, host, code):
    """A page on the internet can have its name point at 127.0.0.1 and would then read the map."""
    assert served[1]("/api/status", host=host)[0] == code


def trickle(server, count, stop):
    """Connections that send a header line now and then and never end; new ones for those that are cut off."""
    open_ = []
    while not stop.wait(0.2):
        open_ = [one for one in open_ if sent(one)]
        while len(open_) < count:
            try:
                open_.append(socket.create_connection(server.server_address, timeout=1))
                open_[-1].sendall(b"GET /api/status HTTP/1.0\r\nHost: localhost\r\n")
            except OSError:
                break
    for one in open_:
        one.close()


def sent(connection):
    try:
        connection.sendall(b"X-More: yes\r\n")
        return True
    except OSError:
        return False


def test_slow_readers_keep_nobody_out(served):
    """Sixteen that say nothing, and then sixteen that never stop saying something: everybody else is served."""
    _, ask, server = served
    idle = [socket.create_connection(server.server_address) for _ in range(16)]
    assert all(ask("/api/status")[0] == 200 for _ in range(20))
    for each in idle:
        each.close()

    stop = threading.Event()
    busy = threading.Thread(target=trickle, args=(server, 16, stop))
    busy.start()
    try:
        for _ in range(20):
            assert ask("/api/status")[0] == 200
            time.sleep(0.05)
    finally:
        stop.set()
        busy.join()


def test_answers_that_nobody_takes_keep_nobody_out(served, monkeypatch):
    """Twenty that ask for what fills every buffer and never read it, again and again: everybody else is served."""
    _, ask, server = served
    monkeypatch.setattr(server, "encoded_map", lambda: bytes(8_000_000))
    monkeypatch.setattr("gp_mapping.commands.view.server.GRACE", 0.3)

    def greedy():
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.settimeout(1)
        one.connect(server.server_address)
        one.sendall(b"GET /api/map HTTP/1.0\r\nHost: localhost\r\n\r\n")
        return one

    held, waits = [greedy() for _ in range(16)], []
    end = time.monotonic() + 10.0
    while served_status(ask) and time.monotonic() < end:
        time.sleep(0.05)  # until all places are taken
    for _ in range(5):
        begin = time.monotonic()
        while not served_status(ask):
            assert time.monotonic() - begin < 5.0, "kept out"
            time.sleep(0.05)
        waits.append(time.monotonic() - begin)
        held.append(greedy())
    for each in held:
        each.close()
    assert max(waits) < 3.0


def served_status(ask) -> bool:
    try:
        return ask("/api/status")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_a_request_has_its_time_in_all(served, monkeypatch):
    """However busily it trickles: a line every few seconds once kept a place for ever."""
    monkeypatch.setattr("gp_mapping.commands.view.server.HEADER", 0.5)
    with socket.create_connection(served[2].server_address) as one:
        started = time.monotonic()
        one.sendall(b"GET / HTTP/1.0\r\n")
        while sent(one) and time.monotonic() - started < 10:
            time.sleep(0.1)
        assert 0.4 < time.monotonic() - started < 5.0


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--port", "70000"], "--port 70000"),
        (["--domain-id", "300"], "--domain-id 300"),
        (["--namespace", "a b"], "not a name of a ROS node"),
        (["--node", ""], "not a name of a ROS node"),
        (["--node", "señal"], "not a name of a ROS node"),
        (["--odometry-topic", "a b"], "--odometry-topic 'a b' is not a name of a ROS topic"),
        (["--address", "192.0.2.1"], "expected an address of this machine"),
        ([], "ROS_DOMAIN_ID is '233', expected a number from 0 to 232"),
    ],
)
def test_wrong_usage(capfd, monkeypatch, arguments, expected):
    monkeypatch.setenv("ROS_DOMAIN_ID", "233" if not arguments else "1")
    pytest.importorskip("rclpy", reason="needs rclpy: source ROS 2 or install requirements/ros.txt")
    monkeypatch.setattr(
        "gp_mapping.ros.clients.view_feed.LiveFeed.spin", lambda *_: pytest.fail("it serves")
    )
    assert expected in wrong(capfd, "view", *arguments)


def test_without_rclpy_it_says_where_rclpy_comes_from(capfd, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "requirements/ros.txt" in wrong(capfd, "view")
