"""Why a message was not used: a fixed vocabulary of reasons.

All are counted, so that nothing is lost silently.
"""

from __future__ import annotations

from enum import Enum

from gp_mapping.settings.blame import blame, raised

__all__ = ["DropCounter", "DropReason"]

_NAMED = 3  # exceptions that are named; what they cost is counted


class DropReason(Enum):
    """Why a message was not used.

    The value is the name in reports; `explanation` says in plain words what to look at.
    """

    UNREADABLE = "unreadable"
    ADAPTOR_FAILED = "adaptor_failed"
    NOT_CHOSEN = "not_chosen"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    IMPOSSIBLE = "impossible"
    BAD_COVARIANCE = "bad_covariance"
    REPEATED_STAMP = "repeated_stamp"
    OUT_OF_ORDER = "out_of_order"
    STRAY_STAMP = "stray_stamp"
    UNEXPECTED_FRAME = "unexpected_frame"
    NO_POSE = "no_pose"
    NO_TRANSFORM = "no_transform"
    POSE_GAP = "pose_gap"
    QUEUE_FULL = "queue_full"
    TIME_JUMP = "time_jump"
    NOT_PLACEABLE = "not_placeable"
    REFUSED = "refused"
    POSE_UNREADABLE = "pose_unreadable"
    POSE_NOT_FINITE = "pose_not_finite"
    POSE_OUT_OF_RANGE = "pose_out_of_range"
    POSE_TOO_FAST = "pose_too_fast"
    POSE_ZERO_QUATERNION = "pose_zero_quaternion"
    POSE_BAD_QUATERNION = "pose_bad_quaternion"
    POSE_REPEATED_STAMP = "pose_repeated_stamp"
    POSE_OUT_OF_ORDER = "pose_out_of_order"
    POSE_STRAY_STAMP = "pose_stray_stamp"
    POSE_UNEXPECTED_FRAME = "pose_unexpected_frame"
    POSE_BAD_COVARIANCE = "pose_bad_covariance"
    POSE_FRAMES_FULL = "pose_frames_full"
    POSE_FRAMES_LOOP = "pose_frames_loop"
    POSE_LOST = "pose_lost"
    FIX_UNREADABLE = "fix_unreadable"
    FIX_INVALID = "fix_invalid"
    FIX_NO_POSE = "fix_no_pose"
    FIX_QUEUE_FULL = "fix_queue_full"

    @property
    def explanation(self) -> str:
        """One sentence for a person who sees the count."""
        return _EXPLANATIONS[self]

    @property
    def concerns_pose(self) -> bool:
        """Whether the reason is about a pose and not about a measurement."""
        return self.value.startswith("pose_") and self is not DropReason.POSE_GAP

    @property
    def concerns_fix(self) -> bool:
        """Whether the reason is about a fix of a satellite receiver."""
        return self.value.startswith("fix_")

    @property
    def is_used(self) -> bool:
        """Whether the message was used all the same, without the part of it that was wrong."""
        return self is DropReason.POSE_BAD_COVARIANCE


_EXPLANATIONS = {
    DropReason.UNREADABLE: "measurement whose recorded bytes are no message of its type; is the bag damaged, or "
    "are there several types on its topic?",
    DropReason.ADAPTOR_FAILED: "measurement that the adaptor of its sensor failed on; the warnings say what it raised",
    DropReason.NOT_CHOSEN: "message of others than value_field chooses (another access point, another gas), or without "
    "it, as out of its reach; not lost, as long as what is chosen comes, too",
    DropReason.NOT_FINITE: "measurement that is NaN or infinite, or an axis of it (NaN: not measured; a range of "
    "±inf: nothing in reach, or too near)",
    DropReason.OUT_OF_RANGE: "measurement outside the range of its sensor (max_field, min_value, max_value) or of its "
    "message (min_range, max_range); is it in the unit that ROS asks for (tesla for a magnetic field, 0 to 1 for a "
    "humidity)?",
    DropReason.IMPOSSIBLE: "measurement that cannot be of what is mapped: a label that is none of the classes, a count "
    "below 0 or beyond belief; are likelihood and classes right for this topic?",
    DropReason.BAD_COVARIANCE: "measurement whose covariance is NaN, infinite, negative or larger than the square of "
    "the sensor's range; write zeros, or -1 in front, where it is unknown",
    DropReason.REPEATED_STAMP: "measurement with the stamp of the one before; does the driver set header.stamp?",
    DropReason.OUT_OF_ORDER: "measurement with an older stamp than the one before",
    DropReason.STRAY_STAMP: "measurement whose stamp leaps away from those before it while the next ones go on as "
    "before; do two publishers with different clocks share the topic?",
    DropReason.UNEXPECTED_FRAME: "measurement in another frame than sensor_frame (or than the first measurement)",
    DropReason.NO_POSE: "measurement with no pose around its stamp; are poses published, and in the same time?",
    DropReason.NO_TRANSFORM: "measurement for which TF does not connect the frames of map, robot and sensor; is every "
    "link published, /tf_static too, and are odometry_frame and base_frame right?",
    DropReason.POSE_GAP: "measurement between two poses that are further apart in time than max_pose_gap; "
    "poses that come seldom: raise it to two of their periods, if the robot is slow enough",
    DropReason.QUEUE_FULL: "measurement pushed out of a full queue; poses come too late or samples are not taken",
    DropReason.TIME_JUMP: "measurement still waiting for its pose when time jumped back (a bag that loops)",
    DropReason.NOT_PLACEABLE: "measurement whose value or place is not finite, or out of reach, once it is turned and "
    "placed (lever arm, soft iron, max_position)",
    DropReason.REFUSED: "measurement that the map refused, because it would have spoiled it (too far from all others, "
    "not finite once it is added) or because it is full (left_out: raise max_tiles, or "
    "max_exact_samples); the map is as it was before",
    DropReason.POSE_UNREADABLE: "pose or transform whose recorded bytes are no message of its type; is the "
    "bag damaged, or are there several types on its topic?",
    DropReason.POSE_NOT_FINITE: "pose with a NaN or infinite number",
    DropReason.POSE_OUT_OF_RANGE: "pose farther from the origin than max_position",
    DropReason.POSE_TOO_FAST: "pose that the robot could not have reached from the one before at max_speed",
    DropReason.POSE_BAD_QUATERNION: "pose whose orientation is no quaternion: its norm is beyond 1000",
    DropReason.POSE_ZERO_QUATERNION: "pose whose orientation is a zero quaternion; does its source fill it in?",
    DropReason.POSE_REPEATED_STAMP: "pose with the stamp of the one before",
    DropReason.POSE_OUT_OF_ORDER: "pose with an older stamp than the one before",
    DropReason.POSE_STRAY_STAMP: "pose whose stamp leaps away from those before it while the next ones go on as "
    "before; do two publishers with different clocks share the topic?",
    DropReason.POSE_UNEXPECTED_FRAME: "pose in another frame than odometry_frame (or than the first pose)",
    DropReason.POSE_FRAMES_FULL: "transform of a frame beyond the number that is kept, or with a name that is too long",
    DropReason.POSE_FRAMES_LOOP: "transform that would put a frame of TF above itself; does a node publish one the "
    "wrong way round?",
    DropReason.POSE_BAD_COVARIANCE: "pose whose covariance is NaN, infinite or negative; the pose is used, its "
    "uncertainty counts as unknown",
    DropReason.POSE_LOST: "pose whose covariance says that the robot may be anywhere (10 km and more); if covariances "
    "are placeholders, set use_pose_covariance to false",
    DropReason.FIX_UNREADABLE: "fix whose recorded bytes are no message of its type; is the bag damaged?",
    DropReason.FIX_INVALID: "fix of a receiver that knew no position (status -1), or that is no place of the earth",
    DropReason.FIX_NO_POSE: "fix with no pose around its stamp; do receiver and poses have the same time?",
    DropReason.FIX_QUEUE_FULL: "fix pushed out of a full queue",
}


class DropCounter:
    """Counts of dropped messages by reason.

    Attributes:
        notes: the first exceptions that have cost measurements, in sentences.
    """

    def __init__(self):
        self._counts = dict.fromkeys(DropReason, 0)
        self.notes: list[str] = []

    def lost_by(self, error: BaseException, n: int) -> None:
        """Count measurements that an exception of the map has cost as REFUSED, and name it.

        Args:
            error: what was raised.
            n: how many there were.
        """
        self.count(DropReason.REFUSED, n)
        self._warn(
            f"{blame(error) or 'the map'} raised {raised(error)}; the measurement that it worked on is left out"
        )

    def _warn(self, text: str) -> None:
        if text not in self.notes and len(self.notes) < _NAMED:
            self.notes.append(text)

    def count(self, reason: DropReason, n: int = 1) -> None:
        """Add drops.

        Args:
            reason: why the messages were not used.
            n: how many there were.

        Raises:
            ValueError: the reason is outside the vocabulary, or n is negative.
        """
        if not isinstance(reason, DropReason) or n < 0:
            raise ValueError(f"count({reason!r}, {n!r}): expected a DropReason and n >= 0")
        self._counts[reason] += n

    def uncount(self, reason: DropReason, n: int) -> None:
        """Take back drops: a map that has begun again took these messages after all.

        Args:
            reason: under which they were counted.
            n: how many there were.

        Raises:
            ValueError: n is negative, or fewer are counted.
        """
        if not 0 <= n <= self._counts[reason]:
            raise ValueError(f"uncount({reason!r}, {n!r}): {self._counts[reason]} are counted")
        self._counts[reason] -= n

    def clear(self) -> None:
        """Begin again from nothing: the messages that were counted are taken in anew."""
        self._counts, self.notes = dict.fromkeys(DropReason, 0), []

    def __getitem__(self, reason: DropReason) -> int:
        return self._counts[reason]

    def as_dict(self) -> dict[str, int]:
        """Counts by the name of the reason.

        Only reasons that occurred, in the order of the vocabulary.
        """
        return {reason.value: n for reason, n in self._counts.items() if n}

    @property
    def total(self) -> int:
        """All drops of measurements, poses and fixes.

        Messages that were used all the same are not among them.
        """
        return sum(n for reason, n in self._counts.items() if not reason.is_used)

    @property
    def measurements(self) -> int:
        """Dropped measurements; a dropped pose or fix is not a lost measurement."""
        return sum(
            n
            for reason, n in self._counts.items()
            if not reason.concerns_pose and not reason.concerns_fix
        )

    def explanations(self) -> dict[str, str]:
        """What to look at, by the name of the reason, only reasons that occurred."""
        return {reason.value: reason.explanation for reason, n in self._counts.items() if n}

    def explain(self) -> list[str]:
        """One line for each reason that occurred: count, name, explanation."""
        return [
            f"{n} {reason.value}: {reason.explanation}" for reason, n in self._counts.items() if n
        ]
