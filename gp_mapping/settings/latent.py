"""Settings that suit a latent field: one of which classes or counts are measured."""

from __future__ import annotations

from gp_mapping.settings.parts import CLASS_TARGETS, LIKELIHOODS, METRIC

__all__ = ["latent_starts"]


def latent_starts(likelihood: str) -> dict[str, object]:
    """Return what replaces settings' defaults where classes or counts are mapped.

    The latent field has no unit there. Scores compare a measurement with the field itself, which
    means nothing then: what follows from them is off. Gross errors are found by their distance from
    a median: among counts, whose spread is known, not among labels. Labels of classes are not
    averaged into cells; counts are, and each cell weighs as many measurements as it holds; so are
    measurements that are held against `threshold`, those on either side of it by themselves.

    Args:
        likelihood: value of the setting `likelihood`.

    Returns:
        Value by setting; empty for a metric likelihood.
    """
    if LIKELIHOODS.has(likelihood, METRIC):
        return {}

    targets = LIKELIHOODS.has(likelihood, CLASS_TARGETS)  # seven apart, with the usual α_ε
    spread = 3.0 if targets else 1.0 if likelihood == "poisson" else 2.0
    starts: dict[str, object] = {
        "field_scale": 1.0,
        "signal_stddev": spread,
        "noise_stddev": 1.0,
        "heading_stddev": 0.0,
        # gross errors: counts have a known spread, labels have none
        "robust": likelihood == "poisson",
        "constant_stddev": 5.0 if likelihood == "poisson" else spread,
        "follow_changes": False,
        "predictive_noise": False,
    }

    labels = {"cells": False} if targets or likelihood == "softmax" else {}
    # one label tells less than a bit of any class: with a whole bit asked for a map had no input
    least = {"inducing_information": 0.1} if likelihood == "softmax" else {}
    return starts | labels | least
