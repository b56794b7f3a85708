"""One robot of a team: sends its totals, receives those of others, and shows the sum of all.

No rclpy. The map's own thread only takes snapshots. Messages are encoded and sums are made in two
threads of their own, one at a time each; received messages are checked in the thread that passes
them on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from gp_mapping.errors import one_line
from gp_mapping.mapping.session import MapSession
from gp_mapping.runtime.background import BackgroundJob
from gp_mapping.runtime.team.incoming import MapTotals, MemoryPool, Source
from gp_mapping.runtime.team.outgoing import Outgoing
from gp_mapping.runtime.team.summing import Member, TeamSum, sum_maps
from gp_mapping.runtime.team.totals import MAP_ID, Totals, totals_of
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.node import NodeSettings
from gp_mapping.settings.team import transforms_of

__all__ = ["Team"]

_PAUSE_FACTOR = 3.0  # pause after a sum, times its duration: sums take a quarter of a core at most
_REMEMBERED = 1000  # refusals that are remembered, so that each is counted once


class Team:
    """Sends totals, receives others', and shows their sum.

    All methods are for one thread, the one that calls tick() and accept().

    Args:
        worker: MapWorker with this robot's map.
        settings: function that returns the node's current settings.
        map_settings: function that returns the map's settings.
        name: of this node, as others read it in messages.
        robots: those to merge, by the names of merge_from.
        frame: function that returns the frame of this map now; '' while it is not known.
        quantity: what is measured here; '' for anything.
        on_error: called with a text for the log.

    Attributes:
        sources: a Source for each robot, by its name.
        sending: whether this robot's totals are sent.
        sums: how many sums were made.
        took: duration of the last one, s.
    """

    def __init__(
        self,
        worker,
        settings: Callable[[], NodeSettings],
        map_settings: Callable[[], MapSettings],
        name: str,
        robots: list[str],
        frame: Callable[[], str],
        quantity: str = "",
        on_error=print,
    ):
        self._worker, self._settings, self._map_settings = worker, settings, map_settings
        self._frame, self._quantity, self._on_error = frame, quantity, on_error
        self._holdings = MemoryPool(settings().merge_memory)
        self.sources = {robot: Source(robot, self._holdings) for robot in robots}
        self.sending = settings().publish_tiles
        self._outgoing = Outgoing(name, MapSession(map_settings()).map.slimmed)
        self._encoding, self._summing = BackgroundJob("tiles"), BackgroundJob("team")
        self._message: tuple[bytes, str, str, int] | None = None
        self._asked: Future | None = None
        self._totals: Totals | None = None
        self._asked_at = float("-inf")
        self._sum, self._begun, self._sum_at = TeamSum(), 0.0, float("-inf")
        self._of: tuple | None = None  # what the last sum was made of
        self._given: dict[tuple, MapTotals] = {}  # of the sum that is being made
        self._refused: dict[tuple, str] = {}
        self.sums, self.took = 0, 0.0  # how many; s of the last one
        self._problem = ""  # why it failed; '' where it did not
        self._own_left_out = ""  # why this robot's own map is not in the sum; '' where it is

    @property
    def merging(self) -> bool:
        """Whether there are robots to merge."""
        return bool(self.sources)

    @property
    def frame(self) -> str:
        """Frame of the sum; '' where there is no sum, or no frame is known."""
        session = self._sum.session
        return "" if session is None else str(session.about.get("frame") or "")

    def accept(self, robot: str, data: bytes) -> bool:
        """Take a message from a robot's ~/tiles.

        Args:
            robot: its name in merge_from.
            data: the message.

        Returns:
            Whether it was taken.
        """
        return self.sources[robot].accept(data, time.monotonic())

    # --- now and then -----------------------------------------------------------------------------
    def tick(self, now: float) -> bytes | None:
        """Begin what is due; to be called several times a second.

        Args:
            now: monotonic s.

        Returns:
            A message to send now, or None.
        """
        self._take_snapshot(now)
        if self.merging:
            self._sum_up(now)
        return self._next_message(now) if self.sending else None

    def _take_snapshot(self, now: float) -> None:
        """Fetch totals that the worker has taken, and request new ones if the map has changed."""
        if self._asked is not None and self._asked.done():
            future, self._asked = self._asked, None
            try:
                self._totals, map_id = future.result()
            except CancelledError:
                return
            except Exception as error:
                self._on_error(f"the map's totals could not be taken: {error!r}")
                return
            if self._totals is None:
                self._outgoing.clear(map_id)
            elif self.sending:
                self._outgoing.update(self._totals)

        s = self._settings()
        period = min(
            s.tiles_period if self.sending else s.merge_period,
            s.merge_period if self.merging else 1e9,
        )
        known = None if self._totals is None else self._totals.key
        if self._asked is None and now - self._asked_at >= period and self._worker.key != known:
            self._asked_at = now
            worker = self._worker
            self._asked = worker.call(
                lambda session: (
                    worker.timed("totals", totals_of, session, worker.key),
                    session.about.get(MAP_ID, ""),
                )
            )

    def _next_message(self, now: float) -> bytes | None:
        """Return a message that has been encoded, or have one encoded."""
        s = self._settings()
        if self._message is None and not self._encoding.idle:
            try:
                self._message = self._encoding.fetch()
            except Exception as error:  # a tile on a disk that cannot be read, say
                self._on_error(f"a message of ~/tiles could not be made: {one_line(error, 300)}")
        if self._message is not None:
            message, self._message = self._message, None
            self._outgoing.mark_sent(*message, now)
            return message[0]

        if self._encoding.idle:
            name = self._outgoing.due(now, s.tiles_bandwidth, s.tiles_period, s.tiles_round)
            if name is not None:
                self._encoding.start(self._outgoing.message(name))
        return None

    def _sum_up(self, now: float) -> None:
        """Fetch a sum that has been made, or have one made where a member has changed."""
        if not self._summing.idle:
            if self._summing.running:
                return

            problem = ""
            try:
                self._take_sum(self._summing.fetch(), now)
            except Exception as error:
                # None: it is tried again without news; a full disk may have room then
                problem, self._of = (repr(error), None)
            if problem and problem != self._problem:
                self._on_error(f"the robots' maps could not be added: {problem}")
            self._sum_at, self._problem = now, problem
            return

        own = self._totals
        state = (
            None if own is None else own.key,
            tuple(source.news for source in self.sources.values()),
        )
        pause = max(self._settings().merge_period, _PAUSE_FACTOR * self.took)
        if state == self._of or now - self._sum_at < pause:
            return

        self._of, self._begun = state, now
        members = self._members(own)
        if all(member.own for member in members):
            if self._sum.session is not None:
                self._sum = TeamSum()
                self._worker.show(None)
            return

        # evaluated now, in this thread, and not when the sum is made
        arguments = (
            members,
            self._map_settings(),
            self._frame(),
            self._quantity,
            transforms_of(self._settings().merge_transforms),
            self._sum,
        )
        self._summing.start(lambda: sum_maps(*arguments))

    def _members(self, own: Totals | None) -> list[Member]:
        """Members of the next sum: all complete maps of others, and this robot's totals, if any."""
        self._given = {g.version: g for source in self.sources.values() for g in source.ready()}
        members = [
            Member(g.source.name, g.map_id, g.state, version) for version, g in self._given.items()
        ]
        if own is not None:
            members.append(
                Member(
                    "this robot", own.map_id, lambda: own.state, ("", own.map_id, own.key), own=True
                )
            )
        return members

    def _take_sum(self, made: TeamSum, now: float) -> None:
        """Show a new sum, unless this robot's map has been cleared or replaced meanwhile."""
        self.took, self.sums = now - self._begun, self.sums + 1
        self._own_left_out = next((text for m, _, text in made.refused if m.own), "")

        for member in made.used:
            if member.version in self._given:
                self._given[member.version].source.mark_added(self._given[member.version])
        for member, why in made.failed:
            if member.version in self._given:
                given = self._given[member.version]
                given.source.mark_failed(given, why)
            else:
                self._own_left_out = f"this robot: {why}"
                self._on_error(f"this robot's own map could not be added: {why}")
        for member, reason, text in made.refused:
            self._refuse(member, reason, text)

        # another session, or fewer raw samples: the sum has a map in it that is gone
        own, key = self._totals, self._worker.key
        if own is not None and (key[0] != own.key[0] or key[2] < own.key[2]):
            self._of = None
            return

        self._sum = made
        self._worker.show(made.session, made.touched)

    def _refuse(self, member: Member, reason: str, text: str) -> None:
        """Count or log a refusal, once for each version of a member's totals."""
        if self._refused.get(member.version) == reason:
            return
        self._refused[member.version] = reason
        while len(self._refused) > _REMEMBERED:
            self._refused.pop(next(iter(self._refused)))  # the oldest

        if member.version in self._given:
            self._given[member.version].source.refuse(reason, text)
        else:
            self._on_error(text)

    # --- for diagnostics --------------------------------------------------------------------------
    def status(self, now: float) -> tuple[dict[str, object], list[str]]:
        """Numbers by name, and sentences, for diagnostics.

        Args:
            now: monotonic s.
        """
        values: dict[str, object] = {}
        if self.sending:
            values |= {
                "sent": self._outgoing.messages,
                "sent bytes": self._outgoing.bytes,
                "parts": self._outgoing.parts,
                "parts that wait": self._outgoing.waiting,
            }
        if self.merging:
            values |= {
                "robots in the map": len({member.name for member in self._sum.used}),
                "sums": self.sums,
                "last sum took (s)": self.took,
                "kept of others (MB)": self._holdings.used / 1e6,
            }
            values |= {f"team {name}": value for name, value in self._sum.theta.items()}
        notes = list(self._sum.notes)
        if self._own_left_out:
            notes.append(f"this robot's own map is not in what is shown: {self._own_left_out}")
        for robot, source in self.sources.items():
            values |= {f"{robot} {name}": value for name, value in source.status(now).items()}
            notes += [text for text in (source.fault, source.problem, source.rivals) if text]
            if source.newest is None:
                notes.append(
                    f"no totals of {robot} yet: does its mapper run with publish_tiles: true, and can it be "
                    "heard?"
                )
        return values, notes
