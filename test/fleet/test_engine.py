"""Engines on a Dask cluster, here one in this process."""

import pytest

from gp_mapping.fleet.engine import Cluster

distributed = pytest.importorskip("distributed")


def test_two_runs_on_one_scheduler_never_get_each_others_results():
    """Nor where an engine lies in memory where the one before lay: a key that is known is not computed again."""
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        held = [Cluster(client, "", lambda: None).step("value", int, str(k)) for k in range(10)]
        assert len({handle.key for handle in held}) == len(held)
        assert client.gather(held) == list(range(10))
