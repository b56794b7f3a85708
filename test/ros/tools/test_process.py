"""Spinning survives a callback that fails; signals count."""

import os
import signal
import time

import pytest
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from gp_mapping.ros.tools.playback import run_node
from gp_mapping.ros.tools.process import ENDINGS, Stopper, spin


@pytest.fixture
def stopper():
    """A Stopper whose handlers are taken back."""
    before = {number: signal.getsignal(number) for number in ENDINGS}
    yield Stopper()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_failing_callback_does_not_end_the_spinning(stopper):
    rclpy.init()
    node = Node("spinner")
    calls = []

    def fail_then_stop():
        calls.append(len(calls))
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        raise ZeroDivisionError

    try:
        node.create_timer(0.01, fail_then_stop, clock=Clock(clock_type=ClockType.STEADY_TIME))
        spin(node, lambda: stopper)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    assert len(calls) >= 3 and stopper.count == 1 and stopper


def test_between_looks_it_lets_pass_what_it_is_told_and_no_more():
    """Half a second of a timer at 1 kHz: 4 ms after every look that brought something, so at most 125 looks."""
    rclpy.init()
    node, looks, calls = Node("spinner"), [], []
    try:
        node.create_timer(
            0.001,
            lambda: calls.append(time.monotonic()),
            clock=Clock(clock_type=ClockType.STEADY_TIME),
        )
        for moment in (lambda: 0.004, lambda: 0.0):
            began = time.monotonic()
            looks.append(0)

            def over(began=began):
                looks[-1] += 1
                return time.monotonic() - began > 0.5

            spin(node, over, moment)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    assert looks[0] <= 127 and looks[1] > looks[0]


def test_signals_within_a_second_are_one_and_the_third_is_the_systems_own(stopper, monkeypatch):
    """A launch file passes on the Ctrl-C that the terminal has sent to all: that is nobody's second wish."""
    now = [100.0]
    monkeypatch.setattr("gp_mapping.ros.tools.process.time.monotonic", lambda: now[0])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
        now[0] += 0.3
    assert stopper.count == 1 and signal.getsignal(signal.SIGINT) == stopper._on_signal
    now[0] += 0.2
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopper.count == 2
    assert signal.getsignal(signal.SIGINT) == signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_is_closed_is_an_end_as_well(nohup):
    """Whose connection breaks has not meant to lose the map; who says nohup means that it goes on."""
    before = {number: signal.getsignal(number) for number in ENDINGS}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        stopper = Stopper()
        os.kill(os.getpid(), signal.SIGHUP)
        assert stopper.count == (0 if nohup else 1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDINGS)
def test_explorer_and_players_end_in_order_at_each_of_these_signals(number):
    """The explorer stops the robot at its end: the last command of a process that is killed would go on."""

    class Driving(Node):
        def __init__(self):
            super().__init__("driving")

        def run(self, executor, stop):
            os.kill(os.getpid(), number)
            return 7 if stop.wait(1.0) else 8

    def passed_over(*_):
        """In place of the system's way, which would end the tests."""

    before = signal.signal(number, passed_over)
    try:
        assert run_node(Driving) == 7
        assert signal.getsignal(number) is passed_over
    finally:
        signal.signal(number, before)
