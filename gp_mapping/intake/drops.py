"""Why a message was not used: a fixed vocabulary, counted, so that nothing is lost silently."""

from __future__ import annotations

from enum import Enum

__all__ = ["DropCounter", "DropReason"]


class DropReason(Enum):
    """One reason each; the value is the name in reports, `explanation` says in plain words what to look at."""

    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    REPEATED_STAMP = "repeated_stamp"
    OUT_OF_ORDER = "out_of_order"
    UNEXPECTED_FRAME = "unexpected_frame"
    NO_POSE = "no_pose"
    NO_TRANSFORM = "no_transform"
    POSE_GAP = "pose_gap"
    QUEUE_FULL = "queue_full"
    TIME_JUMP = "time_jump"
    POSE_NOT_FINITE = "pose_not_finite"
    POSE_ZERO_QUATERNION = "pose_zero_quaternion"
    POSE_REPEATED_STAMP = "pose_repeated_stamp"
    POSE_OUT_OF_ORDER = "pose_out_of_order"
    POSE_UNEXPECTED_FRAME = "pose_unexpected_frame"
    POSE_BAD_COVARIANCE = "pose_bad_covariance"

    @property
    def explanation(self) -> str:
        """One sentence for a person who sees the count."""
        return _EXPLANATIONS[self]

    @property
    def of_pose(self) -> bool:
        """True where a pose was dropped and not a measurement."""
        return self.value.startswith("pose_") and self is not DropReason.POSE_GAP


_EXPLANATIONS = {
    DropReason.NOT_FINITE: "measurement with a NaN or infinite axis (REP-103: NaN means not measured)",
    DropReason.OUT_OF_RANGE: "measurement outside the range of its sensor (max_field, min_value, max_value); is the "
                             "message in the unit that ROS asks for (tesla for a magnetic field)?",
    DropReason.REPEATED_STAMP: "measurement with the stamp of the one before; does the driver set header.stamp?",
    DropReason.OUT_OF_ORDER: "measurement with an older stamp than the one before",
    DropReason.UNEXPECTED_FRAME: "measurement in another frame than sensor_frame (or than the first measurement)",
    DropReason.NO_POSE: "measurement with no pose around its stamp; are poses published, and in the same time?",
    DropReason.NO_TRANSFORM: "measurement for which TF does not connect the frames of map, robot and sensor; is every "
                             "link published, /tf_static too, and are odometry_frame and base_frame right?",
    DropReason.POSE_GAP: "measurement between two poses that are further apart in time than max_pose_gap",
    DropReason.QUEUE_FULL: "measurement pushed out of a full queue; poses come too late or samples are not taken",
    DropReason.TIME_JUMP: "measurement still waiting for its pose when time jumped back (a bag that loops)",
    DropReason.POSE_NOT_FINITE: "pose with a NaN or infinite number",
    DropReason.POSE_ZERO_QUATERNION: "pose whose orientation is a zero quaternion; does its source fill it in?",
    DropReason.POSE_REPEATED_STAMP: "pose with the stamp of the one before",
    DropReason.POSE_OUT_OF_ORDER: "pose with an older stamp than the one before",
    DropReason.POSE_UNEXPECTED_FRAME: "pose in another frame than odometry_frame (or than the first pose)",
    DropReason.POSE_BAD_COVARIANCE: "pose whose covariance is NaN, infinite or negative; the pose is used, its "
                                    "uncertainty counts as unknown",
}


class DropCounter:
    """Counts of dropped messages by reason."""

    def __init__(self):
        self._counts = dict.fromkeys(DropReason, 0)

    def count(self, reason: DropReason, n: int = 1) -> None:
        """Add n drops; ValueError for a reason outside the vocabulary or a negative n."""
        if not isinstance(reason, DropReason) or n < 0:
            raise ValueError(f"count({reason!r}, {n!r}): expected a DropReason and n >= 0")
        self._counts[reason] += n

    def __getitem__(self, reason: DropReason) -> int:
        return self._counts[reason]

    def as_dict(self) -> dict[str, int]:
        """Reason name -> count, reasons that occurred only, in the order of the vocabulary."""
        return {reason.value: n for reason, n in self._counts.items() if n}

    @property
    def total(self) -> int:
        """All drops, of measurements and of poses."""
        return sum(self._counts.values())

    @property
    def measurements(self) -> int:
        """Dropped measurements (a dropped pose is not a lost measurement)."""
        return sum(n for reason, n in self._counts.items() if not reason.of_pose)

    def explain(self) -> list[str]:
        """One line for each reason that occurred: count, name, explanation."""
        return [f"{n} {reason.value}: {reason.explanation}" for reason, n in self._counts.items() if n]
