"""What there is to say of the clock that a node follows. No rclpy."""

from __future__ import annotations

from collections import deque

from gp_mapping.runtime.health import ERROR, WARN

__all__ = ["ClockWatch"]

_AGAIN = 10.0  # s between two lines in the log, and in which jumps back are counted
_PATIENCE = 3.0  # s for which /clock may stand still while messages come
_JUMPS = 4  # so many of them are of two publishers


class ClockWatch:
    """Watches the node's clock, /clock where time is simulated, beside one that nobody sets.

    Messages without a stamp count by this clock: where it stands still they all lie in one place.
    """

    def __init__(self) -> None:
        self._jumps: deque[float] = deque(maxlen=_JUMPS)  # monotonic s
        self._logged = float("-inf")
        # the clock's time when it last moved, ns, and monotonic s since when it stands there
        self._stands: tuple[int, float] | None = None

    def jumped_back(self, now: float) -> bool:
        """Note that time went back; now: monotonic s.

        Returns:
            Whether that is worth a line in the log: not where there was one just now.
        """
        self._jumps.append(now)
        if now - self._logged < _AGAIN:
            return False
        self._logged = now
        return True

    def notes(self, time: int, now: float, simulated: bool, coming: bool) -> list[tuple[int, str]]:
        """What is wrong with the clock: levels and sentences.

        Args:
            time: of the clock, ns.
            now: monotonic s.
            simulated: whether it follows /clock.
            coming: whether messages come.
        """
        if not simulated:
            self._stands = None
            return []
        if time == 0 and self._stands is None:
            return [(ERROR, "use_sim_time is true and no /clock has come yet")]
        if self._stands is None or self._stands[0] != time:
            self._stands = time, now

        stood = now - self._stands[1]
        if coming and stood > _PATIENCE:
            return [
                (
                    WARN,
                    f"/clock stands still at {time / 1e9:.1f} s for {stood:.0f} s, and messages come: has the "
                    "simulator or player ended? Messages without a stamp all count by that time",
                )
            ]
        if len(self._jumps) == _JUMPS and now - self._jumps[0] < _AGAIN:
            return [
                (
                    WARN,
                    "/clock goes back again and again: two simulators or players publish it; end one",
                )
            ]
        return []
