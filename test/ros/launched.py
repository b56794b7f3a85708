"""A launch file as a process, run as `ros2 launch` would, and its end."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from ros_helpers import ROOT

# `ros2 launch FILE name:=value` without ros2cli
RUN = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
service = LaunchService()
service.include_launch_description(LaunchDescription([IncludeLaunchDescription(PythonLaunchDescriptionSource(sys.argv[1]),
    launch_arguments=[tuple(a.split(":=", 1)) for a in sys.argv[2:]])]))
sys.exit(service.run())
"""


class Launch:
    """`ros2 launch gp_mapping NAME.launch.py name:=value …` as a process; its output; Ctrl-C at the end."""

    def __init__(self, folder, name, *arguments):
        pytest.importorskip(
            "launch_ros", reason="launch_ros is not installed (it comes with ROS, not from PyPI)"
        )
        self._log = (folder / f"{name}.log").open("w+")
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(ROOT / "launch" / f"{name}.launch.py"), *arguments],
            cwd=folder,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )

    @property
    def output(self):
        self._log.flush()
        return open(self._log.name).read()

    def interrupt(self):
        """Ctrl-C as a terminal sends it, to the whole group: launch counts on that. All nodes end by themselves."""
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(40) == 0
        time.sleep(0.1)
        ended = self.output.count("process has finished cleanly")
        assert ended == self.output.count("process started with pid"), self.output

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        if kind is not None:
            print(self.output)
        self._log.close()


def ended(run, timeout=60):
    """The launch has ended by itself; its exit code."""
    code = run.process.wait(timeout)
    assert not re.search(r"\[python-1\] Traceback|^Traceback", run.output), run.output
    return code
