"""Exceptions are counted by stage, and logged: each again after five seconds."""

from collections import Counter
from types import SimpleNamespace as Namespace

import pytest

from gp_mapping.runtime.failures import Failures


def fail(what: str):
    raise RuntimeError(what)


def test_each_is_counted_and_the_same_one_logged_every_five_seconds(monkeypatch):
    counts, told, now = Counter(), [], [100.0]
    monkeypatch.setattr("gp_mapping.runtime.failures.time", Namespace(monotonic=lambda: now[0]))
    failures = Failures(counts, told.append)
    for now[0], stage, what in [
        (100.0, "plan", "a"),
        (104.9, "plan", "a"),
        (105.1, "plan", "a"),
        (105.2, "render", "b"),
        (105.3, "plan", "a"),
    ]:
        failures.guard(stage, fail, what)
    assert counts == {"error_plan": 4, "error_render": 1}
    assert [text.split()[-1] for text in told] == ["a", "a", "b", "a"]
    assert told[1].startswith(
        "plan failed (3 times so far); the map goes on without it:\nTraceback"
    )


def test_what_ends_the_process_is_no_failure_and_success_is_silent():
    counts, told, done = Counter(), [], []
    failures = Failures(counts, told.append)
    failures.guard("update", done.append, 1)
    assert done == [1]
    with pytest.raises(KeyboardInterrupt):
        failures.guard("update", lambda: exec("raise KeyboardInterrupt"))
    assert not counts and not told
