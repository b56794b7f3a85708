"""What diagnostics say, in words and numbers, without ROS."""

import builtins
from dataclasses import replace

import pytest

from gp_mapping.runtime.clock_watch import ClockWatch
from gp_mapping.runtime.health import ERROR, OK, WARN, Health, InputWatch, resident_megabytes
from gp_mapping.runtime.surveying.survey_state import SurveyState
from gp_mapping.runtime.timing import Durations
from gp_mapping.runtime.worker_results import Status


def status_of(made=100.0, **changes) -> Status:
    values = {
        "report": {"samples": 10, "hyperparameters": {"lengthscale": 0.5}},
        "received": {},
        "used": 10,
        "drops": {},
        "explanations": {},
        "warnings": [],
        "waiting": 0,
        "last_stamp": None,
        "queue": 0,
        "counts": {},
        "timings": {"update": {"count": 1, "p50_ms": 2.0}},
    } | changes
    return Status(made=made, **values)


def areas_of(health, now=100.0, status=None, **changes):
    values = {
        "watches": [],
        "paused": False,
        "notes": [],
        "limits": None,
        "published": 0,
        "stamp_age": None,
        "queue": 0,
    } | changes
    return {
        a.name: a for a in health.areas(now=now, status=status or status_of(made=now), **values)
    }


def test_what_waits_for_the_map_is_in_the_sum():
    """On a busy machine the map's thread may be thousands of messages behind."""
    status = status_of(received={"magnetic_field": 70, "odometry": 20}, used=60, waiting=10)
    for enqueued, waiting in ((100, 30), (70, 0), (60, 0)):
        values = areas_of(Health(2.0), status=status, enqueued=enqueued)["input"].values
        assert values["waiting for the map"] == waiting


def test_silence_is_said_in_words_and_ends():
    health, watch = Health(2.0), InputWatch("odometry")
    assert areas_of(health, 0.0, watches=[watch])["input"].message == "ok"
    assert (
        "no odometry since the start 3.0 s ago"
        in areas_of(health, 3.0, watches=[watch])["input"].message
    )
    watch.arrived(4.0)
    assert areas_of(health, 5.0, watches=[watch])["input"].level == OK
    area = areas_of(health, 7.2, watches=[watch])["input"]
    assert (area.level, area.message) == (WARN, "no odometry for 3.2 s")
    assert "no odometry" not in areas_of(health, 8.0, watches=[watch], paused=True)["input"].message


def test_an_inactive_node_hears_nothing_and_that_is_no_silence():
    """What did not come while it was not listened to is no silence afterwards, either."""
    health, watch = Health(2.0), InputWatch("odometry")
    watch.arrived(1.0)
    assert areas_of(health, 9.0, watches=[watch], active=False)["input"].message == "ok"
    watch.open(10.0)
    assert areas_of(health, 11.5, watches=[watch])["input"].message == "ok"
    assert areas_of(health, 12.5, watches=[watch])["input"].message == "no odometry for 2.5 s"


@pytest.mark.parametrize(
    ("publishers", "listening", "words"),
    [
        (0, True, "nobody publishes it; start its driver"),
        (1, False, "no type that can be read"),
        (1, True, "although it has a publisher"),
        (None, True, "although it has a publisher"),
    ],
)
def test_whose_fault_it_is_that_nothing_has_come_yet(publishers, listening, words):
    health, watch = Health(2.0), InputWatch("odometry", label="/robot/odom")
    assert watch.listening and watch.publishers is None
    watch.publishers, watch.listening = publishers, listening
    assert areas_of(health, 10.0, watches=[watch])["input"].level == OK
    area = areas_of(health, 13.0, watches=[watch])["input"]
    assert area.level == WARN and area.message.startswith(
        "no /robot/odom since the start 3.0 s ago"
    )
    assert words in area.message and area.values.get("odometry publishers") == publishers
    assert (
        areas_of(health, 14.0, watches=[InputWatch("tf_static", steady=False)])["input"].level == OK
    )


def test_losses_are_said_while_they_grow_and_a_slow_stream_and_two_clocks_while_they_last():
    health, watch = Health(1e6), InputWatch("odometry", label="/odom")
    for i in range(300):
        watch.stream.add(10**18 + 10**7 * i, 0.01 * i)
    assert areas_of(health, watches=[watch])["input"].message == "ok"
    watch.lost = 4
    area = areas_of(health, watches=[watch])["input"]
    assert (
        area.level == WARN
        and "/odom: about 4 messages lost before they reached the node" in area.message
    )
    assert area.values["odometry lost before the node (about)"] == 4
    watch.stream.unsent = 3
    area = areas_of(health, watches=[watch])["input"]
    assert area.message.startswith("/odom: about 3 messages are missing by its stamps, and the mid")
    assert area.values["odometry left out by its publisher (about)"] == 3
    assert areas_of(health, watches=[watch])["input"].message == "ok"

    for i in range(300):
        watch.stream.add(10**18 + 10**7 * 300 + 5 * 10**7 * i, 3.0 + 0.05 * i)
    watch.lost = 0
    areas_of(
        health, watches=[watch]
    )  # what was lost, as far as that can be told from a rate that has fallen
    for _ in range(2):
        said = areas_of(health, watches=[watch])["input"].message
        assert (
            said
            == "/odom comes at 20 Hz, and came at 100 Hz before: is its driver or the network overloaded?"
        )
    apart, watch.publishers = InputWatch("odometry", label="/odom"), 2
    apart.publishers = 2
    for i in range(400):
        apart.stream.add(10**18 + 10**7 * i + (10**11 if i % 2 else 0), 0.01 * i)
    said = areas_of(health, watches=[apart])["input"].message
    assert (
        "/odom: stamps leap to and fro by 100 s, as of two publishers" in said
        and "it has 2 now" in said
    )
    both = InputWatch("odometry", label="/odom")
    both.publishers = 2
    for i in range(400):
        both.stream.add(10**18 + 10**7 * i, 0.01 * i, i // 2)
    said = areas_of(health, watches=[both])["input"].message
    assert said.startswith(
        "/odom: several publishers send on this topic, and count as one; it has 2"
    )


def test_a_survey_without_a_plan_says_why_and_its_budget_is_told_where_it_has_one():
    state = SurveyState(
        "running",
        "no place is worth a way any more",
        driven=3.0,
        metres_left=7.0,
        area=20.0,
        plans=4,
    )
    area = areas_of(Health(2.0), survey=state)["survey"]
    assert (area.level, area.message) == (WARN, "no plan: no place is worth a way any more")
    assert area.values["budget left (m)"] == 7.0 and "budget left (s)" not in area.values
    assert "share at target_stddev" not in area.values and "goals left out" not in area.values
    on_its_way = replace(state, plan_metres=5.0, closed=2, share_done=0.5)
    area = areas_of(Health(2.0), survey=on_its_way)["survey"]
    assert (
        area.level == OK
        and area.values["reason"] == state.reason
        and area.values["goals left out"] == 2
    )
    assert area.values["share at target_stddev"] == 0.5
    assert areas_of(Health(2.0), survey=replace(state, phase="done"))["survey"].level == OK
    assert "survey" not in areas_of(Health(2.0))
    idle = areas_of(Health(2.0), survey=SurveyState())["survey"].values
    assert "reason" not in idle and "a better plan is looked for" not in idle
    improving = areas_of(Health(2.0), survey=replace(on_its_way, improving=True, forgotten=700.0))
    improving = improving["survey"].values
    assert improving["a better plan is looked for"] == "yes"
    unremembered = "driven, not remembered for the way home (m)"
    assert improving[unremembered] == 700.0 and unremembered not in idle
    assert (idle["driven (m)"], idle["plan (m)"], idle["plans"]) == (0.0, 0.0, 0)


def test_what_a_team_says_of_itself_is_handed_on():
    area = areas_of(Health(2.0), team=({"robots in the map": 2}, ["robot2: another frame"]))["team"]
    assert (area.level, area.message, area.values) == (
        WARN,
        "robot2: another frame",
        {"robots in the map": 2},
    )


def test_levels_are_those_of_the_message_and_the_highest_counts():
    assert (OK, WARN, ERROR) == (0, 1, 2), "as diagnostic_msgs has them"
    area = areas_of(Health(2.0), notes=[(ERROR, "the disk is full"), (WARN, "paused")])["input"]
    assert (area.level, area.message) == (ERROR, "the disk is full; paused")


def test_rate_is_per_second_since_the_last_report():
    watch = InputWatch("odometry")
    assert watch.rate(10.0) == 0.0
    for i in range(100):
        watch.arrived(10.0 + 0.01 * i)
    assert watch.rate(12.0) == 50.0 and watch.rate(13.0) == 0.0
    watch.arrived(13.5)
    assert watch.rate(14.0) == 1.0 and watch.rate(14.0) == 0.0, "no time has passed"


def test_drops_warn_when_they_grow_and_stay_in_the_numbers():
    health = Health(2.0)
    status = status_of(
        drops={"not_finite": 3}, explanations={"not_finite": "NaN came"}, counts={"queue_full": 2}
    )
    first = areas_of(health, status=status)["input"]
    assert (
        first.level == WARN
        and "3 not_finite: NaN came" in first.message
        and "2 queue_full" in first.message
    )
    again = areas_of(health, status=status)["input"]
    assert again.level == OK and again.values["dropped: not_finite"] == 3


def test_only_measurements_stand_under_dropped():
    status = status_of(
        drops={"pose_gap": 4, "pose_lost": 5, "pose_bad_covariance": 6, "fix_no_fix": 11},
        used=90,
        counts={
            "paused": 1,
            "lost_by_error": 2,
            "pose_paused": 7,
            "service_busy": 8,
            "query_frame": 9,
            "error_update": 3,
        },
    )
    values = areas_of(Health(2.0), status=status)["input"].values
    assert {key: n for key, n in values.items() if ": " in key} == {
        "dropped: pose_gap": 4,
        "dropped: paused": 1,
        "dropped: lost_by_error": 2,
        "poses dropped: pose_lost": 5,
        "fixes dropped: fix_no_fix": 11,
        "poses dropped: pose_paused": 7,
        "poses used in part: pose_bad_covariance": 6,
        "refused: service_busy": 8,
        "refused: query_frame": 9,
    }
    assert values["measurements used"] == 90


@pytest.mark.parametrize(
    ("reason", "first"),
    [("unexpected_frame", True), ("pose_gap", True), ("pose_lost", False), ("fix_no_fix", False)],
)
def test_where_nearly_all_is_dropped_for_one_reason_that_is_said_first(reason, first):
    """Measurements, that is: of poses and fixes other numbers come."""
    health = Health(2.0)
    for came, dropped in ((100, 2), (200, 101), (300, 102)):
        status = status_of(
            received={"magnetic_field": came},
            drops={"other": dropped // 50, reason: dropped},
            explanations={reason: "look at it"},
        )
        said = areas_of(health, status=status)["input"].message
        most = said.startswith(
            f"99 % of the last 100 measurements were dropped as {reason}: look at it"
        )
        assert most == (first and came == 200), said


@pytest.mark.parametrize("dropped", [99, 100])
def test_of_many_sources_one_is_chosen_and_nobody_is_told_that_the_others_are_dropped(dropped):
    """As long as what is chosen comes, too."""
    health = Health(2.0)
    for came, left_out in ((100, 0), (200, dropped)):
        status = status_of(
            received={"rssi": came},
            drops={"not_chosen": left_out},
            explanations={"not_chosen": "look at it"},
        )
        said = areas_of(health, status=status)["input"].message
    assert ("dropped as not_chosen: look at it" in said) == (dropped == 100)


def test_failures_of_the_worker_are_errors():
    health, status = Health(2.0), status_of(counts={"error_update": 1})
    area = areas_of(health, status=status)["map"]
    assert (
        area.level == ERROR
        and "1 failures at update" in area.message
        and area.values["error_update"] == 1
    )
    again = areas_of(health, status=status)["map"]
    assert again.level == OK and again.values["error_update"] == 1, "said when it happens"


def test_old_stamps_and_a_busy_map_are_noticed():
    health = Health(2.0)
    assert "use_sim_time" in areas_of(health, stamp_age=4000.0)["input"].message
    assert (
        "busy for 5.0 s"
        in areas_of(health, now=105.0, status=status_of(made=100.0))["timing"].message
    )


def test_durations_are_bounded_and_ranked():
    durations = Durations(size=100)
    assert durations.summary() == {}
    for i in range(1000):
        durations.add(1e-3 * i)
    summary = durations.summary()
    assert summary["count"] == 1000 and 945 < summary["p50_ms"] < 955 and summary["max_ms"] == 999.0


def test_memory_is_told_in_megabytes_with_and_without_linux(monkeypatch):
    megabytes = resident_megabytes()
    assert 10 < megabytes < 20_000

    def absent(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(builtins, "open", absent)
    assert 0.5 * megabytes < resident_megabytes() < 20_000


def test_a_lattice_at_its_bound_is_said_while_it_lasts():
    health = Health(2.0)

    def said(coarsened, refused):
        report = {"samples": 10, "coarsened": coarsened, "refused": refused}
        return areas_of(health, status=status_of(report=report))["map"]

    assert said(0, 0).level == OK
    area = said(1, 0)
    assert (
        area.level == WARN
        and "max_grid_nodes: its spacing has been doubled, 1 times" in area.message
    )
    area = said(1, 7)
    assert (
        area.message
        == "7 cells or measurements lie where the map's lattice cannot reach, and are left out"
    )
    assert said(1, 7).message == "ok" and said(1, 7).values["refused"] == 7


def test_a_full_map_is_said_once_for_each_report_in_which_more_is_left_out():
    health, report = Health(2.0), {"samples": 10, "left_out": 3}
    area = areas_of(health, status=status_of(report=report))["map"]
    assert (
        area.level == WARN
        and "the map is full: 3 cells or measurements are left out" in area.message
    )
    assert areas_of(health, status=status_of(report=report))["map"].level == OK


def test_ground_that_is_driven_and_not_drawn_is_said():
    area = areas_of(Health(2.0), status=status_of(lag=(0.12, 9.0)))["map"]
    assert (
        area.level == WARN
        and "driven ground is not drawn yet: 12 % of the path, for 9 s" in area.message
    )
    assert areas_of(Health(2.0), status=status_of(lag=(0.12, 1.0)))["map"].level == OK, (
        "a moment is no lag"
    )


def test_refused_of_the_intake_and_refused_of_the_lattice_are_two_numbers():
    """An old drop is not warned of again, nor does it hide what the lattice refuses."""
    health = Health(2.0)

    def said(drops, cells):
        status = status_of(
            drops={"refused": drops}, report={"samples": 10, "coarsened": 0, "refused": cells}
        )
        areas = areas_of(health, status=status)
        return areas["input"].message, areas["map"].message

    assert said(40, 0) == ("40 refused", "ok")
    assert [said(40, 0) for _ in range(3)] == [("ok", "ok")] * 3
    dropped, left_out = said(47, 7)
    assert dropped == "47 refused" and left_out.startswith("7 cells or measurements lie where")


def said_of(watch, time, now, simulated=True, coming=True):
    return [
        (level, text.split(":")[0]) for level, text in watch.notes(time, now, simulated, coming)
    ]


def test_no_clock_yet_and_one_that_stands_still_while_messages_come():
    watch = ClockWatch()
    none_yet = [(ERROR, "use_sim_time is true and no /clock has come yet")]
    assert said_of(watch, 0, 0.0) == said_of(watch, 0, 9.0) == none_yet
    assert said_of(watch, 0, 0.0, simulated=False) == []
    assert said_of(watch, 5 * 10**9, 10.0) == said_of(watch, 5 * 10**9, 12.0) == []
    ((level, text),) = watch.notes(5 * 10**9, 14.0, True, True)
    assert level == WARN and text.startswith("/clock stands still at 5.0 s for 4 s, and messages")
    assert said_of(watch, 5 * 10**9, 15.0, coming=False) == [], (
        "a simulator that pauses is no fault"
    )
    assert said_of(watch, 6 * 10**9, 16.0) == [], "it goes on"
    assert said_of(watch, 0, 17.0) == [], "a bag that loops begins at 0; a clock has come"
    assert said_of(watch, 0, 99.0, simulated=False) == said_of(watch, 7 * 10**9, 100.0) == []


def test_a_clock_that_goes_back_again_and_again_is_of_two_and_fills_no_log():
    watch = ClockWatch()
    lines = [watch.jumped_back(100.0 + 0.1 * k) for k in range(150)]
    assert [k for k, line in enumerate(lines) if line] == [0, 100]
    assert said_of(watch, 10**9, 115.0) == [(WARN, "/clock goes back again and again")]
    assert said_of(watch, 2 * 10**9, 125.1) == [], "it has ended"
    for k in range(9):  # a bag that loops
        watch.jumped_back(200.0 + 60.0 * k)
    assert said_of(watch, 3 * 10**9, 681.0) == []


@pytest.mark.parametrize(("jumps", "apart", "said"), [(4, 3.0, 1), (3, 0.1, 0), (4, 3.4, 0)])
def test_four_jumps_within_ten_seconds_are_of_two_clocks(jumps, apart, said):
    watch = ClockWatch()
    for k in range(jumps):
        watch.jumped_back(100.0 + apart * k)
    assert len(said_of(watch, 10**9, 100.0 + apart * (jumps - 1))) == said


def test_a_clock_that_is_followed_again_has_not_stood_meanwhile():
    watch = ClockWatch()
    assert said_of(watch, 5 * 10**9, 10.0) == []
    assert said_of(watch, 0, 11.0, simulated=False) == []
    assert said_of(watch, 5 * 10**9, 60.0) == []
