"""Processes for which torch and ROS are loaded already: forked from one that has done nothing but load them.

A trial that starts a thousand nodes would spend most of its time with loading torch. What Popen and run of this module
start are real processes, each with its own interpreter state, memory, signals and DDS participants. The package itself
is loaded, too, where a module of it is run (`-m gp_mapping.…`) and it is this one that Python would find; programs
given as text (`-c`) import it anew, since some of them ask what that loads. Where nothing of this is possible (no
Linux, other options of Python, an environment that loading depends on) they are started as usual, and so is whatever
is to show how a process starts.
"""

from __future__ import annotations

import array
import atexit
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
import weakref
from contextlib import contextmanager, suppress
from importlib.machinery import PathFinder

__all__ = ["Popen", "everywhere", "run"]

LOADED = (
    "numpy",
    "torch",
    "scipy.linalg",
    "scipy.spatial",
    "scipy.ndimage",
    "scipy.fft",
    "scipy.interpolate",
    "scipy.optimize",
    "scipy.sparse.csgraph",
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.font_manager",
    "yaml",
    "rosbags.rosbag2",
    "rosbags.typesys",
    "rosbags.typesys.stores.ros2_jazzy",
    "rclpy",
    "rclpy.lifecycle",
    "rclpy.action",
    "std_msgs.msg",
    "geometry_msgs.msg",
    "sensor_msgs.msg",
    "nav_msgs.msg",
    "nav_msgs.srv",
    "diagnostic_msgs.msg",
    "visualization_msgs.msg",
    "std_srvs.srv",
    "lifecycle_msgs.srv",
    "rosidl_generator_py",
)
_PACKAGE = "gp_mapping"
_RUN = (  # modules of it that are run, so that each process executes them itself; what they import is loaded
    "cli",
    "commands.demo.lanes",
    "ros.mapping_node",
    "ros.fusion_node",
    "ros.simulator_node",
    "ros.explorer_node",
    "ros.bag_player_node",
)
_STARTS_OTHERS = ("demo", "explore", "play")  # commands whose processes are to begin loaded, too
_HELD = (signal.SIGINT, signal.SIGTERM)  # from a new process until it can hear them
_SUBREAPER = 36  # of prctl: orphans below this process become its children
_EXECUTE = inspect.signature(subprocess.Popen._execute_child)  # noqa: SLF001 the one place that starts a process


# ---- in the process that asks --------------------------------------------------------------------------------------


class _Nursery:
    """The loaded process of this one, and the line to it."""

    def __init__(self):
        self.lock, self.pid = threading.Lock(), 0
        self.line: socket.socket | None = None

    def begin(self) -> socket.socket:
        """The line to the loaded process; starts it where there is none yet, or where this is a fork of who had one."""
        if self.line is None or self.pid != os.getpid():
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = [sys.executable, "-m", "benchmark.warm", str(its.fileno())]
            home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            with its:
                child = subprocess.Popen(
                    command, pass_fds=[its.fileno()], cwd=home, stdin=subprocess.DEVNULL
                )
            self.line, self.pid = mine, os.getpid()
            atexit.register(_end, mine, child)
        return self.line

    def start(self, job: dict, streams: tuple[int, int, int]) -> int:
        """The process id of a new child of this process that does the job."""
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        with self.lock:
            line = self.begin()
            prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                answer = _hand_over(line, json.dumps(job, allow_nan=False).encode(), streams)
            finally:
                prctl(_SUBREAPER, 0, 0, 0, 0)
        if not answer:
            raise OSError("the loaded process has ended")
        return int(answer)


def _hand_over(line: socket.socket, words: bytes, streams) -> bytes:
    """Ask for a job, words, with these three open files; the answer."""
    line.sendmsg(
        [len(words).to_bytes(8, "little")],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))],
    )
    for begin in range(0, len(words), 60000):
        line.send(words[begin : begin + 60000])
    return line.recv(100)


def _end(line: socket.socket, child: subprocess.Popen) -> None:
    line.close()
    with suppress(Exception):
        child.wait(5)


_nursery = _Nursery()


def _decides(environment: dict) -> dict:
    """What loading depends on."""
    return {
        key: value
        for key, value in environment.items()
        if key not in ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONIOENCODING")
        and key.startswith(
            ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS", "MPL", "RMW", "AMENT", "RCL", "RCUTILS")
        )
    }


def _named(function) -> list[str] | None:
    """Module and name by which another process finds a function; [] of None, None where it cannot."""
    if function is None:
        return []
    found = getattr(sys.modules.get(function.__module__), function.__qualname__, None)
    return [function.__module__, function.__qualname__] if found is function else None


class Popen(subprocess.Popen):
    """subprocess.Popen; a Python program (`-m module`, `-c code`) begins with everything of LOADED in memory."""

    def _execute_child(self, *given, **named):
        call = _EXECUTE.bind(self, *given, **named).arguments
        words = (
            [os.fspath(word) for word in call["args"]]
            if not isinstance(call["args"], (str, bytes))
            else []
        )
        environment = dict(os.environ if call["env"] is None else call["env"])
        before = _named(call["preexec_fn"])
        warm = (
            sys.platform == "linux"
            and len(words) > 2
            and words[0] == sys.executable
            and words[1] in ("-m", "-c")
            and before is not None
            and not (call["shell"] or call["pass_fds"] or call.get("process_group", -1) != -1)
            and all(isinstance(word, str) for word in [*words, *environment.values()])
            and _decides(environment) == _decides(dict(os.environ))
        )
        if not warm:
            return super()._execute_child(*given, **named)

        streams = tuple(
            theirs if theirs != -1 else usual
            for theirs, usual in zip(
                (call["p2cread"], call["c2pwrite"], call["errwrite"]), (0, 1, 2)
            )
        )
        folder = os.getcwd() if call["cwd"] is None else os.path.abspath(os.fspath(call["cwd"]))
        job = {
            "words": words,
            "folder": folder,
            "environment": environment,
            "session": call["start_new_session"],
            "before": before,
        }
        self.pid = _nursery.start(job, streams)
        self._child_created = True
        self._close_pipe_fds(
            *(
                call[name]
                for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            )
        )
        return None


@contextmanager
def everywhere():
    """Whatever this process starts meanwhile begins loaded."""
    usual, subprocess.Popen = subprocess.Popen, Popen
    try:
        yield
    finally:
        subprocess.Popen = usual


def run(*words, input=None, capture_output=False, timeout=None, check=False, **options):
    """subprocess.run with Popen of this module."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(*words, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


# ---- in the loaded process -----------------------------------------------------------------------------------------


def _jobs(line: socket.socket):
    """Forks for each job that comes; yields it in the new process, and ends in the loaded one with the line.

    Jobs of the package go to a fork of this process that has loaded it as well, and is made for the first of them.
    """
    line_on: socket.socket | None = None
    while True:
        head, rights, _, _ = line.recvmsg(8, socket.CMSG_LEN(3 * array.array("i").itemsize))
        if not head:
            return
        streams = array.array("i")
        for _, _, data in rights:
            streams.frombytes(data)
        size, words = int.from_bytes(head, "little"), b""
        while len(words) < size:
            words += line.recv(65536)

        if not _has_package() and _is_of_package(json.loads(words)):
            if line_on is None:
                line_on, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                if os.fork() == 0:
                    for each in (line, line_on):
                        each.close()
                    line, line_on = its, None
                    _load_package()
                    gc.freeze()
                    for stream in streams:
                        os.close(stream)
                    continue
                its.close()
            line.send(_hand_over(line_on, words, streams))
            for stream in streams:
                os.close(stream)
            continue

        # blocked, a signal waits for whom it is sent to; the loaded process' own way to ignore it would lose it there
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        between = (
            os.fork()
        )  # it ends at once, so that the new process becomes a child of the one that asked
        if between == 0:
            middle = os.getpid()
            child = os.fork()
            if child == 0:
                for each in (line, line_on):
                    if each is not None:
                        each.close()
                while (
                    os.getppid() == middle
                ):  # what it asks of its parent's end is meant of the one that asked
                    time.sleep(0.001)
                yield json.loads(words), list(streams)
                return
            answer = str(child).encode()
            os.write(_told[1], answer)
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        os.waitpid(between, 0)
        line.send(os.read(_told[0], 100))
        for stream in streams:
            os.close(stream)


def _has_package() -> bool:
    return f"{_PACKAGE}.core" in sys.modules


def _is_of_package(job: dict) -> bool:
    """Whether Python would run a module of the package beside this file."""
    option, module = job["words"][1:3]
    if option != "-m" or not module.startswith(f"{_PACKAGE}."):
        return False
    own = filter(None, job["environment"].get("PYTHONPATH", "").split(os.pathsep))
    found = PathFinder.find_spec(_PACKAGE, [job["folder"], *own, *sys.path[1:]])
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return found is not None and found.origin == os.path.join(home, _PACKAGE, "__init__.py")


def _load_package() -> None:
    """All modules of the package but those that are run, and what does something as it is imported."""
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = importlib.import_module(_PACKAGE)
        for each in pkgutil.walk_packages(package.__path__, f"{_PACKAGE}.", onerror=lambda _: None):
            with suppress(ImportError):
                importlib.import_module(each.name)
    gc.enable()
    _spare()
    for name in (*_RUN, "ros"):  # ros: it has a node's process end quietly while it loads
        home, _, last = f"{_PACKAGE}.{name}".rpartition(".")
        if sys.modules.pop(f"{home}.{last}", None) is not None:
            delattr(sys.modules[home], last)


def _become(job: dict, streams: list[int]) -> None:
    """This process as Python would begin it for the job."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for number in set(streams) - {0, 1, 2}:
        os.close(number)
    if job["session"]:
        os.setsid()
    os.chdir(job["folder"])
    _prepare(job)
    random.seed()

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    encoding = job["environment"].get("PYTHONIOENCODING") or "utf-8"
    at_once = bool(job["environment"].get("PYTHONUNBUFFERED"))
    sys.stdin = sys.stdout = sys.stderr = None  # as Python does where the caller has closed them
    if _is_open(0):
        sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding=encoding)
    if _is_open(1):
        sys.stdout = io.TextIOWrapper(
            open(1, "wb", 0 if at_once else -1, closefd=False),
            encoding=encoding,
            line_buffering=os.isatty(1),
            write_through=at_once,
        )
    if _is_open(2):
        sys.stderr = io.TextIOWrapper(
            open(2, "wb", 0 if at_once else -1, closefd=False),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=True,
            write_through=at_once,
        )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr

    words = job["words"]
    sys.orig_argv[:] = words
    sys.argv[:] = [words[1], *words[3:]]
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules["__main__"].__dict__["__builtins__"] = __builtins__


def _is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False


def _do(option: str, words: str) -> None:
    """Run the program, and end as Python ends, but for taking all that is loaded apart, which takes half a second."""
    code = 0
    try:
        if option == "-m":
            runpy._run_module_as_main(words)  # noqa: SLF001 what `python -m` does
        else:
            exec(compile(words, "<string>", "exec"), sys.modules["__main__"].__dict__)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if code == 1 and error.code != 1:
            print(error.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -1 if isinstance(error, KeyboardInterrupt) else 1

    with suppress(KeyboardInterrupt):
        threading._shutdown()  # noqa: SLF001 waits for its threads, as Python does
    atexit._run_exitfuncs()  # noqa: SLF001 as Python does
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if code == -1:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code & 0xFF)


def _prepare(job: dict) -> None:
    """Import paths and environment as of the job, and then what was to be done before it (preexec_fn)."""
    if job["environment"].get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
        sys.path[1:1] = [
            path for path in job["environment"].get("PYTHONPATH", "").split(os.pathsep) if path
        ]
        importlib.invalidate_caches()
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.path[0] = job["folder"] if job["words"][1] == "-m" else ""
    if job["before"]:
        module, name = job["before"]
        getattr(importlib.import_module(module), name)()


def _load() -> None:
    gc.disable()  # while modules are loaded next to nothing of them becomes garbage
    for name in LOADED:
        with suppress(ImportError):
            importlib.import_module(name)


def _spare() -> None:
    """What each process would do for all that is loaded, at its first log and at its end: done here, or left."""
    # rclpy asks who logs: for a file that it does not know Python looks up those of all modules, once for each of them
    inspect.getmodule(inspect.currentframe(), "a file of nobody")
    for each in weakref.finalize._registry:  # noqa: SLF001 the only list of them
        each.atexit = False  # torch takes each of its operators apart, a tenth of a second


def _nest() -> socket.socket | None:
    """Fork a loaded process for those that this one will start; its line in it, None in this one."""
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        mine.close()
        return its
    its.close()
    for number in _told:
        os.close(number)
    _nursery.line, _nursery.pid = mine, os.getpid()
    subprocess.Popen = Popen
    return None


def _serve(line: socket.socket) -> None:
    """Until the line ends."""
    while True:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # Ctrl-C is for who asks; the line ends with it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        job, streams = next(_jobs(line), (None, []))
        if job is None:
            os._exit(0)
        _become(job, streams)
        nested = (
            _nest()
            if job["words"][1:3] == ["-m", "gp_mapping.cli"]
            and set(job["words"][3:4]) & set(_STARTS_OTHERS)
            else None
        )
        if nested is None:
            sys.modules.pop("benchmark.warm", None)
            sys.modules.pop("benchmark", None)
            _do(*job["words"][1:3])
        line = nested


if __name__ == "__main__":
    _told = os.pipe()
    _load()
    _spare()
    gc.freeze()  # what is never looked at is never copied
    gc.enable()
    _serve(socket.socket(fileno=int(sys.argv[1])))
