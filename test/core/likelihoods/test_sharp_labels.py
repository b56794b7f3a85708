"""Labels with sharp borders: a site that was stepped too far is not lost, and single labels make a map."""

import numpy as np
import pytest

from gp_mapping import Samples, create_map

X = np.stack([np.linspace(0.0, 6.0, 60), np.zeros(60)], 1)
FIELD = 4.0 * np.sin(3.0 * X[:, 0])


def built(likelihood, labels, **settings):
    field = create_map(
        "dual_svgp",
        likelihood=likelihood,
        lengthscale=0.4,
        classes=3,
        learn_hyperparameters=False,
        **settings,
    )
    for i in range(0, 60, 10):
        field.update(Samples(X[i : i + 10], labels[i : i + 10]))
    return field


@pytest.mark.parametrize("signal", [5.0, 40.0])
def test_a_wide_prior_does_not_undo_what_labels_say(signal):
    """Two steps: far beyond the mark with a precision, then no precision there, and back to the prior; 4 are taken."""
    labels = (FIELD > 0.0).astype(float)
    field = built("bernoulli", labels, signal_stddev=signal, inducing_information=0.0)
    assert float(field.log_predictive(Samples(X, labels)).mean()) > -0.1  # it was -.2, and ln ½
    known = field.predict(X).stddev[:, 0] / field.prior().variance[0, 0].sqrt()
    assert float(known.max()) < 0.8, "measured ground is known"


def test_single_labels_of_classes_make_a_map():
    """With the defaults it had no inducing input: every class was as likely everywhere."""
    labels = np.digitize(FIELD, [-2.0, 2.0])
    field = built("softmax", labels)
    assert len(field.inducing_inputs()) > 5
    assert float(field.log_predictive(Samples(X, labels)).mean()) > -0.6  # it was -ln 3
