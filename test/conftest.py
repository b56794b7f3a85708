"""What every test may count on: quiet, private DDS, one torch thread, and where the recordings are."""

import gc
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch, and for child processes: on few cores more only wait

import pytest
from file_order import LONG
from hypothesis import settings
from recordings import invensense

# hundreds of processes import the package: without files of bytecode each of them would compile all of it
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# a test makes few cycles and many messages: Python looks for garbage as often as there are so many more of them
GARBAGE = 10_000, 10, 10
gc.disable()  # while modules are loaded nothing of them becomes garbage (pytest_runtestloop)
# Before anything imports rclpy, in this process and the ones it starts. What the caller has set stands.
os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
os.environ.setdefault(
    "ROS_DOMAIN_ID", str(1 + os.getpid() % 100)
)  # two runs on one machine stay apart
os.environ.setdefault("ROS_LOG_DIR", os.path.join(tempfile.gettempdir(), "gp_mapping_test_log"))
os.environ.setdefault("ROS_PYTHON_CHECK_FIELDS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Every run tries the same examples, so that a red run is of the change; others: --hypothesis-profile=search
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """The order is the one below: xdist would take the files with most tests first, which are not the long ones."""
    if config.pluginmanager.hasplugin("xdist"):
        config.option.loadscopereorder = False
        if config.option.dist != "no" and not hasattr(config, "workerinput"):
            return  # others run the tests, and begin once this process is here: it needs no torch

    import torch

    torch.set_num_threads(1)
    # else the first assert_close of a process loads all of torch.distributed, a second for tensors that nobody has
    torch.testing._comparison._HAS_DTENSOR = False  # noqa: SLF001 where there is no such name, so is the gain


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, the others as they were."""
    here = Path(__file__).parent
    place = {here / name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """What was loaded stays to the end: no collection looks at it again, nor is any begun as often as by default."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder of the recordings, K-time.csv, K-loc.csv and K-mag.csv; skips, and says why, where there is none."""
    return invensense()


@pytest.fixture(scope="session", autouse=True)
def small_pictures():
    """In each test that does not ask for full ones."""
    from pictures import draw_small  # loads matplotlib, which who runs no tests does without

    draw_small()


@pytest.fixture(scope="module")
def full_pictures():
    """From the first test of a file that names it to its end."""
    from pictures import full_pictures

    with full_pictures():
        yield
