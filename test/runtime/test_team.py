"""Robots that make one map, without ROS: the sum is the map of all data, whatever becomes of the messages."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from team_scene import CLOSE, QUICK, Mapper, difference, drives, exchange, session_of

from benchmark.robots import Robot, drive, world_of
from gp_mapping.core.stored import StoredState
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.incoming import MemoryPool, Source
from gp_mapping.runtime.team.outgoing import Outgoing
from gp_mapping.runtime.team.summing import Member, sum_maps
from gp_mapping.runtime.team.team import Team
from gp_mapping.runtime.team.totals import totals_of
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.sim.robot import lawnmower
from gp_mapping.store.message import encode

X = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 3.0, (80, 2)))


def messages_of(session, name="robot1", number=None) -> list[bytes]:
    """All parts of a session's totals, as they are sent."""
    out = Outgoing(name, session.map.slimmed)
    out.update(totals_of(session))
    found, now = [], 0.0
    while (part := out.due(now, 1e9, 1.0, 1e9)) is not None:
        message = out.message(part)()
        found.append(message[0])
        out.mark_sent(*message, now)
        now += 1.0
    return found


def source_of(*sessions, name="robot1", most=100.0) -> Source:
    source = Source(name, MemoryPool(most))
    for session in sessions:
        for message in messages_of(session, name):
            assert source.accept(message, 0.0), source.noise
    return source


def members_of(*sources) -> list[Member]:
    return [Member(g.source.name, g.map_id, g.state, g.version) for s in sources for g in s.ready()]


def own_of(session) -> Member:
    totals = totals_of(session)
    return Member(
        "this robot", totals.map_id, lambda: totals.state, ("own", totals.number), own=True
    )


def sum_of(*members, settings=None, frame="", transforms=None, **more):
    return sum_maps(members, settings or MapSettings(**QUICK), frame, "", transforms or {}, **more)


# ---- the sum -----------------------------------------------------------------------------------------------------


def test_the_sum_is_the_map_of_all_data():
    one, two = (session_of(part, **CLOSE) for part in drives())
    both = session_of(*drives(), **CLOSE)
    made = sum_of(*members_of(source_of(one), source_of(two, name="robot2")), settings=one.settings)
    assert len(made.used) == 2 and not made.failed and not made.refused and not made.notes
    assert max(difference(made.session, both, X)) < 0.1
    assert made.session.cell_count == both.cell_count and made.session.raw_count == both.raw_count
    assert made.session.report()["path_length"] == pytest.approx(both.report()["path_length"])
    # with the same inputs: as the maps themselves merge
    merged = copy.deepcopy(one)
    merged.merge(two)
    assert max(difference(made.session, merged, X)) < 1e-4


@pytest.mark.parametrize("model", ["solve_gp", "fitc", "exact", "wiski"])
def test_the_sum_of_any_model(model):
    settings = QUICK | {"model": model}
    one, two = (session_of(part, **settings) for part in drives())
    made = sum_of(*members_of(source_of(one), source_of(two, name="robot2")), settings=one.settings)
    assert len(made.used) == 2, (made.failed, made.refused)
    one.merge(two)
    assert max(difference(made.session, one, X)) < 0.1


def test_the_order_of_robots_changes_nothing_and_own_data_count_once():
    one, two = (session_of(part, **QUICK) for part in drives())
    a, b = source_of(one), source_of(two, name="robot2")
    made = sum_of(*members_of(a, b))
    again = sum_of(*members_of(b, a))
    assert torch.equal(made.session.predict(X).mean, again.session.predict(X).mean)
    alone = sum_of(own_of(one))
    assert max(difference(alone.session, one, X)) < 1e-6
    # a robot that is told to merge itself, too
    twice = sum_of(own_of(one), *members_of(a, b))
    assert len(twice.used) == 2 and [r for _, r, _ in twice.refused] == ["same_map"]
    assert twice.session.cell_count == made.session.cell_count


def test_the_robot_is_where_its_own_map_has_it():
    """Whatever the others are called, and however far they drove; of one saved map its own copy counts."""
    one, two = (session_of(part, **QUICK) for part in drives())
    for name in ("a", "z"):
        made = sum_of(*members_of(source_of(two, name=name)), own_of(one))
        assert len(made.used) == 2 and made.session.position == one.position
        areas = made.session.path_trace.extent.choose_drawn(lambda low, high: True, 0.1)[0]
        assert areas[0].place == one.position
    again = sum_of(*members_of(source_of(one, name="copy")), own_of(one))
    assert [m.own for m in again.used] == [True]
    assert [(m.name, reason) for m, reason, _ in again.refused] == [("copy", "same_map")]


def test_learned_hyperparameters_are_agreed_on():
    settings = QUICK | {
        "learn_hyperparameters": True,
        "lengthscale": 0.0,
        "signal_stddev": 0.0,
        "noise_stddev": 0.0,
        "constant_stddev": 0.0,
        "inducing_information": 0.0,
        "max_inducing": 500,
    }
    one, two = (session_of(part, **settings) for part in drives())
    made = sum_of(*members_of(source_of(one), source_of(two, name="robot2")), settings=one.settings)
    lengths = sorted(s.map.hyperparameters()["lengthscale"] for s in (one, two))
    assert (
        lengths[0] <= made.theta["lengthscale"] * 1.05
        and made.theta["lengthscale"] <= lengths[1] * 1.05
    )
    assert len(made.used) == 2
    # it predicts what neither has seen as well as the map of both
    assert made.session.predict(X).variance.mean() < one.predict(X).variance.mean()


def test_strangers_are_refused_in_one_sentence():
    one, two = (session_of(part, **QUICK) for part in drives())
    elsewhere = session_of(drives()[1], frame="map", **QUICK)
    gas = session_of(drives()[1], quantity="gas", **QUICK)
    other = session_of(drives()[1], **(QUICK | {"kernel": "matern32"}))
    for stranger, reason, word in (
        (elsewhere, "other_frame", "merge_transforms"),
        (gas, "other_quantity", "gas"),
        (other, "other_settings", "kernel"),
    ):
        made = sum_of(own_of(one), *members_of(source_of(stranger, name="robot2")), frame="odom")
        assert [r for _, r, _ in made.refused] == [reason] and word in made.refused[0][2]
        assert "\n" not in made.refused[0][2] and len(made.used) == 1
        assert max(difference(made.session, one, X)) < 1e-6
    assert (
        len(sum_of(own_of(one), *members_of(source_of(two, name="robot2")), frame="odom").used) == 2
    )


def test_a_map_for_which_there_is_no_room_leaves_no_trace_in_the_sum():
    """Its neighbours' paths are theirs, its constants are not agreed on, and it may be added later."""
    settings = QUICK | {"model": "exact", "max_exact_samples": 150}
    part = drives()[0]
    sessions = {
        f"robot{i}": session_of(part[cut], **settings)
        for i, cut in enumerate((slice(0, 250), slice(250, 1250), slice(1250, 1450)))
    }
    for name, session in sessions.items():
        session.about["map_id"] = f"map of {name}"
    a, b, c = (member for n, s in sessions.items() for member in members_of(source_of(s, name=n)))
    made = sum_of(a, b, c, settings=sessions["robot0"].settings)
    assert made.used == [a, c] and [(m, r) for m, r, _ in made.refused] == [(b, "not_merged")]
    assert "exceed max_exact_samples 150" in made.refused[0][2] and not made.failed
    assert len(made.touched) == 2
    for name, touched in zip(("robot0", "robot2"), made.touched):
        assert torch.equal(touched, sessions[name].path_trace.points()), name
    assert made.session.about["made_of"] == ["map of robot0", "map of robot2"]
    # what goes on from the map that was left out is not in the sum twice
    sessions["robot2"].about["made_of"] = ["map of robot1"]
    (child,) = members_of(source_of(sessions["robot2"], name="robot2"))
    again = sum_of(a, b, child, settings=sessions["robot0"].settings)
    assert again.used == [a, child] and [m for m, *_ in again.refused] == [b]


def test_where_a_map_has_gone_or_changed_is_told_and_nowhere_else():
    one, two = (session_of(part, **QUICK) for part in drives())
    a, b = members_of(source_of(one)) + members_of(source_of(two, name="robot2"))
    both = sum_of(a, b)
    unchanged = sum_of(a, b, before=both)
    later = sum_of(replace(a, version=("later",)), b, before=both)
    without = sum_of(a, before=both)
    paths = one.path_trace.points(), two.path_trace.points()
    for made, touched in ((both, paths), (unchanged, ()), (later, paths[:1]), (without, paths[1:])):
        assert len(made.touched) == len(touched)
        assert all(torch.equal(*pair) for pair in zip(made.touched, touched))


def test_a_robot_in_another_frame_is_moved():
    one, two = (session_of(part, **QUICK) for part in drives())
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    part, shift = drives()[1], torch.tensor([5.0, 2.0], dtype=torch.float64)
    there = type(part)(
        (part.x - shift) @ turn, part.y, stamp=part.stamp, heading=part.heading @ turn
    )
    other = session_of(there, frame="map", **QUICK)
    made = sum_of(
        own_of(one),
        *members_of(source_of(other, name="robot2")),
        frame="odom",
        transforms={"robot2": (5.0, 2.0, np.pi / 2)},
    )
    assert len(made.used) == 2 and made.session.about["frame"] == "odom"
    expected = sum_of(own_of(one), *members_of(source_of(two, name="robot2")), frame="odom")
    # the turned robot's cells, and so its inputs, are the same to rounding of its path
    assert max(difference(made.session, expected.session, X)) < 0.3


def test_a_map_that_cannot_be_turned_keeps_no_other_out():
    session = session_of(drives()[0][:900], **(QUICK | {"model": "wiski"}))
    session.about["map_id"] = "of both"
    a, b = members_of(source_of(session), source_of(session, name="robot2"))
    made = sum_of(a, b, settings=session.settings, transforms={"robot1": (0.0, 0.0, 0.5)})
    assert [(m, r) for m, r, _ in made.refused] == [(a, "cannot_be_moved")] and made.used == [b]


def test_delays_that_differ_are_said_and_stay_each_robots_own():
    one = session_of(drives()[0], **QUICK)
    late = session_of(drives()[1], **(QUICK | {"time_offset": 0.3}))
    made = sum_of(*members_of(source_of(one), source_of(late, name="robot2")))
    assert len(made.notes) == 1 and "0.3 s late" in made.notes[0]


def test_maps_of_tiles_go_tile_by_tile():
    """Each in a message of its own, those on the shelf, too; the sum is as the maps themselves merge."""
    tiled = QUICK | {
        "max_inducing": 60,
        "memory_size": 150,
        "map_tile_side": 3.0,
        "lengthscale": 0.3,
        "cell_length": 0.2,
        "tiles_in_memory": 9,
    }
    world = world_of(3, 9.0, 4.0)
    one = session_of(drive(Robot(speed=2.0), world, lawnmower(0.4, 0.4, 8.6, 2.0, 0.4), 3), **tiled)
    two = session_of(
        drive(Robot(speed=2.0), world, lawnmower(0.4, 1.8, 8.6, 3.6, 0.4), 4, 1001.0), **tiled
    )
    assert min(one.report()["tiles"], two.report()["tiles"]) > 9 == one.report()["tiles_in_memory"]
    source = source_of(one)
    told = source.status(0.0)
    assert told["tiles"] == one.report()["tiles"] and told["received"] == told["tiles"] + 1
    incomplete = Source("robot1", MemoryPool(100.0))
    for message in messages_of(one)[:-1]:
        incomplete.accept(message, 0.0)
    assert not incomplete.ready(), "a map of which a tile is missing is no map"
    made = sum_of(*members_of(source, source_of(two, name="robot2")), settings=one.settings)
    one.merge(two)
    assert len(made.used) == 2 and max(difference(made.session, one, one.path[::9])) < 1e-3


# ---- messages ----------------------------------------------------------------------------------------------------


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
        assert not source.accept(data, 1.0) and source.noise and "\n" not in source.noise
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
        and "merge_memory" in source.noise
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
    assert not sent(3) and source.dropped == {"memory_full": 1} and "merge_memory" in source.noise
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


# ---- mappers -----------------------------------------------------------------------------------------------------


def test_two_mappers_show_one_map_though_a_fifth_of_the_messages_is_lost():
    parts = drives()
    both, begun = session_of(*parts, **CLOSE), MapSession(MapSettings(**CLOSE))
    begun.ingest(parts[0][:700])
    begun.about = dict(both.about)
    with (
        Mapper("robot1", begun, ["robot2"], merge_period=0.5) as one,
        Mapper("robot2", session_of(parts[1], **CLOSE), ["robot1"], merge_period=0.5) as two,
    ):
        own = one.worker.call(lambda session: session.raw_count)
        now = exchange([one, two], 5.0, loss=0.2, repeat=0.3, seed=3)
        assert own.result() == 700
        one.worker.call(
            lambda session: [session.ingest(parts[0][700:]), session.break_pass()]
        ).result(30)
        wanted = both.cell_count
        now = exchange(
            [one, two],
            120.0,
            now,
            loss=0.2,
            repeat=0.3,
            shuffle=True,
            seed=4,
            until=lambda: one.cells() == wanted == two.cells(),
        )
        assert one.cells() == wanted == two.cells(), (
            one.errors,
            one.team.status(now),
            two.team.status(now),
        )
        for mapper in (one, two):
            assert max(difference(mapper, both, X)) < 0.1
            # what is its own stays its own
            mine = mapper.worker.call(lambda session: session.cell_count).result()
            assert mine < wanted and not mapper.errors
        values, notes = one.team.status(now)
        assert values["robots in the map"] == 2 and values["robot2 maps"] == 1 and not notes
        assert values["sent bytes"] > 10_000 and values["robot2 version"] > 100

        # the end of the other: its totals stay
        exchange([one], 30.0, now)
        assert one.cells() == wanted
    assert not one.errors and not two.errors


def test_a_cleared_map_goes_everywhere():
    parts = drives()
    with (
        Mapper("robot1", session_of(parts[0], **QUICK), ["robot2"], merge_period=0.5) as one,
        Mapper("robot2", session_of(parts[1], **QUICK), ["robot1"], merge_period=0.5) as two,
    ):
        now = exchange(
            [one, two],
            60.0,
            until=lambda: len(one.team.status(0.0)[0]) and one.cells() == two.cells(),
        )
        assert one.cells() == two.cells()
        theirs = two.worker.call(lambda session: session.cell_count).result()
        one.worker.clear().result(10)
        now = exchange([one, two], 60.0, now, until=lambda: one.cells() == theirs)
        assert one.cells() == theirs, (
            "what is the other robot's was cleared, too, or what was cleared is still there"
        )
        one.worker.call(lambda session: session.ingest(parts[0][:900])).result(30)
        mine = one.worker.call(lambda session: session.cell_count).result()
        exchange([one, two], 60.0, now, until=lambda: two.cells() == theirs + mine)
        assert two.cells() == theirs + mine and not one.errors and not two.errors


def test_a_sum_that_fails_is_said_once_and_tried_again(monkeypatch):
    plain, failed = vars(Team)["_take_sum"], []

    def at_first(team, found, now):
        if len(failed) < 3:
            failed.append(now)
            raise OSError("no space left")
        plain(team, found, now)

    monkeypatch.setattr(Team, "_take_sum", at_first)
    parts = [part[:300] for part in drives()]
    wanted = session_of(*parts, **QUICK).cell_count
    with (
        Mapper("robot1", session_of(parts[0], **QUICK), ["robot2"], merge_period=0.5) as one,
        Mapper("robot2", session_of(parts[1], **QUICK), ["robot1"]) as two,
    ):
        exchange([one, two], 60.0, until=lambda: one.cells() == wanted)
        assert one.cells() == wanted and len(failed) == 3
        told = one.errors + two.errors  # each says it once
        assert (
            set(told) == {"the robots' maps could not be added: OSError('no space left')"}
            and len(told) <= 2
        )


def test_a_robot_that_cannot_be_added_is_counted_once_for_each_version_of_its_totals():
    own, theirs = (part[:200] for part in drives())
    with Mapper(
        "robot1", session_of(own, **QUICK), ["robot2"], publish_tiles=False, merge_period=0.1
    ) as one:
        source = one.team.sources["robot2"]
        for message in messages_of(session_of(theirs, frame="map", **QUICK)):
            assert one.team.accept("robot2", message)
        now = exchange([one], 100.0, until=lambda: one.team.sums)
        assert source.dropped == {"other_frame": 1} and "merge_transforms" in source.problem
        one.worker.call(lambda session: session.ingest(drives()[0][200:210])).result(10)
        exchange([one], 100.0, now, until=lambda: one.team.sums > 1)
        assert one.team.sums == 2 and source.dropped == {"other_frame": 1} and not one.errors
