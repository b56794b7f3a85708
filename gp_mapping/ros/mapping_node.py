"""mapping_node: measurements and odometry in, a live map with its uncertainty out. Wiring only.

A lifecycle node; with autostart, which is the default, main() configures and activates it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import rclpy
import torch
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import OccupancyGrid
from rclpy.clock import Clock, ClockType, JumpThreshold
from rclpy.duration import Duration
from std_srvs.srv import SetBool, Trigger

from gp_mapping.core.config import MapSettings
from gp_mapping.intake import Intake, IntakeSettings
from gp_mapping.intake.inbound import has_header
from gp_mapping.ros import params, qos
from gp_mapping.ros.diagnostics import to_array
from gp_mapping.ros.files import open_session, save_session
from gp_mapping.ros.health import ERROR, WARN, Health
from gp_mapping.ros.inputs import InputPort, Inputs
from gp_mapping.ros.managed import ManagedNode
from gp_mapping.ros.messages import message_class
from gp_mapping.ros.node_settings import NodeSettings
from gp_mapping.ros.process import Stopper, spin, wait_for
from gp_mapping.ros.publishers import MapPublishers
from gp_mapping.ros.suggester import Suggester
from gp_mapping.ros.worker import MapWorker

__all__ = ["MappingNode", "main"]


class MappingNode(ManagedNode):
    """Subscribes, enqueues, asks the worker for what somebody waits for, and publishes it.

    Raises ParameterError for wrong parameters, ValueError for a checkpoint that cannot be used (configure).
    find_message: ROS type name -> its class, or None where it is not installed.
    """

    def __init__(self, find_message: Callable[[str], type | None] = message_class, **options):
        super().__init__("mapping", automatically_declare_parameters_from_overrides=True, **options)
        settings, self.given, self.parameter_warnings = params.declare_settings(self)
        self.settings: NodeSettings = settings[NodeSettings]
        self.map_settings: MapSettings = settings[MapSettings]
        self.intake_settings: IntakeSettings = params.with_map_frame(settings[IntakeSettings], self.settings)
        self._changing = self.settings
        self.add_on_set_parameters_callback(self._check_change)
        self.add_post_set_parameters_callback(self._apply_change)
        self.parameter_warnings += params.unmatched_files(sys.argv, self.get_fully_qualified_name(), bool(self.given))
        for text in self.parameter_warnings:
            self.get_logger().warning(text)
        self.paused, self._find_message = False, find_message
        self.active, self._finished, self.exit_code = False, True, 0
        self._made, self._running = ExitStack(), ExitStack()  # what cleanup and deactivate take away
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)  # timers run before the first /clock and when it stands

    # ---- steps of life -------------------------------------------------------------------------------------------

    def configure(self) -> None:
        """Make the map, its worker, publishers and services; nothing flows yet."""
        try:
            self._configure()
        except BaseException:
            self._made.close()
            raise
        self._finished = False

    def _configure(self) -> None:
        torch.set_num_threads(self.settings.torch_threads)
        self.inputs = Inputs(self, self.intake_settings, self._on_input, depth=self.settings.input_queue_depth,
                             reliable=self.settings.reliable_inputs, find=self._find_message)
        session = open_session(self.map_settings, self.given, self.settings.load_checkpoint)
        self.map_settings = session.settings
        self.suggester = Suggester(self.settings)
        self._done = self.create_guard_condition(self._publish_results)
        self._made.callback(self.destroy_guard_condition, self._done)
        self.worker = MapWorker(session, Intake(self.intake_settings), queue_size=self.settings.worker_queue_size,
                                draw_budget=self.settings.draw_budget, suggest=self.suggester,
                                on_result=self._done.trigger, on_error=self.get_logger().error)
        self._made.callback(self.worker.stop, abandon=True)
        self.worker.start()
        self.publishers_ = MapPublishers(self, self.map_settings)
        self._made.callback(self.publishers_.destroy)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._made.callback(self.destroy_publisher, self._diagnostics)
        self._health = Health(self.settings.silence_warning)
        self._requested = self._published = None
        for kind, name, answer in ((Trigger, "save", self._on_save), (Trigger, "clear", self._on_clear),
                                   (SetBool, "pause", self._on_pause)):
            self._made.callback(self.destroy_service, self.create_service(kind, f"~/{name}", answer))
        jump = JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=False)
        self._made.callback(self.get_clock().create_jump_callback(jump, post_callback=self._on_clock_jump).unregister)
        self._made.callback(self.destroy_timer, self.create_timer(1.0, self._on_health, clock=self._steady))

    def activate(self) -> None:
        """Subscribe and publish."""
        try:
            self._activate()
        except BaseException:
            self._running.close()
            raise
        self._requested, self.active = None, True

    def _activate(self) -> None:
        self._running.callback(self.inputs.close)
        self.inputs.open()
        free = self.create_subscription(OccupancyGrid, "map", self.worker.set_free, qos.LATCHED)
        self._running.callback(self.destroy_subscription, free)
        self._tick_timer = self.create_timer(1.0 / self.settings.publish_rate, self._on_tick, clock=self._steady)
        self._running.callback(self.destroy_timer, self._tick_timer)
        self.get_logger().info(f"mapping with model {self.map_settings.model!r}; waiting for {self.inputs.describe()}")

    def deactivate(self) -> None:
        """Listen and publish no more; the map stays, and what was queued goes into it."""
        self.active = False
        self._running.close()
        self.worker.end_pass()

    def cleanup(self) -> None:
        """Drop the map and everything that configure made."""
        self.active, self._finished, self.paused = False, True, False
        self._running.close()
        self._made.close()

    def shutdown(self) -> None:
        """The last transition: as at the end of the process, then all is dropped."""
        self.finish()
        self.cleanup()

    def finish(self, stopper: Stopper | None = None) -> int:
        """Once: take in what is queued, publish the last map, save if asked. The exit code: 1 where saving failed."""
        if not self._finished:
            self._finished = True
            self.exit_code = self._finish(stopper)
        return self.exit_code

    def _finish(self, stopper: Stopper | None) -> int:
        while not self.worker.stop(abandon=stopper is not None and stopper.count > 1, timeout=0.1):
            pass
        if self.active:
            self._on_tick(last=True)
        self._on_health()
        self.publishers_.wait_until_received(2.0)
        if not self.settings.save_on_exit:
            return 0
        try:
            self._log_saved(self.worker.call(partial(save_session, directory=self.settings.save_directory)).result())
        except Exception as error:  # every reason why a map is not on disk ends in the log and in the exit code
            self.get_logger().error(f"the map was not saved into {self.settings.save_directory!r}: {error!r}")
            return 1
        return 0

    # ---- inputs: callbacks only enqueue --------------------------------------------------------------------------

    def _on_input(self, port: InputPort, message) -> None:
        port.watch.arrived(time.monotonic())
        if self.paused and port.role in ("measurement", "pose"):
            self.worker.count("paused")  # TF goes on: a static link is said once
        else:
            unstamped = port.role == "measurement" and not has_header(message)
            self.worker.put(port.role, message, self.get_clock().now().nanoseconds if unstamped else None)

    def _on_clock_jump(self, jump) -> None:
        """Only said: the stamps of each topic jump too, and the intake clears its queues by them, whatever comes first.

        Clearing here, at some moment between the two topics, would throw away the first messages of the new time.
        """
        self.get_logger().warning(f"time went back by {-jump.delta.nanoseconds / 1e9:.2f} s: what waits for a pose is "
                                  "dropped, the map stays")

    # ---- outputs -------------------------------------------------------------------------------------------------

    def _periods(self) -> dict[str, float]:
        s, drawing = self.settings, self.worker.drawing_time
        return {"grid": max(1.0 / s.publish_rate, 2.0 * drawing), "markers": 1.0 / s.marker_rate,
                "suggestions": 1.0 / s.suggestion_rate if s.suggestion_rate else 0.0}

    def _on_tick(self, last: bool = False) -> None:
        """Ask the worker for what somebody waits for, unless it is still at it."""
        self.inputs.look()
        if self._requested is not None and not last and time.monotonic() - self._requested < 10.0:
            return
        if not self.frame:
            return  # a loaded map whose frame is not known yet; health says so
        periods = {part: min(period, 1e-9) if last else period for part, period in self._periods().items()}
        wanted = self.publishers_.due(self.worker.revision, time.monotonic(), periods)
        if wanted and last:
            self.worker.draw_last(wanted)
            self._publish_results()
        elif wanted:
            self._requested = time.monotonic()
            self.worker.request(wanted)

    def _publish_results(self) -> None:
        results, self._requested = self.worker.results, None
        if self.active and results is not None and results is not self._published:
            self._published = results
            self.publishers_.publish(results, self.frame)

    @property
    def frame(self) -> str:
        """Frame of the map: map_frame, or that of the odometry."""
        return self.settings.map_frame or self.worker.frame

    def _on_health(self) -> None:
        now, status = time.monotonic(), self.worker.status
        clock = self.get_clock().now().nanoseconds / 1e9
        self.inputs.check_types()
        notes = [(WARN, text) for text in (*self.parameter_warnings, *self.inputs.problems, self.suggester.note)
                 if text]
        if self.worker.revision and not self.frame:
            notes.append((WARN, "the frame of the loaded map is not known before the first pose; set map_frame to "
                                "see the map now"))
        if not self.active:
            notes.append((WARN, "inactive: nothing is listened to; activate the node"))
        if clock == 0.0:
            notes.append((ERROR, "use_sim_time is true and no /clock has come yet"))
        age = clock - status.last_stamp if status.last_stamp is not None and clock > 0.0 else None
        areas = self._health.areas(now=now, status=status, watches=self.inputs.watches,
                                   paused=self.paused or not self.active, notes=notes, limits=self.publishers_.limits,
                                   published=self.publishers_.published, stamp_age=age, queue=self.worker.queued)
        self._diagnostics.publish(to_array(areas, self.get_fully_qualified_name(), self.get_clock().now().to_msg()))

    # ---- services ------------------------------------------------------------------------------------------------

    async def _on_save(self, request, response):
        future = self.worker.call(partial(save_session, directory=self.settings.save_directory))
        try:
            response.message = self._log_saved(await wait_for(future))
            response.success = True
        except Exception as error:  # the caller gets the reason, whatever it is
            response.success, response.message = False, f"not saved into {self.settings.save_directory!r}: {error!r}"
            self.get_logger().error(response.message)
        return response

    def _log_saved(self, paths) -> str:
        text = "saved " + ", ".join(f"{what} {path}" for what, path in paths.items())
        self.get_logger().info(text)
        return text

    async def _on_clear(self, request, response):
        try:
            await wait_for(self.worker.call(lambda session: session.clear()))
            self.publishers_.publish_cleared(self.frame)
            response.success, response.message = True, "the map is empty"
        except Exception as error:
            response.success, response.message = False, f"not cleared: {error!r}"
            self.get_logger().error(response.message)
        return response

    def _on_pause(self, request, response):
        if request.data and not self.paused:
            self.worker.end_pass()
        self.paused = bool(request.data)
        response.success, response.message = True, "paused: measurements are not used" if self.paused else "mapping"
        return response

    # ---- parameters ----------------------------------------------------------------------------------------------

    def _check_change(self, parameters):
        result, self._changing = params.on_set(self.settings, parameters)
        return result

    def _apply_change(self, parameters) -> None:
        before, self.settings = self.settings, self._changing
        if not self._finished:
            self.suggester.settings, self._health.silence_warning = self.settings, self.settings.silence_warning
        if self.active and self.settings.publish_rate != before.publish_rate:
            self._tick_timer.timer_period_ns = int(1e9 / self.settings.publish_rate)


def main(arguments: list[str] | None = None) -> int:
    """Console script: 0 after SIGINT or SIGTERM, 1 where the map was not saved, 2 for wrong parameters or files."""
    stopper = Stopper()
    try:
        rclpy.init(args=arguments, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
        node = MappingNode()
    except (ValueError, RuntimeError) as error:  # RuntimeError: rcl about a parameter file, torch about a device
        print(f"mapping_node: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 2
    code = 2
    if not node.settings.autostart or node.start():
        spin(node, stopper)
        code = node.finish(stopper)
    node.destroy_node()
    rclpy.try_shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
