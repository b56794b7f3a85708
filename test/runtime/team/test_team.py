"""Mappers that make one map, each with a worker of its own, without ROS."""

import numpy as np
import torch
from team_scene import CLOSE, QUICK, Mapper, difference, drives, exchange, messages_of, session_of

from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.team.team import Team
from gp_mapping.settings.mapping import MapSettings

X = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 2.2, (80, 2)))


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
        assert values["sent bytes"] > 10_000 and values["robot2 version"] > 50

        # the end of the other: its totals stay
        exchange([one], 30.0, now)
        assert one.cells() == wanted
    assert not one.errors and not two.errors


def test_a_robot_whose_own_map_does_not_fit_says_that_it_is_not_shown():
    """Its own mean would be of the others alone, and nothing but the log said so."""
    stranger, of = session_of(drives()[0], **(QUICK | {"anisotropy": 2.0})), MapSettings(**QUICK)
    with Mapper("robot1", stranger, ["robot2"], of, merge_period=0.2) as one:
        for message in messages_of(session_of(drives()[1], **QUICK), "robot2"):
            one.team.accept("robot2", message)

        def said():
            return [text for text in one.team.status(0.0)[1] if "own map is not in" in text]

        exchange([one], 60.0, until=said)
        assert "anisotropy" in said()[0]


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
        # also from the other's sum, before there is a new map in its place
        now = exchange([one, two], 60.0, now, until=lambda: two.cells() == theirs)
        assert two.cells() == theirs and "robot1 age (s)" in two.team.status(now)[0]
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


def test_the_frame_of_a_sum_is_that_of_its_map_and_there_is_none_without_it():
    parts = drives()
    with (
        Mapper("robot1", session_of(parts[0], **QUICK), ["robot2"], merge_period=0.5) as one,
        Mapper("robot2", session_of(parts[1], **QUICK), [], merge_period=0.5) as two,
    ):
        assert one.team.merging and not two.team.merging and one.team.frame == ""
        values, notes = one.team.status(0.0)
        assert values["sums"] == values["robots in the map"] == 0 and values["parts"] == 0
        assert "no totals of robot2 yet" in notes[0]
        now = exchange([one, two], 60.0, until=lambda: one.team.sums > 0)
        assert one.team.frame == "odom" and two.team.frame == ""
        values, _ = one.team.status(now)
        assert values["last sum took (s)"] == one.team.took > 0.0
        assert values["kept of others (MB)"] > 0.01
        assert set(two.team.status(now)[0]) == {"sent", "sent bytes", "parts", "parts that wait"}
        # only what another one has sent is news: nothing is added again
        for _ in range(30):
            now = exchange([one], 1.0, now)
        assert one.team.sums == 1 and not one.errors


def test_a_message_that_cannot_be_made_and_totals_that_cannot_be_taken_are_said(monkeypatch):
    session = session_of(drives()[0], **QUICK)
    with Mapper("robot1", session, []) as one:
        state_dict = session.state_dict
        monkeypatch.setattr(session, "state_dict", lambda: 1 / 0)
        now = exchange([one], 10.0, until=lambda: one.errors)
        assert one.errors and one.errors[0].startswith("the map's totals could not be taken: ")
        monkeypatch.setattr(session, "state_dict", state_dict)
        one.errors.clear()

        def broken(self, name):
            def encoded():
                raise ValueError("the disk is gone")

            return encoded

        with monkeypatch.context() as patch:
            patch.setattr("gp_mapping.runtime.team.outgoing.Outgoing.message", broken)
            now = exchange([one], 20.0, now, until=lambda: one.errors)
        exchange([one], 20.0, now, until=lambda: one.team.status(now)[0]["sent"] > 0)
        assert one.team.status(now)[0]["sent"] > 0
        assert set(one.errors) == {"a message of ~/tiles could not be made: the disk is gone"}


def test_who_does_not_send_makes_no_messages_and_who_does_sends_each_part_once():
    session = session_of(drives()[0], **QUICK)
    with Mapper("robot1", session, [], publish_tiles=False) as silent:
        assert not silent.team.sending
        assert all(silent.team.tick(0.1 * i) is None for i in range(50))
        assert silent.team.status(5.0) == ({}, [])
    with Mapper("robot2", session_of(drives()[1], **QUICK), []) as one:
        exchange([one], 30.0, until=lambda: one.team.status(0.0)[0]["sent"] == 1)
        values, _ = one.team.status(0.0)
        assert (values["sent"], values["parts"], values["parts that wait"]) == (1, 1, 0)
        assert values["sent bytes"] > 1000
