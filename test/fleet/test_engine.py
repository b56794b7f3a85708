"""Engines: steps in this process, and on a Dask cluster, here one in this process."""

import pytest

from gp_mapping.errors import UsageError
from gp_mapping.fleet.engine import Cluster, Here


def test_a_step_that_failed_says_why_each_time_it_is_asked():
    """And what it needs is there still, where it is done again."""
    tries = []

    def fussy(a, b):
        tries.append(a + b)
        if len(tries) < 3:
            raise UsageError(f"not yet {a} and {b}")
        return a + b

    with Here() as engine:
        handle = engine.step("sum", fussy, engine.step("one", int, "1"), 2)
        following = engine.step("text", str, handle)
        for _ in range(2):
            with pytest.raises(UsageError, match="not yet 1 and 2"):
                engine.result(following)
        assert engine.result(following) == "3" and engine.result(handle) == 3
    assert tries == [3, 3, 3]


def test_two_runs_on_one_scheduler_never_get_each_others_results():
    """Not even where the second engine lies where the first had lain: a key that is known is not computed again."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        engine, others = Cluster(client, "", lambda: None), []
        place, held = id(engine), engine.step("value", int, "1")
        assert engine.result(held) == 1
        del engine
        while not others or id(others[-1]) != place:
            others.append(Cluster(client, "", lambda: None))
            assert len(others) < 10_000, "nothing was put where the first had been"
        assert others[-1].result(others[-1].step("value", int, "2")) == 2
