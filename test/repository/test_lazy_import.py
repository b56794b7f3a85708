"""`gp-mapping --help` and plain modules start without torch; the public names are there all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

import gp_mapping
from benchmark import warm
from gp_mapping.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'matplotlib', 'scipy', 'dask', "
    "'distributed'}))"
)


def last_line(code, run=subprocess.run):
    done = run(
        [sys.executable, "-c", f"import sys\n{code}\n{HEAVY}"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import gp_mapping; gp_mapping.__version__",
        "import gp_mapping.settings.mapping",
        "import gp_mapping.recording.bag, gp_mapping.recording.bag_writer",
        "import gp_mapping.cli\ntry: gp_mapping.cli.main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_what_needs_no_torch_does_not_import_it(code):
    assert last_line(code) == "[]"


def test_nodes_that_map_nothing_start_without_torch():
    """The player and the simulator: a second of the processor each, and two thirds of their memory."""
    pytest.importorskip("rclpy")
    loads = "import gp_mapping.ros.bag_player_node, gp_mapping.ros.simulator_node"
    assert last_line(loads) == "[]"


def test_a_fleets_workers_load_no_drawing_library():
    """Each of them would: it is a quarter of their start, and they draw nothing that it is needed for."""
    loads = (
        "for name in [m for m in sys.modules if m.split('.')[0] == 'matplotlib']: del sys.modules[name]\n"
        "import importlib, pkgutil, gp_mapping.fleet as fleet\n"
        "names = [each.name for each in pkgutil.iter_modules(fleet.__path__)]; assert 'cells' in names\n"
        "for name in names: importlib.import_module(f'gp_mapping.fleet.{name}')"
    )
    assert "matplotlib" not in last_line(loads, warm.run)


EACH = """
import gp_mapping.cli, time
for command in sys.argv[1:]:
    for words in ([command, "--help"], [command, "--no-such-option", "1", "2"]):
        try:
            code = gp_mapping.cli.main(words)
        except SystemExit as end:
            code = end.code
        assert code == (0 if "--help" in words else 2), (words, code)
        bad = sorted({m.split(".")[0] for m in sys.modules} & {"torch", "numpy", "scipy", "matplotlib", "rosbags"})
        assert not bad, (words, bad)
print("spent", time.process_time())
"""


def test_help_and_wrong_options_of_every_command_load_nothing_heavy():
    """So that all of them together, Python's own start too, take less than torch alone takes to load."""
    takes = [name for name in COMMANDS if name != "bench"]  # which passes everything on
    done = subprocess.run(
        [sys.executable, "-c", f"import sys{EACH}", *takes],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("usage: gp-mapping ") == len(takes) and len(takes) >= 14
    assert done.stderr.count("see gp-mapping ") == len(takes), done.stderr


def test_a_commands_help_costs_less_than_numpy_takes_to_load():
    """A third of it; the least of a few, since others who use the machine's caches cost both some."""
    code = "import gp_mapping.cli\ntry: gp_mapping.cli.main(['map', '--help'])\n"
    ends = "finally: import time; print(time.process_time())"
    helped, numpy = (
        [
            float(
                subprocess.run(
                    [sys.executable, "-c", code + ends],
                    cwd=ROOT,
                    text=True,
                    capture_output=True,
                    timeout=60,
                ).stdout.splitlines()[-1]
            )
            for _ in range(3)
        ]
        for code in (code, "try: import numpy\n")
    )
    assert min(helped) < min(numpy), (helped, numpy)


def test_the_public_names():
    names = {}
    exec("from gp_mapping import *", names)
    assert set(gp_mapping.__all__) <= names.keys() and set(gp_mapping.__all__) <= set(
        dir(gp_mapping)
    )
    from gp_mapping import FieldMap, MapSettings, Prediction, Samples, UpdateReport, create_map
    from gp_mapping.core.types import Samples as home

    assert Samples is home and callable(create_map)
    assert {k.__name__ for k in (FieldMap, MapSettings, Prediction, UpdateReport)} <= set(
        gp_mapping.__all__
    )
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gp_mapping.nothing
