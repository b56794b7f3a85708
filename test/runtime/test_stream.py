"""What stamps alone say of a stream: its losses to the message, and nothing where nothing is lost."""

import random

import pytest

from gp_mapping.runtime.stream import StreamWatch

NS = 1_000_000_000


def watched(stamps, arrivals=None, numbers=None, stalled=()):
    """stamps, arrivals in s."""
    watch = StreamWatch()
    for i, stamp in enumerate(stamps):
        now = stamp if arrivals is None else arrivals[i]
        watch.add(round(stamp * NS), now, None if numbers is None else numbers[i], i in stalled)
    return watch


def steady(count: int, period: float = 0.01, jitter: float = 0.0, seed: int = 0):
    chance = random.Random(seed)
    return [1e9 + i * period + chance.uniform(-jitter, jitter) * period for i in range(count)]


@pytest.mark.parametrize("jitter", [0.0, 0.2])
@pytest.mark.parametrize("period", [0.0025, 0.01, 2.0])
def test_lost_messages_are_counted_to_within_a_few_percent(jitter, period):
    stamps, chance = steady(3000, period, jitter), random.Random(1)
    kept = [i for i in range(3000) if i < 300 or chance.random() > 0.05]
    kept = [i for i in kept if not 1000 <= i < 1100]
    watch = watched([stamps[i] for i in kept])
    # for longer than a steady stream is ever silent nobody sent, as far as can be seen
    expected = 3000 - len(kept) - (100 if 100 * period > watch.silence else 0)
    assert abs(watch.missing - expected) <= 0.05 * expected + 3, (watch.missing, expected)
    assert watch.period == pytest.approx(period, rel=0.05)


def test_what_a_recording_lacks_that_plays_ten_times_as_fast_is_no_leap_of_its_clock():
    stamps = steady(1000)
    del stamps[500:650]
    watch = watched(stamps, [0.1 * (stamp - stamps[0]) for stamp in stamps])
    assert watch.missing == 150


def test_a_whole_stream_lacks_nothing_also_with_jitter_pauses_and_loops():
    pause = [*steady(500), *(1e9 + 3600.0 + i * 0.01 for i in range(500))]
    assert watched(pause).lost == 0
    loop, wall = steady(500) * 3, [i * 0.01 for i in range(1500)]
    assert watched(loop, wall).lost == 0 and watched(loop, wall).apart is None
    assert watched(steady(2000, jitter=0.25)).lost == 0
    chance, t, event_driven = random.Random(2), 1e9, []
    for _ in range(500):
        t += chance.expovariate(1.0)
        event_driven.append(t)
    assert watched(event_driven).lost == 0 and watched(event_driven).period is None


@pytest.mark.parametrize("before", [0, 300])
def test_a_sensor_that_sends_in_bursts_lacks_nothing(before):
    """Fifty values within a millisecond, twenty times a second: a driver that empties its buffer."""
    bursts = [1e9 + 0.05 * before + 0.05 * i + 2e-5 * k for i in range(100) for k in range(50)]
    watch = watched([*steady(before, 0.05), *bursts])
    assert watch.missing == 0 and watch.period is None


def test_what_was_overwritten_while_the_node_stood_is_counted():
    """Ten seconds of 100 Hz; the middleware kept the last 200."""
    stamps = [*(1e9 + i * 0.01 for i in range(500)), *(1e9 + i * 0.01 for i in range(1300, 1500))]
    arrivals = [*(i * 0.01 for i in range(500)), *(15.0 + i * 1e-4 for i in range(200))]
    assert watched(stamps, arrivals, stalled={500}).missing == 800
    assert watched(stamps, arrivals).missing == 0  # nobody sent, as far as can be seen


def test_a_recording_at_twenty_times_its_speed_lacks_as_much():
    kept = [i for i in range(2000) if not 1000 <= i < 1010]
    stamps, arrivals = [1e9 + 0.01 * i for i in kept], [0.0005 * i for i in kept]
    assert watched(stamps, arrivals).missing == 10


def test_numbers_of_the_middleware_are_exact_and_a_new_publisher_is_no_loss():
    kept = [i for i in range(1000) if not 500 <= i < 507]
    assert watched([1e9 + 0.01 * i for i in kept], numbers=kept).skipped == 7
    again = [*range(1, 501), *range(1, 501)]
    assert watched(steady(1000), numbers=again).lost == 0
    assert (
        watched(steady(1000), numbers=[i + (10**6 if i > 500 else 0) for i in range(1000)]).skipped
        <= 2
    )


def test_what_was_sent_while_nobody_listened_is_not_lost():
    watch = watched(steady(500), numbers=list(range(500)))
    watch.note_pause()
    for i in range(600, 700):
        watch.add(round((1e9 + 0.01 * i) * NS), 5.0 + 0.01 * (i - 500), i)
    assert watch.lost == 0
    for i in range(705, 710):
        watch.add(round((1e9 + 0.01 * i) * NS), 5.0 + 0.01 * (i - 500), i)
    assert watch.lost == 5


def test_two_that_send_on_one_topic_with_one_clock_are_told_by_their_numbers():
    both = [i // 2 + 1 + 500 * (i % 2) for i in range(400)]  # the second began 500 messages before
    watch = watched(steady(400), numbers=both)
    assert watch.several and watch.apart is None and watch.lost <= 2
    assert watched(steady(400), numbers=[i // 2 + 1 for i in range(400)]).several, "at once"
    assert not watched(steady(400), numbers=list(range(400))).several
    again = [i % 100 for i in range(400)]  # a driver that is started anew
    assert not watched(steady(400), numbers=again).several
    for i in range(240):  # one of them has been switched off
        watch.add(round((1e9 + 4.0 + 0.01 * i) * NS), 4.0 + 0.01 * i, 1000 + i)
    assert not watch.several


def test_two_clocks_on_one_topic_are_two_publishers():
    chance, stamps = random.Random(3), []
    for i in range(400):
        stamps.append(1e9 + 0.01 * i + (100.0 if chance.random() < 0.5 else 0.0))
    watch = watched(stamps, [0.01 * i for i in range(400)])
    assert watch.apart == pytest.approx(100.0, abs=1.0) and watch.missing == 0
    for i in range(240):  # one of them has been switched off
        watch.add(round((1e9 + 4.0 + 0.01 * i) * NS), 4.0 + 0.01 * i)
    assert watch.apart is None
    single = steady(400)
    single[200] += 50.0
    assert watched(single, [0.01 * i for i in range(400)]).apart is None


def test_a_period_is_estimated_with_every_twentieth_message_of_a_steady_stream():
    watch = StreamWatch()
    for stamp in steady(19):
        watch.add(round(stamp * NS), stamp)
    assert watch.period is None
    watch.add(round((1e9 + 0.19) * NS), 1e9 + 0.19)
    assert watch.period == pytest.approx(0.01) and watch.usual == watch.period


@pytest.mark.parametrize("periods, missing", [(1.55, 0), (1.65, 1), (2.4, 1), (2.6, 2), (5.0, 4)])
def test_a_gap_stands_for_as_many_messages_as_fit(periods, missing):
    stamps = steady(100, 0.1)
    after = [stamps[-1] + 0.1 * periods + 0.1 * i for i in range(5)]
    assert watched([*stamps, *after]).missing == missing
    assert watched([*stamps, *after]).lost == missing


@pytest.mark.parametrize(
    "period, quiet, missing", [(0.1, 1.9, 18), (0.1, 2.1, 0), (1.0, 4.9, 4), (1.0, 5.1, 0)]
)
def test_a_long_silence_is_no_loss_unless_the_node_stood(period, quiet, missing):
    stamps = steady(100, period)
    stamps.append(stamps[-1] + quiet)
    assert watched(stamps).missing == missing
    assert watched(stamps, stalled={100}).missing == round(quiet / period) - 1


@pytest.mark.parametrize("jump, leaps", [(0.9, False), (1.3, True), (-0.9, False), (-1.1, True)])
def test_stamps_that_leap_to_and_fro_by_more_than_a_second_are_of_two_clocks(jump, leaps):
    stamps = [1e9 + 0.01 * i + jump * (i % 2) for i in range(400)]
    watch = watched(stamps, [0.01 * i for i in range(400)])
    assert (watch.apart is not None) == leaps
    if leaps:
        assert watch.apart == pytest.approx(abs(jump), abs=0.011)


@pytest.mark.parametrize("wrong, two", [(3, False), (4, True)])
def test_a_few_wrong_stamps_are_no_second_clock(wrong, two):
    stamps = steady(100)
    for i in range(wrong):
        stamps[10 + 20 * i] += 50.0
    watch = watched(stamps, [0.01 * i for i in range(100)])
    assert (watch.apart is not None) == two


def test_numbers_that_are_left_out_are_counted_as_far_as_the_stamps_have_room():
    stamps = [*steady(100), 1e9 + 1.0, 1e9 + 1.01]
    numbers = list(range(100))
    assert watched(stamps, numbers=[*numbers, 101, 102]).skipped == 1
    # a step of one period has room for two messages at most
    assert watched(stamps, numbers=[*numbers, 150, 151]).skipped == 2
    assert watched(stamps, numbers=[*numbers, None, 151]).skipped == 0
    assert watched(stamps, numbers=[*numbers, 100, 101]).lost == 0
    turned = watched([*steady(400)], numbers=[*range(1, 101), 50, *range(52, 351)])
    assert turned.skipped == 0 and not turned.several, "it turned back a moment ago"
    late = [*range(1, 101), 50, *range(51, 300), *range(305, 355)]
    assert watched(steady(400), numbers=late).skipped == 2, "and long ago it does not matter"


def test_what_was_overwritten_of_a_sensor_at_some_kilohertz_is_counted():
    """A hundred intervals at 5 kHz last for no longer than a burst does."""
    kept = [i for i in range(30000) if i % 5000 >= 4000]  # the queue kept the newest 1000
    stamps = [1e9 + i / 5000 for i in kept]
    arrivals = [1e9 + i // 5000 for i in kept]
    watch = watched(stamps, arrivals, kept)
    assert watch.period == pytest.approx(0.0002, rel=0.01)
    assert watch.lost == pytest.approx(5 * 4000, abs=5)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("alone", [False, True])
def test_without_a_period_numbers_count_where_one_publisher_sends(alone, known):
    chance, watch, stamp = random.Random(3), StreamWatch(), 1e9
    watch.alone = alone if known else None
    for i in (*range(100), *range(150, 400), *range(50)):  # the driver was started anew
        stamp += chance.expovariate(1.0)
        watch.add(round(stamp * NS), stamp, i)
    assert watch.lost == (50 if alone and known else 0)
    watch.alone = alone  # known only now
    assert watch.period is None and watch.lost == (50 if alone else 0)


@pytest.mark.parametrize("turns, several", [(3, False), (4, True)])
def test_numbers_that_turn_back_again_and_again_are_of_several_publishers(turns, several):
    numbers = list(range(1000, 1200))
    for i in range(turns):
        numbers[20 * i + 25] = 7
    assert watched(steady(200), numbers=numbers).several == several


def test_a_burst_is_no_period_unless_it_lasts():
    """Twenty values at 1 kHz fill too little time; sixty of them fill a twentieth of a second."""
    for count, known in ((40, False), (60, True)):
        assert (watched(steady(count, 1e-3)).period is not None) == known


@pytest.mark.parametrize("aside", [-0.002, 0.002])
def test_a_leap_is_longer_than_twice_the_time_that_has_passed_and_a_second(aside):
    """By the stamps, of a recording that plays ten times as fast as it was made."""
    stamps, quiet = steady(80), 0.05
    arrivals = [0.001 * i for i in range(80)]
    speed = 0.01 / ((arrivals[-1] + quiet) / 80)
    step = 2.0 * quiet * speed + 1.0 + aside
    watch = watched([*stamps, stamps[-1] + step], [*arrivals, arrivals[-1] + quiet])
    assert watch.missing == (round(step / 0.01) - 1 if aside < 0 else 0)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("late", [1.7, 2.3, 2.6, 4.5, 12.2])
def test_a_publisher_that_was_late_and_makes_up_for_it_has_lost_nothing(late, numbered):
    """A timer of a busy computer: what was due meanwhile comes at once. Each time counted as lost messages."""
    due, stamps = 0.0, []
    for i in range(1000):
        due = max(0.01 * i, due if i % 100 else 0.01 * (i + late))
        stamps.append(1e9 + max(0.01 * i, due))
        due = stamps[-1] - 1e9 if stamps[-1] > 1e9 + 0.01 * i else 0.0
    watch = watched(
        [stamp + 1e-6 * i for i, stamp in enumerate(stamps)],
        numbers=range(1000) if numbered else None,
    )
    assert watch.lost == watch.unsent == 0 and watch.period == pytest.approx(0.01, rel=0.05)


def test_what_a_driver_leaves_out_is_not_what_was_lost_on_the_way():
    kept = [i for i in range(1000) if i < 300 or i % 50]
    watch = watched([1e9 + 0.01 * i for i in kept], numbers=range(len(kept)))
    assert (watch.lost, watch.unsent) == (0, 14)
    watch = watched([1e9 + 0.01 * i for i in kept], numbers=kept)
    assert (watch.lost, watch.unsent) == (14, 0)
    # a publisher that stumbles again while it makes up has lost nothing, either
    steps = [5.0, 0.1, 0.1, 0.9, 0.1, 0.1, 0.1, 1.2, 0.2, *[1.0] * 20]
    stumbling = [1e9 + 1.0 + 0.01 * sum(steps[: i + 1]) for i in range(len(steps))]
    assert watched([*steady(101), *stumbling]).lost == 0
    # a burst makes up for the newest gap only, and for no more than that
    gap = [*steady(100), *(1e9 + 1.05 + 1e-4 * i for i in range(20)), 1e9 + 1.06]
    assert watched(gap).missing == 0 and watched([*gap, 1e9 + 1.1]).missing == 3
