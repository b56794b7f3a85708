"""What is said of a clock that stands still, goes back, or has not come."""

from gp_mapping.runtime.clock_watch import ClockWatch
from gp_mapping.runtime.health import ERROR, WARN

NS = 10**9


def said(watch, time, now, simulated=True, coming=True):
    return [
        (level, text.split(":")[0]) for level, text in watch.notes(time, now, simulated, coming)
    ]


def test_no_clock_yet_and_one_that_stands_still_while_messages_come():
    watch = ClockWatch()
    none_yet = [(ERROR, "use_sim_time is true and no /clock has come yet")]
    assert said(watch, 0, 0.0) == said(watch, 0, 9.0) == none_yet
    assert said(watch, 0, 0.0, simulated=False) == []
    assert said(watch, 5 * NS, 10.0) == said(watch, 5 * NS, 12.0) == []
    ((level, text),) = watch.notes(5 * NS, 14.0, True, True)
    assert level == WARN and text.startswith("/clock stands still at 5.0 s for 4 s, and messages")
    assert said(watch, 5 * NS, 15.0, coming=False) == [], "a simulator that pauses is no fault"
    assert said(watch, 6 * NS, 16.0) == [], "it goes on"
    assert said(watch, 0, 17.0) == [], "a bag that loops begins at 0; a clock has come"
    assert said(watch, 0, 99.0, simulated=False) == said(watch, 7 * NS, 100.0) == []


def test_a_clock_that_goes_back_again_and_again_is_of_two_and_fills_no_log():
    watch = ClockWatch()
    lines = [watch.jumped_back(2.0, 100.0 + 0.1 * k) for k in range(150)]
    assert [k for k, line in enumerate(lines) if line] == [0, 100]
    assert lines[0].startswith("time went back by 2.00 s: the map stays")
    assert said(watch, NS, 115.0) == [(WARN, "/clock goes back again and again")]
    assert said(watch, 2 * NS, 125.1) == [], "it has ended"
    for k in range(9):  # a bag that loops
        watch.jumped_back(60.0, 200.0 + 60.0 * k)
    assert said(watch, 3 * NS, 681.0) == []
