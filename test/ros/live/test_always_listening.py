"""While the node works for somebody it hears everybody: nothing lost at 400 Hz, every call answered, signals obeyed."""

import os
import signal
import time

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.srv import GetMap, LoadMap
from ros_helpers import STARTS, NodeProcess, Peer, Stream
from std_srvs.srv import SetBool, Trigger

# 110 000 cells: their pictures take seconds
LARGE = {
    "max_inducing": 80,
    "resolution": 0.04,
    "margin": 6.0,
    "learn_hyperparameters": False,
    "lengthscale": 0.6,
    "reliable_inputs": True,
    "pictures": None,
    **STARTS,
}


def ask(peer, kind, name: str, **fields):
    """A call whose answer is not waited for."""
    client = peer.clients.get(name) or peer.node.create_client(kind, f"/mapping/{name}")
    peer.clients[name] = client
    assert client.wait_for_service(timeout_sec=60.0)
    return client.call_async(kind.Request(**fields))


def test_services_of_a_large_map_cost_no_measurement_and_no_diagnostics(tmp_path):
    os.mkfifo(
        tmp_path / "map.gpm"
    )  # a file that nobody ever writes into: it must not hold the node up
    with (
        NodeProcess(tmp_path, **LARGE, save_directory=str(tmp_path), map_name="hall") as node,
        Peer() as peer,
    ):
        peer.wait_for_node()
        for kind, name in (
            (Trigger, "save"),
            (Trigger, "load"),
            (Trigger, "clear"),
            (GetMap, "get_mean"),
            (LoadMap, "load_map"),
        ):
            ask(peer, kind, name, **({"map_url": "no/such"} if kind is LoadMap else {}))
        peer.spin(1.0)
        peer.drive(0.0, 6.0, rate=100, speed=4.0)
        peer.settle()

        with Stream(peer, 400, start=10.0) as stream:
            peer.spin(0.5)
            begin, seen, worst, last = time.monotonic(), peer.statuses, 0.0, time.monotonic()
            answers = [
                ask(peer, Trigger, "save"),
                ask(peer, GetMap, "get_mean"),
                ask(peer, LoadMap, "load_map", map_url="map.gpm"),
                ask(peer, GetMap, "get_stddev"),
            ]
            while not all(answer.done() for answer in answers):
                peer.executor.spin_once(timeout_sec=0.05)
                if peer.statuses > seen:
                    worst, last, seen = (
                        max(worst, time.monotonic() - last),
                        time.monotonic(),
                        peer.statuses,
                    )
                assert time.monotonic() - begin < 120.0
            took = time.monotonic() - begin
        peer.until(
            lambda: peer.number("magnetic_field received") == 601 + stream.sent,
            60.0,
            "some were lost",
        )
        saved, mean, loaded, stddev = (answer.result() for answer in answers)
        assert saved.success and (tmp_path / "hall" / "map.png").is_file()
        assert mean.map.info.width > 300 and stddev.map.info.width > 300
        assert loaded.result == LoadMap.Response.RESULT_INVALID_MAP_DATA  # the pipe
        assert took > 0.3, "too quick to say anything"
        assert worst < 3.0, f"no diagnostics for {worst:.1f} s"
        assert (
            node.stop() == 0
            and "a pipe, socket or device" in node.log
            and "Traceback" not in node.log
        )


def test_calls_that_wait_are_answered_at_the_end_and_a_signal_is_obeyed_meanwhile(tmp_path):
    """More calls at once than may wait, then SIGINT: an answer to each, yes or no."""
    with (
        NodeProcess(tmp_path, **LARGE, save_directory=str(tmp_path), service_queue_size=20) as node,
        Peer() as peer,
    ):
        peer.wait_for_node()
        for kind, name in ((Trigger, "save"), (GetMap, "get_mean"), (Trigger, "load")):
            ask(peer, kind, name)
        peer.spin(1.0)
        peer.drive(0.0, 6.0, rate=100, speed=4.0)
        peer.settle()
        answers = [
            ask(peer, *call)
            for _ in range(20)
            for call in ((Trigger, "save"), (GetMap, "get_mean"), (Trigger, "load"))
        ]
        peer.until(
            lambda: peer.number("refused: service_busy") > 0, what="too many calls were not counted"
        )
        node.process.send_signal(signal.SIGINT)
        peer.until(
            lambda: all(answer.done() for answer in answers), 60.0, "calls without an answer"
        )
        said = [
            answer.result().message for answer in answers if hasattr(answer.result(), "message")
        ]
        assert any("calls wait for an answer already" in text for text in said)
        assert node.process.wait(60) == 0 and "Traceback" not in node.log


def test_calls_that_wait_at_cleanup_are_answered(node_of, tmp_path):
    from ros_helpers import fill, spin

    node, peer = node_of(save_directory=str(tmp_path), resolution=0.02, margin=4.0)
    asked = [
        (Trigger, "save"),
        (GetMap, "get_mean"),
        (GetMap, "get_stddev"),
        (Trigger, "clear"),
        (Trigger, "load"),
    ]
    for kind, name in asked:
        peer.clients[name] = peer.node.create_client(kind, f"/mapping/{name}")
    spin(node, peer, 1.0)
    fill(node, 3.0)
    answers = [ask(peer, *call) for call in asked]
    spin(node, peer, 0.02)
    node.deactivate()
    answers += [
        ask(peer, *call) for call in asked
    ]  # these lie in the middleware: no executor has taken them
    time.sleep(0.5)
    node.cleanup()
    end = time.monotonic() + 20.0
    while not all(answer.done() for answer in answers):
        assert time.monotonic() < end, [answer.done() for answer in answers]
        peer.executor.spin_once(timeout_sec=0.05)
    for (kind, _), answer in zip(2 * asked, answers, strict=True):
        if kind is Trigger:
            assert answer.result().success or answer.result().message


def test_calls_that_never_stop_are_all_answered_through_cleanup_and_configure(tmp_path):
    """Services that went with the map took with them what was on the way to them: one call in ten of such a stream."""
    with (
        NodeProcess(
            tmp_path,
            max_inducing=60,
            learn_hyperparameters=False,
            lengthscale=0.6,
            save_directory=str(tmp_path),
        ) as node,
        Peer() as peer,
    ):
        peer.wait_for_node()
        kinds = {"pause": SetBool, "get_mean": GetMap, "clear": Trigger, "survey/stop": Trigger}
        for name, kind in kinds.items():
            peer.clients[name] = peer.node.create_client(kind, f"/mapping/{name}")
        peer.clients["change"] = peer.node.create_client(ChangeState, "/mapping/change_state")
        assert all(client.wait_for_service(timeout_sec=60.0) for client in peer.clients.values())
        peer.drive(0.0, 2.0)
        answers = []
        for transition in (
            Transition.TRANSITION_DEACTIVATE,
            Transition.TRANSITION_CLEANUP,
            Transition.TRANSITION_CONFIGURE,
            Transition.TRANSITION_ACTIVATE,
        ):
            changed = peer.clients["change"].call_async(
                ChangeState.Request(transition=Transition(id=transition))
            )
            begin = time.monotonic()
            while not changed.done() or time.monotonic() - begin < 0.5:
                for name, kind in kinds.items():
                    answers.append(peer.clients[name].call_async(kind.Request()))
                peer.spin(0.03)
            assert changed.result().success
        peer.until(
            lambda: all(answer.done() for answer in answers), 30.0, "calls without an answer"
        )
        said = " ".join(getattr(answer.result(), "message", "") for answer in answers)
        assert len(answers) > 200 and "activate it first" in said and "configured" in said, said[
            -300:
        ]
        assert node.stop() == 0 and "Traceback" not in node.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_delivered_before_a_signal_is_in_the_map(tmp_path, number):
    """The signal comes right after the last message, twice: to the node, that is one."""
    quick = {
        "max_inducing": 60,
        "learn_hyperparameters": False,
        "reliable_inputs": True,
        "max_wait": 60.0,
        "lengthscale": 0.6,
        **STARTS,
    }
    with (
        NodeProcess(
            tmp_path,
            **quick,
            save_on_exit=True,
            input_queue_depth=20000,
            save_directory=str(tmp_path),
        ) as node,
        Peer() as peer,
    ):
        peer.wait_for_node()
        peer.drive(0.0, 20.0, rate=50, speed=60.0)
        peer.field_publisher.wait_for_all_acked()
        peer.odometry_publisher.wait_for_all_acked()
        node.process.send_signal(number)
        time.sleep(0.2)
        node.process.send_signal(number)
        assert node.process.wait(60) == 0, node.log
    from gp_mapping.store.checkpoint import load_checkpoint

    assert load_checkpoint(tmp_path / "map.gpm")["raw_count"] == 1001


def answered_during(peer, work, kind, name, request) -> tuple[list, list[float], float]:
    """The answers to calls made one after another while work (a Future, or a process) goes on, and their times, s."""
    client = peer.clients.get(name) or peer.node.create_client(kind, name)
    peer.clients[name] = client
    begin, answers, waits = time.monotonic(), [], []
    while not work():
        asked, answer = time.monotonic(), client.call_async(request)
        while not (answer.done() or work()):
            peer.executor.spin_once(timeout_sec=0.02)
        if answer.done():
            answers.append(answer.result())
            waits.append(time.monotonic() - asked)
        assert time.monotonic() - begin < 120.0
    return answers, waits, time.monotonic() - begin


def test_while_a_transition_or_the_end_saves_the_map_everybody_else_is_answered(tmp_path):
    with (
        NodeProcess(tmp_path, **LARGE, save_directory=str(tmp_path), save_on_exit=True) as node,
        Peer() as peer,
    ):

        def change(transition):
            return peer.clients["change"].call_async(
                ChangeState.Request(transition=Transition(id=transition))
            )

        peer.wait_for_node()
        peer.clients["change"] = peer.node.create_client(ChangeState, "/mapping/change_state")
        peer.call(GetState, "/mapping/get_state", GetState.Request(), again=2.0)
        peer.until(peer.clients["change"].service_is_ready)
        peer.drive(0.0, 6.0, rate=100, speed=4.0)
        peer.settle()
        deactivated = change(Transition.TRANSITION_DEACTIVATE)
        peer.until(deactivated.done)
        assert deactivated.result().success

        seen, cleaned = peer.statuses, change(Transition.TRANSITION_CLEANUP)
        peer.spin(0.2)
        refused = change(Transition.TRANSITION_ACTIVATE)
        states, waits, took = answered_during(
            peer, cleaned.done, GetState, "/mapping/get_state", GetState.Request()
        )
        assert (
            cleaned.result().success
            and (tmp_path / "map.gpm").is_file()
            and (tmp_path / "map.png").is_file()
        )
        assert took > 0.3, "too quick to say anything"
        assert (
            len(states) >= 5
            and states[0].current_state.label == "cleaningup"
            and max(waits) < 0.5 * took
        )
        assert refused.done() and not refused.result().success
        assert peer.statuses > seen

        for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
            done = change(transition)
            peer.until(done.done)
            assert done.result().success
        peer.wait_for_node()
        peer.drive(0.0, 6.0, rate=100, speed=4.0)
        peer.settle()
        node.process.send_signal(signal.SIGINT)
        peer.spin(0.2)
        states, waits, took = answered_during(
            peer,
            lambda: node.process.poll() is not None,
            GetState,
            "/mapping/get_state",
            GetState.Request(),
        )
        assert node.process.returncode == 0 and len(states) >= 5 and max(waits) < 0.5 * took
        assert (
            "is not possible while the node is in state 'cleaningup'" in node.log
            and "Traceback" not in node.log
        )
        assert node.log.count("saved checkpoint") == 2
