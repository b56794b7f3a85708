"""mapping_node: measurements and odometry in, a live map with its uncertainty out. Wiring only.

A lifecycle node; with autostart, which is the default, main() configures and activates it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import rclpy
import torch
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import OccupancyGrid
from rclpy.clock import JumpThreshold
from rclpy.duration import Duration

from gp_mapping.core.likelihoods.outcomes import make_judge
from gp_mapping.errors import named
from gp_mapping.intake import Intake
from gp_mapping.intake.messages import has_header
from gp_mapping.intake.sensors.setup import setup_notes
from gp_mapping.mapping.session import MapSession
from gp_mapping.ros.mapper import parameters as params
from gp_mapping.ros.mapper.ending import MapEnding
from gp_mapping.ros.mapper.first_session import first_session
from gp_mapping.ros.mapper.inputs import InputPort, Inputs
from gp_mapping.ros.mapper.managed import ManagedNode
from gp_mapping.ros.mapper.namesakes import Namesakes
from gp_mapping.ros.mapper.outputs import MapPublishers
from gp_mapping.ros.mapper.queries import PointQueries
from gp_mapping.ros.mapper.services import MapServices
from gp_mapping.ros.mapper.steps import Steps, at_once, in_thread
from gp_mapping.ros.mapper.survey_port import SurveyPort
from gp_mapping.ros.mapper.team_port import TeamPort, others_of
from gp_mapping.ros.tools.process import Stopper, run_lifecycle
from gp_mapping.ros.wire.diagnostics import to_array
from gp_mapping.ros.wire.free_map import FreeMapListener
from gp_mapping.ros.wire.messages import message_class
from gp_mapping.runtime.clock_watch import ClockWatch
from gp_mapping.runtime.file_thread import ClosingError, FileThread
from gp_mapping.runtime.health import WARN, Health
from gp_mapping.runtime.saving import Saver
from gp_mapping.runtime.surveying.free_maps import FreeMaps
from gp_mapping.runtime.surveying.suggester import Suggester
from gp_mapping.runtime.surveying.survey import Survey
from gp_mapping.runtime.team.claims import Claims
from gp_mapping.runtime.team.team import Team
from gp_mapping.runtime.worker import MapWorker
from gp_mapping.settings.intake import IntakeSettings
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings
from gp_mapping.store.resume import foreign_exports
from gp_mapping.store.sessions import Requirements, odometry_frame_of

__all__ = ["MappingNode", "main"]

LEAST_TICKS = 2.0  # Hz; subscribers that join, and inputs that show their type, wait no longer


class MappingNode(ManagedNode):
    """Feeds messages to the map's worker, and publishes the results that subscribers wait for.

    configure raises ParameterError for wrong parameters, ValueError for an unusable checkpoint.

    Args:
        find_message: ROS type name -> its class, or None where it is not installed.
    """

    default_name, listens = "mapping", True  # listens: the node has sensors of its own

    def __init__(self, find_message: Callable[[str], type | None] = message_class, **options):
        super().__init__(
            self.default_name, automatically_declare_parameters_from_overrides=True, **options
        )
        self._started_at = time.time()  # wall clock: tells this process from one before it
        self.parameters = params.NodeParameters(self, self._apply_change)
        self.map_settings, self.intake_settings = MapSettings(), IntakeSettings()
        self.wanted = Requirements(self.map_settings)
        self.parameter_warnings: list[str] = []
        self.paused, self._find_message = False, find_message
        self.active, self._finished, self.exit_code = False, True, 0
        self.hurry: Callable[[], bool] = lambda: False  # whether a second signal has come
        self.inputs: Inputs | None = None
        # what clean-up and deactivation remove, each in reverse order of creation
        self._undo_configure, self._undo_activate = ExitStack(), ExitStack()

    def declare_parameters(self, namespace, parameters, ignore_override=False):
        """As a Node does, also those of a parameter file that are an empty list.

        Args:
            namespace: As of rclpy's Node.
            parameters: Likewise.
            ignore_override: Likewise.
        """
        return super().declare_parameters(
            namespace, params.with_open_types(parameters), ignore_override
        )

    @property
    def settings(self) -> NodeSettings:
        """The node's settings; live parameters as they are now."""
        return self.parameters.live

    # ---- lifecycle -------------------------------------------------------------------------------

    def configuring(self) -> Steps:
        """Check the parameters; make map, worker, publishers and services, without any input."""
        try:
            yield from self._configuring()
        except BaseException:
            self._undo_configure.close()
            self.parameters.reopen()
            raise
        self._finished, self.exit_code = False, 0

    def batching_pause(self) -> float:
        """Time (s) to sleep so that inputs are taken in groups; 0 while they bring nothing."""
        return 0.0 if self.inputs is None else self.inputs.batching_pause()

    def _read_parameters(self) -> None:
        """Check the parameters, log warnings about them, and set what the map must be."""
        warnings = self.parameters.unknown + params.unmatched_files(
            sys.argv, self.get_fully_qualified_name()
        )
        for text in warnings:
            self.get_logger().warning(text)
        self.parameter_warnings = warnings

        settings = self.parameters.configure()
        self.map_settings = settings[MapSettings]
        self.intake_settings = settings[IntakeSettings]

        self.wanted = Requirements(
            self.map_settings,
            frozenset(self.parameters.given),
            self.intake_settings.channels,
            self.intake_settings.quantity,
            _named_frame(self.intake_settings),
            self.settings.allow_frame_change,
            partial(setup_notes, self.intake_settings),
        )

    def _configuring(self) -> Steps:
        """Make the parts in the order in which they need each other, each with its own undoing."""
        self._read_parameters()
        torch.set_num_threads(self.settings.torch_threads)
        self.inputs = Inputs(
            self,
            self.intake_settings,
            self._on_input,
            depth=self.settings.input_queue_depth,
            reliable=self.settings.reliable_inputs,
            find=self._find_message,
            listens=self.listens,
        )

        name, log = self.get_fully_qualified_name(), self.get_logger()
        session, path, own, self.resume_warning = yield from in_thread(
            first_session, self.settings, self.wanted, name, log
        )
        self.place_warning = ""
        if path is not None:
            self.log_foreign_exports(path)
            self.warn_of_place(session.about)

        self._make_map(session)
        self._make_saver(path, own)
        self._make_outputs()
        self._watch_time()

    def _make_map(self, session: MapSession) -> None:
        """Make what works on the map: worker, survey, suggestions, team."""
        self.map_settings = session.settings
        name, log = self.get_fully_qualified_name(), self.get_logger()

        maps = FreeMaps(aside=True)
        self.survey = Survey(self.settings, self.map_settings.seed, maps=maps)
        self._logged_obstacles, rules = "", self.survey.rules
        claims = Claims(name if self.listens else "", lambda: self.survey.others)
        self.suggester = Suggester(self.settings, maps, rules, claims)

        # results come in the worker's thread and are published in the executor's
        self._done = self.create_guard_condition(self._publish_results)
        self._undo_configure.callback(self.destroy_guard_condition, self._done)
        self.worker = MapWorker(
            session,
            Intake(
                self.intake_settings,
                judge=make_judge(self.map_settings),
                as_received=True,
            ),
            queue_size=self.settings.worker_queue_size,
            draw_budget=self.settings.draw_budget,
            suggest=self.suggester,
            survey=self.survey,
            published_frame=lambda: self.frame,
            on_result=self._done.trigger,
            on_error=log.error,
        )
        self._undo_configure.callback(self.worker.stop, abandon=True)

        self.team = Team(
            self.worker,
            lambda: self.settings,
            lambda: self.map_settings,
            self.get_fully_qualified_name(),
            others_of(self),
            self._frame_of_own,
            self.intake_settings.quantity if self.listens else "",
            on_error=log.warning,
        )

        self.worker.start()  # which asks for the frame, and so for the team's

    def _make_saver(self, path: Path | None, own: tuple[Path, ...]) -> None:
        """Make what reads and writes files.

        Args:
            path: the file that the map comes from; None: of none.
            own: the files that may be written over, as in Saver.
        """
        self.files = FileThread(self.settings.service_queue_size)
        self._undo_configure.callback(self.files.close, 1.0)
        self.saver = Saver(
            self.worker,
            self.files,
            lambda: self.settings,
            self.get_fully_qualified_name(),
            on_saved=self.get_logger().info,
            on_error=self.get_logger().error,
            shown=not self.listens,
            own=own,
            rules=self.survey.rules,
        )
        self._undo_configure.callback(self.saver.release)
        if path:
            self.saver.mark_saved(self.worker.key, path)

    def _make_outputs(self) -> None:
        """Make publishers, diagnostics and services."""
        self.publishers_ = MapPublishers(self, self.map_settings, self._find_message)
        self._undo_configure.callback(self.publishers_.destroy)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._undo_configure.callback(self.destroy_publisher, self._diagnostics)

        self._health = Health(self.settings.silence_warning)
        self._clock_watch = ClockWatch()
        self._namesakes = Namesakes(self)
        self._answered, self._requested, self._published = 0, None, None
        self.map_services = MapServices(self, self.files, self.saver, self._find_message)
        self._undo_configure.callback(
            self.map_services.refuse, ClosingError("the node is not configured; configure it first")
        )

    def _watch_time(self) -> None:
        """Watch for time that goes back, and do what is due from time to time."""
        jump = JumpThreshold(
            min_forward=None, min_backward=Duration(nanoseconds=-1), on_clock_change=False
        )
        watch = self.get_clock().create_jump_callback(jump, post_callback=self._on_clock_jump)
        self._undo_configure.callback(watch.unregister)
        period = self.settings.diagnostics_period
        self._undo_configure.callback(
            self.destroy_timer, self.create_timer(period, self.publish_health, clock=self._steady)
        )
        self._undo_configure.callback(
            self.destroy_timer, self.create_timer(0.2, self._on_autosave, clock=self._steady)
        )

    def activating(self) -> Steps:
        """Subscribe to inputs and begin to publish."""
        try:
            self._activate()
        except BaseException:
            self._undo_activate.close()
            raise
        self._requested, self._free_space_changed, self.active = None, False, True
        yield from ()

    def _activate(self) -> None:
        self._undo_activate.callback(self.inputs.close)
        self.inputs.open()

        self._undo_activate.callback(FreeMapListener(self, self._on_free_space).destroy)

        self.queries = PointQueries(
            self, self.worker, lambda: self.frame, self.settings.max_query_points
        )
        self._undo_activate.callback(self.queries.destroy)
        self.survey_port = SurveyPort(self, self.survey)
        self._undo_activate.callback(self.survey_port.destroy)
        self._undo_activate.callback(
            self.destroy_timer, self.create_timer(0.5, self.survey_port.tick, clock=self._steady)
        )

        if self.team.sending or self.team.merging:
            port = TeamPort(self, self.team)
            self._undo_activate.callback(port.destroy)
            self._undo_activate.callback(
                self.destroy_timer, self.create_timer(0.1, port.tick, clock=self._steady)
            )

        self._tick_timer = self.create_timer(
            1.0 / self._tick_rate, self._on_tick, clock=self._steady
        )
        self._undo_activate.callback(self.destroy_timer, self._tick_timer)

        self.get_logger().info(
            f"mapping with model {self.map_settings.model!r}; waiting for "
            + (self.inputs.describe() or f"the maps of {', '.join(self.team.sources) or 'nobody'}")
        )

    def deactivating(self) -> Steps:
        """Stop listening and publishing; delivered and queued messages still go into the map."""
        yield from MapEnding(self, self.hurry).take_in()
        self.active = False
        self._undo_activate.close()
        self.worker.end_pass()

    def cleaning_up(self) -> Steps:
        """Save the map, if asked, and remove it and all that configuring has made."""
        yield from self._finishing()
        self.active, self.paused = False, False
        self._undo_activate.close()
        self._undo_configure.close()
        self.parameters.reopen()

    def shutting_down(self) -> Steps:
        """Clean up from any state; the last transition."""
        yield from self.cleaning_up()

    def _finishing(self) -> Steps:
        """End the map, once; exit_code is 1 where it was not saved or another part failed."""
        if not self._finished:
            self._finished = True
            self.exit_code = yield from MapEnding(self, self.hurry).finish()

    def finish(self) -> int:
        """End the map at once, without an executor; returns the exit code."""
        at_once(self._finishing())
        return self.exit_code

    # ---- inputs: callbacks only enqueue ----------------------------------------------------------

    def _on_input(self, port: InputPort, message, age: int = 0, posed: int | None = None) -> None:
        """Enqueue a message; age and posed as Inputs hands them on."""
        port.watch.arrived(time.monotonic())
        if self.paused and port.role in ("measurement", "pose", "fix"):
            # TF is used all the same: a static link is sent only once
            self.worker.count("paused", role=port.role)
        else:
            unstamped = port.role == "measurement" and not has_header(message)
            arrived = self._arrival_time(port, age) if unstamped else None
            self.worker.put(port.role, message, arrived, posed)

    def _arrival_time(self, port: InputPort, age: int) -> int:
        """The node's time (ns) at which a message of that age (ns of wall time) arrived.

        Simulated time runs at an unknown rate, so there the age is left out.
        """
        clock = self.get_clock()
        return port.in_order(clock.now().nanoseconds - (0 if clock.ros_time_is_active else age))

    def _on_clock_jump(self, jump) -> None:
        """Log that time went back; the intake clears its queues by each topic's own stamps.

        Clearing here, at some moment between two topics, would drop the first messages after it.
        """
        if self._clock_watch.jumped_back(time.monotonic()):
            self.get_logger().warning(
                f"time went back by {-jump.delta.nanoseconds / 1e9:.2f} s: the map stays, and stamps "
                "that go back with it begin a new pass"
            )

    # ---- outputs ---------------------------------------------------------------------------------

    @property
    def _tick_rate(self) -> float:
        """Hz at which the node looks what is due: each topic has a rate of its own."""
        s = self.settings
        return max(LEAST_TICKS, s.publish_rate, s.marker_rate, s.suggestion_rate)

    def _periods(self) -> dict[str, float]:
        """Seconds between two messages, by part of Results; 0: never. Slow work lengthens them."""
        s, drawing = self.settings, self.worker.drawing_time
        choosing = (
            max(1.0 / s.suggestion_rate, 4.0 * self.worker.suggesting_time)
            if s.suggestion_rate
            else 0.0
        )

        return {
            "grid": max(1.0 / s.publish_rate, 2.0 * drawing),
            "markers": max(1.0 / s.marker_rate, 2.0 * drawing),
            "suggestions": choosing,
        }

    def _on_free_space(self, message: OccupancyGrid) -> None:
        """Note the newest free-space map: suggestions are due again, even if the robot stands."""
        self._free_space_changed |= self.worker.set_free(message)

    def _on_tick(self) -> None:
        """Request what subscribers wait for, unless a request waits for an answer (10 s long)."""
        if self._finished:
            return
        self.inputs.look()
        self._publish_results()  # what is ready may have its own turn only after this one
        if self._requested is not None and time.monotonic() - self._requested < 10.0:
            return

        at_once = self.suggester.should_ask_again
        if at_once or self._free_space_changed or self.suggester.is_outdated:
            self.publishers_.renew_part("suggestions", at_once)
        self._free_space_changed = False
        if wanted := self._due(self._periods()):
            self._requested = time.monotonic()
            self.worker.request(wanted)

    def _due(self, periods: dict[str, float]) -> set[str]:
        """Parts of Results that are due."""
        if not self.frame:
            return set()  # a loaded map whose frame is not known yet; health says so
        return self.publishers_.due(self.worker.revision, time.monotonic(), periods)

    def publish_last(self, whole: bool = True) -> Steps:
        """Publish the last map, after worker.stop(); whole: with all that is not drawn yet."""
        wanted = self._due({part: min(period, 1e-9) for part, period in self._periods().items()})
        if wanted:
            yield from in_thread(self.worker.draw_last, wanted, whole)
            self._publish_results()

    def _publish_results(self) -> None:
        if self._answered == self.worker.answered:
            return
        self._answered = self.worker.answered
        results, self._requested = self.worker.results, None
        if self.active and results is not None and results is not self._published:
            self._published = results
            next_pose = self.survey_port.next_pose() if self.survey.plan else None
            self.publishers_.publish(results, self.frame, next_pose)

    @property
    def frame(self) -> str:
        """The map's frame: map_frame, else the odometry's, else other robots'; '' if unknown."""
        return self._frame_of_own() or self.team.frame

    def _frame_of_own(self) -> str:
        return self.settings.map_frame.lstrip("/") or self.worker.frame

    def warn_of_place(self, about: dict) -> None:
        """Log, and say in /diagnostics, where a saved map may be in the wrong place.

        Args:
            about: of its session.
        """
        self.place_warning, frame = "", odometry_frame_of(about)
        if frame:
            text = (
                f"this map goes on in frame {named(frame)} of an odometry, whose origin is mostly where the robot "
                "was switched on: what was mapped before is then in the wrong place; map in the frame of a "
                "localiser, or clear"
            )
            self.get_logger().warning(text)
            self.place_warning = text

    def log_foreign_exports(self, path: Path) -> None:
        """Log which exports beside a loaded checkpoint belong to another map."""
        if foreign := foreign_exports(path):
            self.get_logger().warning(
                f"beside {path}, {', '.join(foreign)} are of another map; ~/save writes them anew"
            )

    def _on_autosave(self) -> None:
        self.inputs.alive()
        if not self._finished:
            self.saver.autosave(time.monotonic())

    def publish_health(self) -> None:
        """Publish /diagnostics as they are now."""
        now, status = time.monotonic(), self.worker.status
        clock, simulated = self.get_clock().now().nanoseconds, self.get_clock().ros_time_is_active
        self.inputs.check_publishers()
        notes = [
            (WARN, text)
            for text in (
                *self.parameter_warnings,
                *self.inputs.problems,
                self._namesakes.note(now),
                self.suggester.note,
                self.survey.note,
                self.survey.rules.problem,
                *self.saver.problems,
                self.place_warning,
                self.resume_warning,
                self.queries.problem if self.active else "",
            )
            if text
        ]

        if not self.active:
            notes.append((WARN, "inactive: nothing is listened to; activate the node"))
        coming = any(watch.has_come_within(1.0, now) for watch in self.inputs.watches)
        notes += self._clock_watch.notes(clock, now, simulated, coming)

        known = status.last_stamp is not None and clock > 0
        age = clock / 1e9 - status.last_stamp if known else None
        areas = self._health.areas(
            now=now,
            status=status,
            watches=self.inputs.watches,
            paused=self.paused,
            active=self.active,
            notes=notes,
            limits=self.publishers_.limits,
            published=self.publishers_.published,
            stamp_age=age,
            simulated=simulated,
            frameless=self.worker.revision > 0 and not self.frame,
            queue=self.worker.queued,
            enqueued=self.worker.enqueued,
            facts=self._facts(),
            survey=self.survey.current_state(),
            team=self.team.status(now) if self.team.sending or self.team.merging else None,
        )

        self._log_obstacles()
        self._diagnostics.publish(
            to_array(areas, self.get_fully_qualified_name(), self.get_clock().now().to_msg())
        )

    def _facts(self) -> dict:
        """For viewers: the map's unit and scale, and since when the node runs (wall time, s)."""
        facts = {
            "field_unit": self.map_settings.field_unit,
            "field_scale": repr(self.map_settings.field_scale),
            "node started": f"{self._started_at:.6f}",
        }
        return facts | ({"obstacles": self.suggester.obstacles} if self.suggester.obstacles else {})

    def _log_obstacles(self) -> None:
        """Log what suggestions know of obstacles, when that changes: goals may be unchecked."""
        if self.suggester.obstacles != self._logged_obstacles:
            self._logged_obstacles = self.suggester.obstacles
            self.get_logger().info(f"suggestions: {self._logged_obstacles}")

    # ---- for services and parameters -------------------------------------------------------------

    def use_settings(self, map_settings: MapSettings) -> None:
        """Use the settings of another map, which has been loaded."""
        self.map_settings = map_settings
        self.survey.forget()
        self.publishers_.renew(map_settings)

    def _apply_change(self, before: NodeSettings) -> None:
        """Pass on live settings that have changed."""
        if not self._finished:
            self.suggester.settings = self.survey.settings = self.settings
            self._health.silence_warning = self.settings.silence_warning
        if self.active:
            self._tick_timer.timer_period_ns = int(1e9 / self._tick_rate)


def _named_frame(intake: IntakeSettings) -> str:
    """Frame of the poses where a parameter gives it; '' where the first pose does."""
    return intake.odometry_frame.lstrip("/") or ("map" if intake.pose_source == "tf" else "")


def main(arguments: list[str] | None = None, kind: type[MappingNode] = MappingNode) -> int:
    """Console script.

    Args:
        arguments: Of the command line; those of this process if None.
        kind: The node to run.

    Returns:
        0 after SIGINT or SIGTERM, 1 where the map was not saved or the end failed otherwise (the
        log says why), 2 for wrong parameters or files.
    """
    stopper = Stopper()
    try:
        rclpy.init(args=arguments, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
        node = kind()
    except (ValueError, RuntimeError) as error:  # RuntimeError: rcl about a parameter file
        print(f"{kind.default_name}_node: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 2
    node.hurry = lambda: stopper.count > 1
    code = run_lifecycle(node, stopper)
    node.destroy_node()
    rclpy.try_shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
