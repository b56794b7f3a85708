"""Engines on a Dask cluster, here one in this process."""

import pytest

from gp_mapping.fleet.engine import Cluster

distributed = pytest.importorskip("distributed")


def test_two_runs_on_one_scheduler_never_get_each_others_results():
    """Not even where the second engine lies where the first had lain: a key that is known is not computed again."""
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
