"""Engines: steps in this process, and on a Dask cluster, here one in this process."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from gp_mapping.errors import UsageError
from gp_mapping.fleet.engine import ClusterEngine, LocalEngine
from gp_mapping.fleet.workers.dashboard import dashboard_text


def test_a_step_that_failed_says_why_each_time_it_is_asked():
    """And what it needs is there still, where it is done again."""
    tries = []

    def fussy(a, b):
        tries.append(a + b)
        if len(tries) < 3:
            raise UsageError(f"not yet {a} and {b}")
        return a + b

    with LocalEngine() as engine:
        handle = engine.step("sum", fussy, engine.step("one", int, "1"), 2)
        following = engine.step("text", str, handle)
        for _ in range(2):
            with pytest.raises(UsageError, match="not yet 1 and 2"):
                engine.result(following)
        assert engine.result(following) == "3" and engine.result(handle) == 3
    assert tries == [3, 3, 3]


@pytest.mark.parametrize("small", [False, True])
def test_of_large_results_one_at_a_time_is_in_this_process(small):
    """Small ones are fetched as they are ready, beside a bar."""
    asked = []
    with LocalEngine() as engine:
        handles = [engine.step("value", lambda k: asked.append(k) or k, k) for k in range(4)]
        results = engine.results(handles, **({"small": True} if small else {}))
        assert next(results) == 0 and asked == (list(range(4)) if small else [0])
        assert list(results) == [1, 2, 3] and asked == list(range(4))


def test_two_runs_on_one_scheduler_never_get_each_others_results():
    """Nor where an engine lies in memory where the one before lay: a key that is known is not computed again."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None
    ) as client:
        held = [
            ClusterEngine(SimpleNamespace(client=client, about="", marks=None)).step(
                "value", int, str(k)
            )
            for k in range(10)
        ]
        assert len({handle.key for handle in held}) == len(held)
        assert client.gather(held) == list(range(10))


@pytest.mark.parametrize(
    "page, said",
    [
        (b"<title>Dask</title>", "dashboard http"),
        (b"<p>Dask needs bokeh>=3.1.0 for the dashboard.</p>", "no dashboard (it needs bokeh"),
        (None, "is no such page, 404"),
    ],
)
def test_the_dashboards_address_is_printed_where_a_page_answers(page, said):
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/status"
        assert said in dashboard_text(address, here=True)
        thread.join()
    assert "nothing answers at" in dashboard_text(address, here=False)
    assert dashboard_text(None, here=True).startswith("no dashboard (it needs bokeh: pip install")
