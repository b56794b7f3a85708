"""numpy keeps to one thread on the command line, and so in a node, unless the environment says more."""

import os
import subprocess
import sys

import pytest
import torch

from gp_mapping import cli
from gp_mapping.threads import MATRIX_LIBRARIES

# the command line, as a process of its own begins it, and then what numpy has
CODE = (
    "import sys, gp_mapping.cli; sys.argv = ['gp-mapping', '--help']\n"
    "try: gp_mapping.cli.main()\n"
    "except SystemExit: pass\n"
    "import numpy; numpy.ones((300, 300)) @ numpy.ones((300, 300))\n"
    "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('Threads')][0])"
)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="threads are counted by Linux")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has one thread in any case")
def test_numpy_has_one_thread_unless_more_are_asked_for():
    def threads(**more) -> int:
        environment = {
            k: v for k, v in os.environ.items() if k not in (*MATRIX_LIBRARIES, "OMP_NUM_THREADS")
        } | more
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return int(done.stdout.split()[-1])

    assert threads() == 1
    assert threads(OPENBLAS_NUM_THREADS="2", MKL_NUM_THREADS="2") == 2


def test_a_node_begins_so_too(monkeypatch):
    from gp_mapping.ros import loading

    for name in MATRIX_LIBRARIES:
        monkeypatch.setenv(name, "7")
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "gp_mapping.ros.fusion_node"])
    monkeypatch.setattr(loading.signal, "signal", lambda *_: None)
    monkeypatch.setattr(loading, "pause_while_loading", lambda: None)
    loading.quiet_while_loading()
    assert all(os.environ[name] == "1" for name in MATRIX_LIBRARIES)


@pytest.mark.parametrize("more", [[], ["--workers", "1"]])
@pytest.mark.parametrize("command", ["map", "fit", "check", "report"])
def test_maps_of_bags_are_made_with_the_nodes_threads(tmp_path, command, more):
    """So that they round as the node's; before a bag is opened."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        output = str(tmp_path / ("page.html" if command == "report" else "out"))
        words = [command, str(tmp_path / "nothing"), "--output", output, *more]
        assert cli.main([*words, "--set", "torch_threads=2"]) == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
