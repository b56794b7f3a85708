"""What the map refuses of its first cells: it answers as before, and counts what it holds."""

import numpy as np
import pytest
import torch

from gp_mapping import MapSettings, Samples
from gp_mapping.errors import NumericalError
from gp_mapping.mapping.notes.settings import refusal_note
from gp_mapping.mapping.session import MapSession

UT = 1e-6
STARTS = {
    "lengthscale": 1.0,
    "signal_stddev": 5 * UT,
    "noise_stddev": 0.5 * UT,
    "constant_stddev": 20 * UT,
}


def drive(n: int = 40) -> Samples:
    """A slow sensor: each cell is one sample."""
    x = np.stack([0.25 * np.arange(n), np.zeros(n)], 1)
    y = 45.0 + 3.0 * np.sin(x[:, 0]) + 0.3 * np.random.default_rng(0).standard_normal(n)
    return Samples(x, UT * y, stamp=0.5 * np.arange(n))


def session_of(**settings) -> MapSession:
    given = {"learn_hyperparameters": False, "learn_time_offset": False, "cell_length": 0.2}
    return MapSession(MapSettings(**(given | settings)))


@pytest.mark.parametrize("given", [{}, STARTS, STARTS | {"forgetting_time": 60.0}], ids=len)
@pytest.mark.parametrize("cells", [True, False])
def test_a_map_smaller_than_its_beginning_keeps_to_its_bound(given, cells):
    session = session_of(model="exact", max_exact_samples=5, cells=cells, **given)
    samples, at = drive(), drive().x[:5]
    for i in range(len(samples)):
        session.ingest(samples[i : i + 1])
        if session.cell_count:
            assert session.cell_count <= 5
            assert bool(torch.isfinite(session.predict(at).mean).all())
    session.flush()
    assert session.cell_count == 5 == session.map.samples and session.raw_count == 5
    assert session.refused == session.left_out == len(samples) - 5
    assert "max_exact_samples" in session.last_refusal
    assert float((session.predict(at).mean - samples.y[:5]).abs().max()) < 2.0 * UT

    again = MapSession.from_state_dict(session.state_dict(), max_exact_samples=100)
    again.ingest(Samples(samples.x + 0.1, samples.y, stamp=samples.stamp + 60.0))
    again.flush()
    assert again.cell_count == 45 if cells else again.cell_count > 5


@pytest.mark.parametrize("given", [{}, STARTS, STARTS | {"forgetting_time": 60.0}], ids=len)
@pytest.mark.parametrize("culprit", [3, 8])
def test_a_cell_that_the_map_refuses_leaves_it_as_it_was(given, culprit, monkeypatch):
    """Until the nine are there nobody knows which of them is wild; then that one alone is left out."""
    session, samples = session_of(**given), drive()
    wild = float(samples.x[culprit, 0])
    update = type(session.map).update

    def refuses(self, batch):
        if bool(((batch.x[:, 0] - wild).abs() < 1e-6).any()):
            raise NumericalError("a pivot is NaN")
        return update(self, batch)

    monkeypatch.setattr(type(session.map), "update", refuses)
    for i in range(9):
        session.ingest(samples[i : i + 1])
        if session.cell_count:  # a cell is closed by the next one's sample
            session.predict(samples.x)
            assert session.cell_count == min(i, culprit) == session.map.samples
    session.ingest(samples[9:])
    session.flush()
    assert session.cell_count == len(samples) - 1 and session.refused == 1
    assert session.raw_count == len(samples) - 1 and "pivot" in session.last_refusal


@pytest.mark.parametrize("at", [4, 20])
def test_where_learning_fails_the_session_knows_what_the_map_holds(at, monkeypatch):
    session, samples = session_of(**STARTS), drive()
    session.ingest(samples[:at])
    before = session.cell_count
    refine = type(session.map).refine

    def fails(self, budget_s):
        raise OSError("the disk is full")

    monkeypatch.setattr(type(session.map), "refine", fails)
    with pytest.raises(OSError, match="disk"):
        session.ingest(samples[at : at + 1])
    monkeypatch.setattr(type(session.map), "refine", refine)
    assert session.cell_count == session.map.samples
    assert session.cell_count == before + (at > 9)
    assert (session.last_report is not None) == (at > 9)
    session.ingest(samples[at + 1 :])
    session.flush()
    assert session.cell_count == session.map.samples == len(samples)


@pytest.mark.parametrize("size", [1e12, 1e13])
def test_numbers_beyond_what_a_map_can_hold_are_refused_with_what_to_write(size):
    """Also where not one of the first cells is left, by which the others would be judged."""
    samples = drive()
    wild = Samples(samples.x, samples.y / UT * size, stamp=samples.stamp)
    session = session_of(field_scale=1.0)
    session.ingest(wild)
    session.finish()
    assert session.refused + session.raw_count == len(samples) and session.refused > 20
    [note] = [text for text in session.warnings if "were refused" in text]
    assert note.startswith(f"{session.refused} measurements") and "write as field_scale" in note

    scaled = session_of(field_scale=1e9)
    scaled.ingest(wild)
    scaled.finish()
    assert scaled.raw_count == len(samples) and not any("refused" in t for t in scaled.warnings)


def test_a_model_that_explains_itself_at_length_is_cut():
    """The text goes out with each report on /diagnostics, once a second."""
    [note] = refusal_note(3, 0, "my model fails: " + "x" * 1_000_000)
    assert note.startswith("3 measurements were refused, the newest because: my model fails: x")
    assert len(note) < 3000
