"""`gp-mapping --help` and plain modules start without torch; the public names are there all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

import gp_mapping

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'matplotlib', 'scipy', 'dask', "
         "'distributed'}))")


def last_line(code):
    done = subprocess.run([sys.executable, "-c", f"import sys\n{code}\n{HEAVY}"], cwd=ROOT, text=True,
                          capture_output=True, check=True, timeout=60)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("code", ["import gp_mapping; gp_mapping.__version__", "import gp_mapping.settings.mapping",
                                  "import gp_mapping.recording.bag, gp_mapping.recording.bag_writer",
                                  "import gp_mapping.cli\ntry: gp_mapping.cli.main(['--help'])\n"
                                  "except SystemExit: pass"])
def test_what_needs_no_torch_does_not_import_it(code):
    assert last_line(code) == "[]"


def test_the_public_names():
    names = {}
    exec("from gp_mapping import *", names)
    assert set(gp_mapping.__all__) <= names.keys() and set(gp_mapping.__all__) <= set(dir(gp_mapping))
    from gp_mapping import FieldMap, MapSettings, Prediction, Samples, UpdateReport, create_map
    from gp_mapping.core.types import Samples as home
    assert Samples is home and callable(create_map)
    assert {k.__name__ for k in (FieldMap, MapSettings, Prediction, UpdateReport)} <= set(gp_mapping.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gp_mapping.nothing
