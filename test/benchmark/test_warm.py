"""Processes that begin loaded are processes like any other: what Python does with them is done, and nothing else."""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark import warm
from gp_mapping.commands.processes import NodeProcess

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere they are started as usual"
)


def said(code, *arguments, **options):
    return warm.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options
    )


def test_torch_is_there_and_the_package_is_not():
    code = "import sys; print('torch' in sys.modules, 'gp_mapping' in sys.modules, 'benchmark' in sys.modules)"
    assert said(code).stdout.split() == ["True", "False", "False"]


@pytest.mark.parametrize(
    "module",
    [
        "gp_mapping.commands.map",
        "gp_mapping.commands.check",
        "gp_mapping.ros.mapping_node",
        "gp_mapping.ros.explorer_node",
    ],
)
def test_of_other_libraries_everything_is_there(module):
    """A thousand processes would load the rest a thousand times; Matplotlib and SciPy take longer than most tests."""
    if ".ros." in module:
        pytest.importorskip("rclpy")
    code = (
        "import sys; before = set(sys.modules); import {}; new = set(sys.modules) - before; "
        "print('gp_mapping', *sorted(name for name in new if name.endswith(('.msg', '.srv')) or name.split('.')[0] "
        "in ('matplotlib', 'numpy', 'rclpy', 'rosbags', 'scipy', 'torch', 'yaml')))"
    )
    done = said(code.format(module))
    assert done.stdout.split() == ["gp_mapping"], done


SEEN = """
import os, sys
def tell():
    os.write(1, repr((sorted({"gp_mapping.core", "gp_mapping.cli", "gp_mapping.ros", "gp_mapping.ros.mapper.inputs",
                             "gp_mapping.ros.mapping_node"} & set(sys.modules)),)).encode() + b"\\n")
"""


def test_a_module_of_the_package_begins_with_the_others_loaded(tmp_path, monkeypatch):
    """But what a process executes as it starts it still executes; and another copy is not taken for this one."""
    (tmp_path / "seen.py").write_text(SEEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    tell = importlib.import_module("seen").tell
    (tmp_path / "gp_mapping").mkdir()
    (tmp_path / "gp_mapping" / "__init__.py").write_text("")
    (tmp_path / "gp_mapping" / "cli.py").write_text("print('another')")

    for folder in (ROOT, tmp_path):
        done = warm.run(
            [sys.executable, "-m", "gp_mapping.cli", "mapp"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            preexec_fn=tell,
        )
        if folder == ROOT:
            assert done.stdout.startswith("(['gp_mapping.core'") and done.returncode == 2, done
            assert "gp_mapping.cli" not in done.stdout and "'gp_mapping.ros'" not in done.stdout
            assert "unknown command 'mapp'" in done.stderr and len(done.stderr.splitlines()) == 1
        else:
            assert done.stdout.startswith("([],") and done.stdout.endswith("another\n"), done


def test_a_first_log_and_the_end_have_nothing_to_do_for_what_is_loaded():
    """To say who logs, rclpy has Python look up the file of every module; at its end torch takes itself apart."""
    code = (
        "import inspect, os, sys; usual, asked = os.path.realpath, []; "
        "os.path.realpath = lambda path: (asked.append(path), usual(path))[1]; "
        "inspect.getmodule(inspect.currentframe(), 'another'); import weakref; "
        "print(len(asked), len(sys.modules), sum(each.atexit for each in weakref.finalize._registry), "
        "'rclpy' not in sys.modules or 'rosidl_generator_py' in sys.modules)"
    )
    asked, modules, ends, said_by = said(code).stdout.split()
    assert int(asked) < 20 and int(modules) > 1000 and (ends, said_by) == ("0", "True")


def test_arguments_input_output_folder_and_environment(tmp_path):
    code = "import os, sys; print(sys.argv, input(), os.getcwd(), os.environ['ONE'], 'TWO' in os.environ, __name__)"
    os.environ["TWO"] = "2"
    try:
        usual = {key: value for key, value in os.environ.items() if key != "TWO"}
        done = said(code, "a", "b c", input="line\n", cwd=tmp_path, env=usual | {"ONE": "1"})
    finally:
        del os.environ["TWO"]
    assert (
        done.stdout.strip() == f"['-c', 'a', 'b c'] line {tmp_path} 1 False __main__"
        and done.stderr == ""
    )


def test_modules_are_found_where_python_would_find_them(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "here.py").write_text("import there_is; print(__name__, there_is.WHAT)")
    (tmp_path / "there" / "there_is.py").write_text("WHAT = 'found'")
    done = warm.run(
        [sys.executable, "-m", "here"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "there")},
    )
    assert done.stdout == "__main__ found\n", done.stderr


def test_a_signal_that_comes_before_anything_else_is_heard():
    """While it is not yet who it is to be, a process still ignores what its loaded parent ignores."""
    for number in (signal.SIGTERM, signal.SIGINT) * 10:
        child = warm.Popen(
            [sys.executable, "-c", "import time; time.sleep(20)"], stderr=subprocess.DEVNULL
        )
        child.send_signal(number)
        assert child.wait(10) == -number


@pytest.mark.parametrize(
    "code, ended, words",
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("pass", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import atexit, sys; atexit.register(print, 'bye', file=sys.stderr)", 0, "bye\n"),
        (
            "import sys, weakref; weakref.finalize(sys.modules['__main__'], print, 'bye', file=sys.stderr)",
            0,
            "bye\n",
        ),
        (
            "import threading, time, sys\n"
            "threading.Thread(target=lambda: (time.sleep(0.3), print('last', file=sys.stderr))).start()",
            0,
            "last\n",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import os; os.abort()", -signal.SIGABRT, ""),
    ],
)
def test_it_ends_as_python_ends(code, ended, words):
    done = said(code)
    assert done.returncode == ended and done.stderr.endswith(words), done
    usual = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (usual.returncode, usual.stdout) == (done.returncode, done.stdout)


@pytest.mark.parametrize(
    "number, ended",
    [
        (signal.SIGINT, -signal.SIGINT),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_signals_arrive(number, ended):
    code = "import time; print('up', flush=True); time.sleep(60)"
    with warm.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout.readline() == b"up\n" and child.poll() is None
        child.send_signal(number)
        assert child.wait(20) == ended


def test_what_loading_depends_on_starts_as_usual():
    code = "import sys; print('torch' in sys.modules)"
    assert said(code, env=os.environ | {"OMP_NUM_THREADS": "7"}).stdout == "False\n"
    assert said(code, preexec_fn=lambda: None).stdout == "False\n", (
        "a function that another process cannot find"
    )


def test_a_node_process_begins_loaded_and_ends_with_its_parent(tmp_path):
    """As the commands start their nodes: a session of its own, and SIGTERM when the parent has gone."""
    (tmp_path / "probe.py").write_text(
        "import ctypes, os, sys\nnumber = ctypes.c_int()\nctypes.CDLL(None).prctl(2, ctypes.byref(number))\n"
        "print('torch' in sys.modules, number.value, os.getsid(0) == os.getpid(), os.getppid())\n"
    )
    with (
        warm.everywhere(),
        NodeProcess("probe", "probe", [], tmp_path / "log", {"PYTHONPATH": str(tmp_path)}) as node,
    ):
        assert node._popen.wait(30) == 0, node.last_lines()
    assert node.last_lines().split()[-4:] == [
        "True",
        str(int(signal.SIGTERM)),
        "True",
        str(os.getpid()),
    ]
    assert subprocess.Popen is not warm.Popen
