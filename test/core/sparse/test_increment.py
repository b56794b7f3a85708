"""What has changed since a moment is the difference of two predictions, or is not told."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, feed, samples

from gp_mapping import create_map

RNG = np.random.default_rng(3)
PLACES = torch.from_numpy(
    RNG.uniform(-2, 9, (1300, 2))
)  # more than a chunk, and beyond what was measured


def way(count, start=0, speed=0.1):
    """On lanes of 6 m, 0.4 m apart."""
    lane, along = np.divmod(speed * (start + np.arange(count)), 6.0)
    x = np.stack([np.where(lane % 2 == 0, along, 6.0 - along), 0.4 * lane], 1)
    y = 40 + 8 * np.sin(2 * x[:, :1]) * np.cos(1.5 * x[:, 1:])
    return samples(x, y + 0.3 * RNG.normal(size=(count, 1)))


def built(count=500, **settings):
    field = create_map(
        "dual_svgp", **SETTINGS | {"max_inducing": 300, "memory_size": 600} | settings
    )
    feed(field, way(count), 20)
    return field


def assert_told(field, moment, before):
    """What since tells is what two predictions say; both in units of the prior's standard deviation."""
    mean, variance, known = field.since(moment)(PLACES)
    now = field.predict(PLACES)
    assert (
        bool(known.all()) and mean.shape == now.mean.shape and variance.shape == now.variance.shape
    )
    assert float((now.mean - before.mean - mean).abs().max()) < 1e-8 * 10 * UT
    assert float((now.variance - before.variance - variance).abs().max()) < 1e-8 * (10 * UT) ** 2
    return float(mean.abs().max()), float(variance.abs().max())


@pytest.mark.parametrize(
    "settings", [{}, {"heading_stddev": 0.5 * UT}, {"kernel": "rbf", "inducing_tolerance": 0.05}]
)
@pytest.mark.parametrize("count", [1, 5, 12])
def test_what_samples_have_changed(count, settings):
    """Of samples that are inducing inputs, too, and of such that are not."""
    field = built(**settings)
    before, moment, inputs = field.predict(PLACES), field.moment(), len(field.inducing_inputs())
    field.update(way(count, 500))
    grown = len(field.inducing_inputs()) - inputs
    assert grown >= 0
    mean, variance = assert_told(field, moment, before)
    assert mean > 1e-3 * UT and variance > 1e-4 * UT**2, "and it is something"


def test_many_increments_add_up_to_what_the_map_says():
    """As a drawing does it, for a hundred batches: what is left out of one does not add up."""
    field = built(300)
    told = field.predict(PLACES)
    mean, variance, followed = told.mean, told.variance, 0
    for i in range(100):
        moment, inputs = field.moment(), field.inducing_inputs()
        field.update(way(2, 300 + 2 * i))
        changed = field.since(moment)
        now = field.inducing_inputs()
        if changed is None:
            assert len(now) < len(inputs) or not torch.equal(now[: len(inputs)], inputs), (
                "others were chosen"
            )
            told = field.predict(PLACES)
            mean, variance = told.mean, told.variance
            continue
        more = changed(PLACES)
        mean, variance, followed = mean + more[0], variance + more[1], followed + 1
    told = field.predict(PLACES)
    assert followed > 80
    assert float((told.mean - mean).abs().max()) < 1e-7 * 10 * UT
    assert float((told.variance - variance).abs().max()) < 1e-7 * (10 * UT) ** 2


def test_nothing_has_changed():
    field = built()
    field.predict(PLACES)
    moment = field.moment()
    assert moment is not None and field.moment() == moment
    mean, variance, known = field.since(moment)(PLACES)
    assert not mean.any() and not variance.any() and bool(known.all())


@pytest.mark.parametrize("count", [0, 3])
def test_inducing_inputs_that_went_are_told(count):
    """With new ones after them, too; nothing else has changed all over."""
    field = built(heading_stddev=0.5 * UT)
    before, moment = field.predict(PLACES), field.moment()
    epoch, inputs = field.epoch, field.basis.z
    field.information *= 1.3  # so that some are worth theirs no more
    assert field.adopt_in_slices(field.theta) and len(inputs) - 20 < len(field.basis) < len(inputs)
    stayed = len(field.basis)
    if count:
        field.update(way(count, 500))
        assert len(field.basis) > stayed
    mean, variance = assert_told(field, moment, before)
    assert mean > 1e-6 * UT and variance > 1e-6 * UT**2, "and it is something"
    assert field.epoch > epoch and field.changed_since(epoch) == []

    field.forget(0.9)
    assert field.changed_since(epoch) is None and field.since(moment) is None


@pytest.mark.parametrize("what", ["theta", "forget", "many", "another", "small", "float32"])
def test_what_is_not_a_small_change_is_not_told(what):
    field = built(
        60 if what == "small" else 500, **{"dtype": "float32"} if what == "float32" else {}
    )
    field.predict(PLACES)
    moment = field.moment()
    if what == "theta":
        assert field.adopt(replace(field.theta, lengthscale=1.1 * field.theta.lengthscale))
    elif what == "forget":
        field.forget(0.7)
    elif what == "many":
        feed(field, way(400, 500), 20)
    elif what == "another":
        moment = built(400).moment()
    else:
        field.update(way(1, 500))
    field.predict(PLACES)
    assert field.since(moment) is None
    assert field.since(None) is None and field.since("yesterday") is None


def test_a_model_that_tells_nothing_says_so():
    field = create_map("exact", **SETTINGS)
    feed(field, way(20), 5)
    assert field.moment() is None and field.since(field.moment()) is None
