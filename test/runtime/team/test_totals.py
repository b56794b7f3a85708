"""Totals over a bad link: loss, repetition, order, hostile messages and bounds."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from team_scene import (
    QUICK,
    difference,
    drives,
    members_of,
    messages_of,
    session_of,
    source_of,
    sum_of,
)

from gp_mapping.core.stored import StoredState
from gp_mapping.intake.sensors.sketch import MEASURED
from gp_mapping.mapping.scoring.change import Change
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.incoming import MemoryPool, Source
from gp_mapping.runtime.team.outgoing import Outgoing
from gp_mapping.runtime.team.summing import Member
from gp_mapping.runtime.team.totals import totals_of
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.store.message import encode

X = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 2.2, (80, 2)))


def test_loss_repetition_and_order_change_nothing():
    young, session = session_of(drives()[0][:800], **QUICK), session_of(drives()[0][:800], **QUICK)
    session.about["map_id"] = young.about["map_id"] = "m"
    early = messages_of(young)
    session.ingest(drives()[0][800:])
    late = messages_of(session)
    versions = set()
    for order in (early + late, late + early, late, late * 3 + early * 2):
        source = Source("robot1", MemoryPool(100.0))
        for message in order:
            source.accept(message, 0.0)
        versions.add(tuple(g.version for g in source.ready()))
        assert not source.dropped
    assert len(versions) == 1


def test_messages_leave_out_which_measurements_were_taken():
    """It takes 22 kB; a map's id tells what would count twice."""
    session = session_of(drives()[0], **QUICK)
    about = dict(session.about)
    session.about = about | {MEASURED: "x" * 22000}
    sent = totals_of(session).state["about"]
    assert MEASURED not in sent and sent.items() >= about.items()


def test_an_alarm_that_waits_is_the_robots_own():
    """It may turn out to be of its poses: nobody else forgets for it."""
    session = session_of(drives()[0], **QUICK)
    run = session.scores.run
    run.alarms, run.displaced_count = [Change(1.0, 1.0, 2.0, 3e-6)], 1
    told = totals_of(session).state["scores"]["run"]
    assert not told["alarms"] and told["displaced_count"] == 1 and len(run.alarms) == 1


def test_a_robot_started_anew_stays_and_one_that_was_cleared_goes():
    first, second = session_of(drives()[0], **QUICK), session_of(drives()[1], **QUICK)
    source = source_of(first, second)  # a restart: two maps, none of whose data is in the other
    assert len(source.ready()) == 2
    assert sum_of(*members_of(source)).session.cell_count == first.cell_count + second.cell_count

    out = Outgoing("robot1", first.map.slimmed)
    out.update(totals_of(first))
    out.update(
        totals_of(second)
    )  # the same process begins another map: the first one was thrown away
    source, cleared = source_of(first), out.message(out.due(0.0, 1e9, 1.0, 1.0))()[0]
    assert source.accept(cleared, 0.0) and len(source.ready()) == 1
    assert (
        source.accept(messages_of(first)[0], 0.0) and len(source.ready()) == 1
    )  # late, and out of date
    assert source.status(0.0)["repeated"] == 1 and source.status(0.0)["received"] == 3


@pytest.fixture(scope="module")
def good():
    session = session_of(drives()[0][:900], **QUICK)
    session.about["map_id"] = "good"
    return session, messages_of(session)[0]


def test_hostile_messages_are_counted_and_leave_the_sum_as_it_was(good):
    session, message = good
    source = source_of(session)
    before = sum_of(*members_of(source))
    for given in source.ready():
        source.mark_added(given)
    rng = np.random.default_rng(0)
    hostile = [
        b"",
        rng.bytes(1000),
        message[:-1],
        message[:50],
        message + b"x",
        b"GPMT" + rng.bytes(5000),
        encode({}, {}),
        encode({"map": "good", "part": "head", "number": 10**30, "instead": []}, {}),
        encode({"map": "good", "part": "head", "number": -1, "instead": []}, {"map": {}}),
        encode({"map": "good", "part": "head", "number": 10**9, "instead": ["good"]}, {"map": {}}),
        encode({"map": 3, "part": [], "number": "x", "instead": 0}, {"map": {}}),
    ]
    for data in hostile:
        assert not source.accept(data, 1.0) and source.fault and "\n" not in source.fault
    assert sum(source.dropped.values()) == len(hostile) == source.received - 1
    assert {"not_tiles", "damaged", "malformed"} <= source.dropped.keys()
    # well-formed, of a good address, and of no use: found when it is added, and what was good counts again
    totals = totals_of(session)
    for number, wrong in enumerate(
        [
            {"map": {}},
            {"map": StoredState("x")},
            {"map": {"__part__": "x"}},
            totals.state | {"map": totals.state["map"] | {"memory": {}}},
            totals.state
            | {"map": totals.state["map"] | {"basis": {"z": 1e300 * torch.ones(5, 2).double()}}},
            totals.state | {"scores": None},
            totals.state | {"path": {"points": torch.zeros(1)}},
            totals.state | {"channels": 3},
            dict.fromkeys(totals.state, 1),
        ]
    ):
        source.accept(
            encode({"map": "good", "part": "head", "number": 10**6 + number, "instead": []}, wrong),
            2.0,
        )
        made = sum_of(*members_of(source))
        for member, why in made.failed:
            given = next(g for g in source.ready() if g.version == member.version)
            source.mark_failed(given, why)
        made = sum_of(*members_of(source))
        assert not made.failed and torch.equal(
            made.session.predict(X).mean, before.session.predict(X).mean
        ), number
    assert source.dropped["unusable"] >= 5


def test_what_is_kept_is_bounded(good):
    session, message = good
    source = Source("robot1", MemoryPool(0.5 * len(message) / 1e6))
    assert (
        not source.accept(message, 0.0)
        and source.dropped == {"memory_full": 1}
        and "merge_memory" in source.fault
    )
    told = source.status(0.0)
    assert (told["maps"], told["version"], told["received"]) == (0, 0, 1), "nothing of it is there"
    source = Source("robot1", MemoryPool(1e3))
    for i in range(12):
        session.about["map_id"] = f"map {i}"
        for each in messages_of(session):
            source.accept(each, float(i))
    assert len(source.ready()) == 8 and source.dropped["too_many_maps"] == 4
    session.about["map_id"] = "good"


def sums(source) -> int:
    """Sum while there is news, as a Team does; how many sums that took."""
    made, news = 0, -1
    while news != source.news:
        news, made = source.news, made + 1
        given = {g.version: g for g in source.ready()}
        out = sum_of(*members_of(source))
        for member in out.used:
            source.mark_added(given[member.version])
        for member, why in out.failed:
            source.mark_failed(given[member.version], why)
    return made


@pytest.mark.parametrize("before", [True, False], ids=["good before", "never good"])
def test_totals_that_are_unusable_are_tried_once_though_they_come_in_every_round(good, before):
    session, message = good
    source = source_of(session) if before else Source("robot1", MemoryPool(100.0))
    totals = totals_of(session)
    sums(source)

    def sent(number, state) -> None:
        about = {"map": "good", "part": "head", "number": number, "instead": []}
        assert source.accept(encode(about, state), 1.0)

    wrong = totals.state | {"scores": None}
    sent(10**6, wrong)
    sums(source)
    assert source.dropped == {"unusable": 1} and "totals of robot1 are dropped" in source.problem
    news = source.news
    for _ in range(3):
        sent(10**6, wrong)
    assert source.news == news and source.dropped == {"unusable": 1} and source.repeated == 3
    assert len(source.ready()) == before and source.problem, "it is still so"
    sent(10**6 + 1, totals.state)  # what comes next is tried, also a smaller number
    sums(source)
    assert not source.problem and len(source.ready()) == 1
    assert source.status(2.0)["version"] == 10**6 + 1


def test_parts_that_are_kept_until_newer_ones_are_in_a_sum_count(good):
    session, message = good
    holdings = MemoryPool(2.5 * len(message) / 1e6)
    source, state = Source("robot1", holdings), totals_of(session).state

    def sent(number: int) -> bool:
        about = {"map": "good", "part": "head", "number": number, "instead": []}
        return source.accept(encode(about, state), 1.0)

    assert sent(1)
    sums(source)
    one = holdings.used
    assert sent(2) and 1.9 * one < holdings.used < 2.1 * one, "the first is in the sum"
    source.ready()  # a sum of the second begins
    assert not sent(3) and source.dropped == {"memory_full": 1} and "merge_memory" in source.fault
    assert source.status(1.0)["version"] == 2
    sums(source)
    assert holdings.used < 1.1 * one and sent(3)
    source.accept(
        encode({"map": "b", "part": "head", "number": 1, "instead": ["good"]}, {"map": {}}), 2.0
    )
    assert holdings.used < 0.1 * one, "all of it is free again"


def test_a_disk_that_is_full_is_no_fault_of_the_totals(good):
    def full() -> dict:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space left"):
        sum_of(Member("robot1", "good", full, ()))


def test_bytes_per_second_are_bounded(good):
    session, message = good
    out, sent = Outgoing("robot1", session.map.slimmed), []
    totals = totals_of(session)
    for step in range(6000):  # 10 min, a change every second
        now = 0.1 * step
        if step % 10 == 0:
            out.update(type(totals)(totals.map_id, totals.number + step, totals.state, totals.key))
        if (part := out.due(now, 20e3, 2.0, 20.0)) is not None:
            made = out.message(part)()
            out.mark_sent(*made, now)
            sent.append((now, len(made[0])))
    total = sum(n for _, n in sent)
    assert 0.5 * 600 * 20e3 < total <= 601 * 20e3 + len(message) + 1000
    assert all(
        sum(n for t, n in sent if a <= t <= a + 100.0) <= 101 * 20e3 + 2 * len(message)
        for a in np.arange(0.0, 500.0, 50.0)
    )


def test_nothing_is_sent_again_before_its_round(good):
    session, _ = good
    out, times = Outgoing("robot1", session.map.slimmed), []
    out.update(totals_of(session))
    for step in range(1000):
        if (part := out.due(0.1 * step, 1e9, 2.0, 20.0)) is not None:
            out.mark_sent(*out.message(part)(), 0.1 * step)
            times.append(0.1 * step)
    assert np.diff(times).min() >= 19.9 and len(times) == 5


def test_a_map_that_replaces_another_while_that_is_encoded_is_due_at_once(good):
    session, _ = good
    out, totals = Outgoing("robot1", session.map.slimmed), totals_of(session)
    out.update(replace(totals, number=50))
    encoded = out.message(out.due(0.0, 1e9, 2.0, 60.0))
    out.update(replace(totals, map_id="another", number=3))
    out.mark_sent(*encoded(), 0.1)
    assert out.due(0.2, 1e9, 2.0, 60.0) == "head" and out.waiting == 1


def test_a_map_that_begins_again_takes_the_place_of_what_was_sent_of_it():
    """A slow sensor is found on the way; the cells that are kept for that are not sent."""
    settings = MapSettings(**(QUICK | {"learn_response_time": "always", "cell_length": 0.1}))
    session, source = MapSession(settings), Source("robot1", MemoryPool(100.0))
    out, last = Outgoing("robot1", session.map.slimmed), None
    for now, start in ((0.0, 0), (10.0, 500)):
        sample, told = drives()[0][start : start + 500], []
        # a sensor of first order, with a time constant of 1 s
        for y, t in zip(sample.y[:, 0].tolist(), sample.stamp.tolist()):
            a = 0.0 if last is None else math.exp(last[1] - t)
            last = a * (last[0] if last else 0.0) + (1.0 - a) * y, t
            told.append(last[0])
        session.ingest(replace(sample, y=torch.tensor(told, dtype=torch.float64)[:, None]))
        if start:
            session.flush()  # the search ends with the drive at the latest
        assert session.response.found == (start > 0)

        out.update(totals_of(session))
        message = out.message(out.due(now, 1e9, 1.0, 1e9))()
        assert source.accept(message[0], now)
        out.mark_sent(*message, now)
        (given,) = source.ready()
        assert given.state()["response"]["kept"] is None
        told = sum_of(*members_of(source), settings=settings).session
        assert told.cell_count == session.cell_count and max(difference(told, session, X)) < 1e-6


def test_of_two_mappers_under_one_name_one_counts():
    """Both go on; a robot that was restarted sends nothing more of the map before."""
    first, second = session_of(drives()[0][:300], **QUICK), session_of(drives()[0][20:300], **QUICK)
    ours, theirs = messages_of(first), messages_of(second)
    source = Source("robot1", MemoryPool(100.0))
    for now in (0.0, 10.0, 20.0):
        assert all(source.accept(message, now) for message in (*ours, *theirs))
    assert len(source.ready()) == source.status(20.0)["maps"] == 2 and not source.rivals
    news = source.news
    for message in (*theirs, *ours):
        source.accept(message, 40.0)
    assert [given.map_id for given in source.ready()] == [first.about["map_id"]]
    assert source.status(40.0)["maps"] == source.dropped["two_mappers"] == 1
    assert source.news > news and "two mappers send maps as robot1" in source.rivals
