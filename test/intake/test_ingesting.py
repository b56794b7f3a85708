"""Every sample that is handed to a map is used, or counted as refused, or reported as lost."""

import pytest
import torch

from gp_mapping import Samples
from gp_mapping.intake import DropCounter, DropReason
from gp_mapping.intake.ingesting import ingest_batches, ingest_remaining


class Sink:
    """Takes samples one by one, by their value.

    Below 0 it raises, before it counts the sample or (-2) afterwards; a value above 9 is refused.
    """

    def __init__(self):
        self.raw_count = self.refused = 0
        self.taken, self.passes, self.held = [], 0, 0

    def ingest(self, samples):
        for value in samples.y[:, 0].tolist():
            if value == -1.0:
                raise ValueError("before")
            if value > 9.0:
                self.refused += 1
                continue
            self.raw_count += 1
            if value == -2.0:
                raise ValueError("after")
            self.taken.append(value)

    def break_pass(self):
        self.passes += 1
        if self.passes == 2:
            raise ValueError("pass")

    def finishing(self):
        self.refused += self.held
        yield
        if self.held == 3:
            raise ValueError("end")


def batch(*values):
    y = torch.tensor(values, dtype=torch.float64)[:, None]
    return Samples(torch.zeros(len(values), 2, dtype=torch.float64), y)


BATCHES = [
    (False, batch(1.0, -1.0, 2.0, 10.0, 3.0)),
    (True, batch(-2.0, 4.0, -2.0)),
    (True, batch(-1.0, -1.0, 5.0)),
]


def test_what_a_sample_spoils_is_that_sample_alone():
    sink, drops = Sink(), DropCounter()
    handed_on = list(ingest_batches(BATCHES, sink, drops))
    assert sink.taken == [1.0, 2.0, 3.0, 4.0, 5.0] and sink.passes == 2
    assert [len(samples) for samples in handed_on] == [5, 3, 3]
    # -1 three times and 10 once; a -2 is counted by the session itself
    assert drops.as_dict() == {"refused": 4}
    # and what it was, once for each exception
    told = [note.partition("; ")[0] for note in drops.notes]
    assert told == [f"the map raised ValueError: {name}" for name in ("before", "after", "pass")]
    assert sink.raw_count + drops[DropReason.REFUSED] == 11


def test_who_asks_is_told_of_each_exception_and_what_it_has_cost():
    sink, drops, told = Sink(), DropCounter(), []
    list(ingest_batches(BATCHES, sink, drops, lambda error, n: told.append((str(error), n))))
    before, after = ("before", 1), ("after", 0)
    # 1 was counted when -1 raised; -1 is tried once more, and alone it is known to be the one
    assert told == [("before", 0), before, after, after, ("pass", 0), before, before]
    assert drops.as_dict() == {"refused": 1} and sink.taken == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("held", [2, -3, -9])
def test_what_a_session_refuses_or_takes_after_all_at_the_end_is_counted(held):
    """A map that begins again takes what it had refused; more than is counted it cannot take."""
    sink, drops = Sink(), DropCounter()
    list(ingest_batches([(False, batch(10.0, 11.0, 12.0, 13.0))], sink, drops))
    assert drops.total == 4
    sink.held = held
    ingest_remaining(sink, drops)
    assert drops[DropReason.REFUSED] == max(4 + held, 0)


def test_a_map_that_takes_back_what_it_refused_while_a_batch_comes_is_believed():
    sink, drops = Sink(), DropCounter()
    list(ingest_batches([(False, batch(10.0, 11.0))], sink, drops))

    class Again(Sink):
        def ingest(self, samples):
            self.refused -= 1

    again = Again()
    list(ingest_batches([(False, batch(1.0))], again, drops))
    assert drops.as_dict() == {"refused": 1}


def test_no_more_is_uncounted_than_was_counted():
    drops = DropCounter()
    drops.count(DropReason.REFUSED, 2)
    drops.count(DropReason.NO_POSE, 0)
    drops.count(DropReason.POSE_LOST)
    drops.count(DropReason.FIX_INVALID)
    drops.count(DropReason.POSE_GAP)
    drops.count(DropReason.POSE_BAD_COVARIANCE)
    names = {"refused", "pose_gap", "pose_lost", "pose_bad_covariance", "fix_invalid"}
    assert set(drops.explanations()) == set(drops.as_dict()) == names
    assert drops.explanations()["refused"] == DropReason.REFUSED.explanation
    assert drops.measurements == 3, "two refused, and one between poses too far apart"
    assert drops.total == 5, "a pose without its covariance is used"
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=r"^uncount\(.*2 are counted"):
            drops.uncount(DropReason.REFUSED, wrong)
    drops.uncount(DropReason.REFUSED, 0)
    assert drops[DropReason.REFUSED] == 2
    drops.uncount(DropReason.REFUSED, 2)
    assert drops[DropReason.REFUSED] == 0
    with pytest.raises(ValueError, match="n >= 0"):
        drops.count(DropReason.REFUSED, -1)


def test_what_is_raised_at_the_end_is_named_and_the_map_stays():
    sink, drops = Sink(), DropCounter()
    sink.held = 3
    ingest_remaining(sink, drops)
    assert drops.as_dict() == {"refused": 3}
    assert drops.notes == [
        "the map raised ValueError: end; the measurement that it worked on is left out"
    ]
