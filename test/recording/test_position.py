"""Reading that goes on where another has ended gives the rest, and does not read what was before."""

from collections import Counter
from itertools import islice

import pytest
from rosbags.rosbag2 import Reader
from split_bag import joined

from gp_mapping.recording.bag import BagError, RawMessages, read_raw
from gp_mapping.recording.bag_writer import BagWriter
from gp_mapping.recording.position import Position

TOPICS = ["/odometry", "/magnetic_field"]


def write_bag(path, storage, begin=0, count=2000):
    """Odometry and field, five messages of one stamp; several chunks of mcap."""
    with BagWriter(path, storage) as bag:
        for i in range(begin, begin + count):
            bag.odometry(10**18 + i // 2 * 10**7, (0.01 * i, 2.0, 0.0), (0.0, 0.0, 0.0, 1.0))
            bag.magnetic_field(10**18 + i // 3 * 10**7, (1e-6 * i, -2e-6, 3e-6))
    return path


def assert_goes_on_anywhere(bag, step):
    """After each so many messages, in two parts up to there."""
    every = list(read_raw(bag, TOPICS))
    for count in range(1, len(every) + 1, step):
        first = Position.after(None, RawMessages.of(every[: count // 2])) if count > 1 else None
        position = Position.after(first, RawMessages.of(every[count // 2 : count]))
        rest = list(read_raw(bag, TOPICS, position))
        assert rest == every[count:], count


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_it_goes_on_anywhere(tmp_path, storage):
    assert_goes_on_anywhere(write_bag(tmp_path / "bag", storage), 307)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_it_goes_on_among_equal_stamps(tmp_path, storage):
    assert_goes_on_anywhere(write_bag(tmp_path / "bag", storage, count=12), 1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_it_goes_on_in_a_bag_of_several_files_in_any_order(tmp_path, order):
    """Where a clock went back from one file to the next, stamps say nothing of what was read."""
    parts = [write_bag(tmp_path / f"part{k}", "mcap", 15 * k, 15) for k in order]
    assert_goes_on_anywhere(joined(tmp_path / "bag", parts), 1)


def test_files_of_which_one_begins_at_the_last_stamp_of_the_other(tmp_path):
    parts = [write_bag(tmp_path / f"part{k}", "mcap", 13 * k, 13) for k in (0, 1)]
    assert_goes_on_anywhere(joined(tmp_path / "bag", parts), 1)


def test_what_was_read_is_not_read_again(tmp_path, monkeypatch):
    bag, read = write_bag(tmp_path / "bag", "mcap"), Reader.messages
    every, passed = list(read_raw(bag, TOPICS)), []

    def counted(self, *arguments, **options):
        for message in read(self, *arguments, **options):
            passed.append(message[1])
            yield message

    monkeypatch.setattr(Reader, "messages", counted)
    position = Position.after(None, RawMessages.of(every[:3000]))
    assert next(read_raw(bag, TOPICS, position)) == every[3000] and len(passed) <= 6


def test_another_order_of_equal_stamps_is_found_out(tmp_path):
    """As an index may give it: then what was read is counted off from the start."""
    bag = write_bag(tmp_path / "bag", "mcap", count=12)
    every = list(read_raw(bag, TOPICS))
    position = Position.after(None, RawMessages.of(every[:7]))._replace(checksum=0)
    assert list(read_raw(bag, TOPICS, position)) == every[7:]


def test_a_bag_that_is_cut_off_after_the_position_is_still_said(tmp_path):
    bag = write_bag(tmp_path / "bag", "mcap", count=12)
    position = Position.after(None, RawMessages.of(islice(read_raw(bag, TOPICS), 7)))
    fewer = position._replace(counts=position.counts - Counter(["/odometry"]))
    with pytest.raises(BagError, match="12 messages were recorded on /odometry and 11 are there"):
        list(read_raw(bag, TOPICS, fewer))
