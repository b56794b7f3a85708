"""What a change detector has summed in each patch, read from its state."""

from gp_mapping.mapping.scoring.change import ChangeDetector

THRESHOLD = 30.0  # nats


def sums(detector: ChangeDetector) -> list[tuple[float, float, float]]:
    """Patches on the way to an alarm: centre x, y (m), fraction of the threshold."""
    state = detector.state_dict()
    return [
        ((i + 0.5) * state["size"], (j + 0.5) * state["size"], total / THRESHOLD)
        for i, j, total, *_ in state["tiles"].tolist()
        if total > 0
    ]
