"""Where and of what a live map is: what its file says, and what its measurements add to it."""

from __future__ import annotations

from gp_mapping.intake.sensors.setup import SETUP
from gp_mapping.intake.sensors.sketch import MEASURED

__all__ = ["Origin"]


class Origin:
    """Keeps `about` of a session and the intake of its measurements in step, in the map's thread.

    Args:
        intake: Intake.
    """

    def __init__(self, intake):
        self._intake = intake
        self._goes_on, self._measured_more = True, False

    def expect(self, session) -> None:
        """Tell the intake that a session's map is in a frame already, which stays."""
        # a saved map was measured with the setup that its file names, until something new comes
        self._goes_on, self._measured_more = True, False
        about = session.about
        self._intake.expect_none_of(about.get(MEASURED, ""))
        if frame := about.get("frame"):
            self._intake.expect(frame, about.get("sensor_frame", ""))
        elif session.cell_count:
            self._intake.make_final()

    def add_samples(self, session) -> None:
        """Have a session that took samples in know what they are of."""
        if self._goes_on or "frame" not in session.about:
            self._goes_on, now_read = False, self._intake.about
            session.about = {**now_read, **session.about, SETUP: now_read[SETUP]}
        self._measured_more = True

    def note_measured(self, session) -> None:
        """Have a session know which measurements it holds, for who is about to read it."""
        if self._measured_more:
            session.about[MEASURED] = self._intake.sketch.as_text()
            self._measured_more = False
