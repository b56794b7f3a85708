"""What every map promises, whatever its model: one abstract class, run over every registered name and device."""

import copy
import functools
import math

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, feed, in_ut, samples

from gp_mapping import FieldMap, Prediction, Samples, UpdateReport, create_map
from gp_mapping.core.field_map import LEARNS, LIKELIHOODS, VECTOR

PLACES = torch.from_numpy(np.random.default_rng(5).uniform(-1.0, 4.0, (40, 2)))
# SoR has no prior variance but that of its inducing inputs: its variance depends on which these are
DEGENERATE = ("sor",)
PRIOR_VARIANCE = (SETTINGS["signal_stddev"] ** 2 + SETTINGS["constant_stddev"] ** 2) / UT**2


def flat(state, name="state"):
    """(path, leaf) of a nested state."""
    if isinstance(state, dict):
        for key, value in state.items():
            assert isinstance(key, str), f"{name}: key {key!r} is not a string"
            yield from flat(value, f"{name}.{key}")
    elif isinstance(state, (list, tuple)):
        for i, value in enumerate(state):
            yield from flat(value, f"{name}[{i}]")
    else:
        yield name, state


def same_state(a, b) -> bool:
    """Bit for bit."""
    left, right = dict(flat(a)), dict(flat(b))
    if left.keys() != right.keys():
        return False
    return all(
        torch.equal(v, right[k]) if torch.is_tensor(v) else v == right[k] for k, v in left.items()
    )


@functools.cache
def _built(contract, model, device, n, seed, settings):
    """A map of a drive, which no test changes."""
    field = contract().build(model, device, **dict(settings))
    x, y = drive(n, seed)
    feed(field, samples(x, y), 20)
    return field


class MapContract:
    """Subclasses are parametrised with `model`; `build` makes a map of the tests' usual hyper-parameters.

    rounding: what is equal but for rounding differs by so many times what it does in float64.
    """

    rounding = 1.0

    def build(self, model, device, **settings):
        return create_map(model, device=device, **(SETTINGS | settings))

    def built(self, model, device, n=120, seed=0, **settings):
        return copy.deepcopy(_built(type(self), model, device, n, seed, tuple(settings.items())))

    def test_is_a_field_map(self, model, device):
        assert isinstance(self.build(model, device), FieldMap)

    def test_nothing_can_be_asked_before_the_first_sample(self, model, device):
        field = self.build(model, device)
        for ask in (
            lambda: field.predict(PLACES),
            lambda: field.covariance(PLACES, PLACES),
            lambda: field.fantasize(PLACES),
        ):
            with pytest.raises(RuntimeError, match="no sample"):
                ask()
        field.forget(0.5)
        assert field.update(Samples(torch.zeros(0, 2), torch.zeros(0, 1))).used == 0

    def test_what_is_asked_around_a_map(self, model, device):
        """Prior, noise, places, counters, snapshots, drawing and planning: each of the kind that the contract says."""
        field = self.build(model, device)
        assert not field.started and field.channels == 0 and field.centre is None
        assert len(field.inducing_inputs()) == len(field.remembered_places()) == 0
        assert [len(part) for part in field.remembered_motion()] == [0, 0]
        for ask in (field.prior, field.noise_variance, field.snapshot, field.for_planning):
            try:
                ask()
            except RuntimeError as error:
                assert "no sample" in str(error)
            else:
                assert ask == field.for_planning, (
                    "only who plans may be given the map itself, untold"
                )
        field = self.built(model, device)
        prior, c = field.prior(), field.channels
        assert (
            field.started and c == len(field.centre) >= 1 and field.noise_variance().shape == (c,)
        )
        assert prior.mean.shape == prior.variance.shape == (
            1,
            c,
        ) and prior.noise_variance.shape == (c,)
        assert torch.equal(prior.mean[0], field.centre)
        assert prior.variance.cpu().numpy() == pytest.approx(
            PRIOR_VARIANCE * UT**2, rel=1e-6, abs=0.0
        )
        assert torch.allclose(
            field.noise_variance(), field.predict(PLACES).noise_variance, rtol=1e-12, atol=0.0
        )
        for places in (field.inducing_inputs(), field.remembered_places()):
            assert places.shape[1] == 2 and (not len(places) or float(places.min()) > -1.0)
        robot, velocity = field.remembered_motion()
        assert robot.shape == velocity.shape and robot.shape[1] == 2
        assert len(robot) >= len(field.remembered_places())
        assert all(
            isinstance(k, str) and type(v) in (int, float) for k, v in field.counters().items()
        )
        assert field.counters()["jitter"] == 0.0 and field.capabilities <= {
            LEARNS,
            LIKELIHOODS,
            VECTOR,
        }
        source, count, epoch = field.drawable(0.1)
        assert torch.equal(source.predict(PLACES).mean, field.predict(PLACES).mean)
        assert count >= 120 and epoch == field.epoch
        assert torch.allclose(
            field.for_planning().predict(PLACES).variance,
            field.predict(PLACES).variance,
            rtol=1e-6,
            atol=0.0,
        )
        now, then = field.predict_now(PLACES), field.predict(PLACES)
        assert (
            float(
                ((now.mean - then.mean).abs() / (then.variance + then.noise_variance).sqrt()).max()
            )
            < 0.3
        )
        # as likely as 2.5 standard deviations of the prior off
        worst = math.log(math.exp(-(2.5**2) / 2) / (2 * math.pi * PRIOR_VARIANCE) ** 0.5 / UT)
        assert float(field.log_predictive(samples(*drive(20, seed=3))).mean()) > c * worst

    def test_a_snapshot_stays_as_it_was(self, model, device):
        field = self.built(model, device)
        near = torch.tensor([[1.5, 1.5]], dtype=torch.float64)
        for kept in (field.snapshot(), field.snapshot(near, 2.0)):
            before, state = kept.predict(PLACES), copy.deepcopy(kept.state_dict())
            field.update(samples(*drive(60, seed=4)))
            field.forget(0.5)
            assert torch.equal(kept.predict(PLACES).mean, before.mean)
            assert torch.equal(kept.predict(PLACES).variance, before.variance)
            if state is not None:
                loaded = field.load_snapshot(state).predict(PLACES)
                assert torch.equal(loaded.mean, before.mean) and torch.equal(
                    loaded.variance, before.variance
                )

    def test_what_has_changed_since_a_moment_is_the_difference_of_two_predictions(
        self, model, device
    ):
        field = self.built(model, device, 160)
        before, moment = field.predict(PLACES), field.moment()
        assert (moment == field.moment()) is True and field.since(None) is None
        field.update(samples(*drive(5, seed=9)))
        now, changed = field.predict(PLACES), None if moment is None else field.since(moment)
        assert moment is None or (moment == field.moment()) is False
        if changed is None:
            return
        mean, variance, known = changed(PLACES)
        assert (
            known.shape == (len(PLACES),)
            and mean.shape == now.mean.shape
            and variance.shape == now.variance.shape
        )
        assert (
            float((now.mean - before.mean - mean)[known].abs().max())
            <= 1e-8 * PRIOR_VARIANCE**0.5 * UT
        )
        assert (
            float((now.variance - before.variance - variance)[known].abs().max())
            <= 1e-8 * PRIOR_VARIANCE * UT**2
        )

    def test_predictions_have_shape_device_and_unit(self, model, device):
        field = self.build(model, device)
        x, y = drive(60, channels=2)
        field.update(samples(x, y))
        for count in (0, 1, 40):
            prediction = field.predict(PLACES[:count])
            assert isinstance(prediction, Prediction)
            assert prediction.mean.shape == prediction.variance.shape == (count, 2)
            assert prediction.noise_variance.shape == (2,)
            assert prediction.mean.dtype == prediction.variance.dtype == torch.float64
            assert prediction.mean.device.type == device
            assert torch.equal(
                prediction.measurement_variance, prediction.variance + prediction.noise_variance
            )
        assert float(prediction.noise_variance[0]) == pytest.approx(
            SETTINGS["noise_stddev"] ** 2, rel=1e-6, abs=0.0
        )

    def test_learns_the_field(self, model, device):
        # whatever a residual: with one bit the prior may leave three times the noise of a sample open
        field = self.built(model, device, n=400, inducing_information=0.0)
        x, y = drive(500)
        x, y = x[:400:7], 48 + (y - 48)[:400:7]
        mean, variance = in_ut(field.predict(torch.from_numpy(x)))
        assert np.sqrt(((mean - y) ** 2).mean()) < 1.3  # the noise's sd is 1
        assert variance.max() < 1.0 and variance.min() > 0.0

    def test_far_away_the_prior_is_left(self, model, device):
        field = self.built(model, device)
        mean, variance = in_ut(field.predict(torch.tensor([[500.0, -500.0]])))
        here = in_ut(field.predict(PLACES[:1]))[1]
        if model in DEGENERATE:
            assert variance[0, 0] < SETTINGS["signal_stddev"] ** 2 / UT**2 / 2
            return
        # all but the constant, of which the drive has told
        assert SETTINGS["signal_stddev"] ** 2 / UT**2 < variance[0, 0] < PRIOR_VARIANCE
        assert here[0, 0] < variance[0, 0] and 20 < mean[0, 0] < 76

    def test_reports_count_every_sample(self, model, device):
        field = self.build(model, device)
        x, y = drive(50)
        reports = feed(field, samples(x, y), 20)
        assert all(isinstance(r, UpdateReport) for r in reports)
        assert [r.used for r in reports] == [20, 20, 10] and [r.samples for r in reports] == [
            20,
            40,
            50,
        ]
        assert all(r.jitter == 0.0 and r.inducing > 0 for r in reports)

    def test_order_does_not_matter_much_and_channels_are_independent(self, model, device):
        x, y = drive(60, channels=2)
        both, one = (
            self.build(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
            for _ in range(2)
        )
        both.update(samples(x, y))
        order = np.random.default_rng(3).permutation(60)
        one.update(samples(x[:1], y[:1, 1:]))  # the same first value, so the same centre
        both_again = self.build(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
        both_again.update(samples(x[order], y[order]))
        first, second = in_ut(both.predict(PLACES))[0], in_ut(both_again.predict(PLACES))[0]
        assert np.abs(first - second).max() < 0.05
        single = self.build(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
        single.update(samples(x, y[:, 1:]))
        apart = np.abs(in_ut(single.predict(PLACES))[0][:, 0] - first[:, 1]).max()
        assert apart < 1e-8 * self.rounding

    def test_a_bad_batch_leaves_the_map_as_it_was(self, model, device):
        field = self.built(model, device)
        before = copy.deepcopy(field.state_dict())
        for bad in (
            Samples([[0.0, 0.0, 0.0]], [[1e-6]]),
            Samples([[0.0, 0.0]], [[1e-6, 1e-6]]),
            Samples([[0.0]], [[1e-6]]),
        ):
            with pytest.raises(ValueError, match="the map is"):
                field.update(bad)
        assert same_state(before, field.state_dict())

    def test_covariance_agrees_with_variance(self, model, device):
        field = self.built(model, device)
        joint, tiny = field.covariance(PLACES, PLACES).cpu() / UT**2, 1e-10 * self.rounding
        variance = field.predict(PLACES).variance[:, 0].cpu() / UT**2
        assert torch.allclose(
            joint.diagonal(), variance, rtol=10 * tiny, atol=10 * tiny * PRIOR_VARIANCE
        )
        assert torch.allclose(joint, joint.mT, rtol=0, atol=tiny * PRIOR_VARIANCE)
        assert float(torch.linalg.eigvalsh(joint)[0]) > -10 * tiny * PRIOR_VARIANCE
        half = field.covariance(PLACES[:3], PLACES).cpu() / UT**2
        assert half.shape == (3, 40) and torch.allclose(
            half, joint[:3], rtol=0, atol=tiny * PRIOR_VARIANCE
        )

    def test_covariances_with_places_that_stay_are_the_same(self, model, device):
        field = self.built(model, device)
        joint, told = (
            field.covariance(PLACES, PLACES[5:12]).cpu(),
            field.covariance_with(PLACES[5:12]),
        )
        kept, tiny = field.snapshot().covariance_with(PLACES[5:12])(PLACES), 1e-10 * self.rounding
        for was, now in zip(kept, told(PLACES)):
            assert torch.allclose(was, now, rtol=10 * tiny, atol=10 * tiny * PRIOR_VARIANCE * UT**2)
        for part in (slice(0, 40), slice(3, 4), slice(20, 31)):
            shared, variance = (each.cpu() for each in told(PLACES[part]))
            assert torch.allclose(
                shared / UT**2, joint[part] / UT**2, rtol=0, atol=tiny * PRIOR_VARIANCE
            )
            mean = field.predict(PLACES[part]).variance.mean(1).cpu()
            assert torch.allclose(
                variance / UT**2, mean / UT**2, rtol=10 * tiny, atol=10 * tiny * PRIOR_VARIANCE
            )

    def test_fantasy_keeps_the_mean_and_shrinks_the_variance(self, model, device):
        field = self.built(model, device)
        before, at = copy.deepcopy(field.state_dict()), PLACES[:3]
        old = field.predict(PLACES)
        fantasy = field.fantasize(at)
        new = fantasy.predict(PLACES)
        tiny = 1e-9 * self.rounding
        assert float((new.mean - old.mean).abs().max()) < tiny * float(old.mean.abs().max())
        assert bool((new.variance <= old.variance * (1 + tiny)).all())
        noise = old.noise_variance[0]
        # a measurement of its own: v' = v σ²/(v + σ²) or less, since the other two help
        v = old.variance[:3]
        assert bool((new.variance[:3] <= v * noise / (v + noise) * (1 + 1e3 * tiny)).all())
        assert same_state(before, field.state_dict()), "the original changed"
        # fantasies are maps: what comes later goes into the copy alone
        x, y = drive(30, seed=9)
        fantasy.update(samples(x, y))
        fantasy.fantasize(at).forget(0.5)
        assert same_state(before, field.state_dict()), "the original changed by its copy's update"

    def test_fantasy_is_the_update_with_the_mean(self, model, device):
        field = self.built(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
        at = PLACES[10:14]
        told = self.built(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
        told.update(Samples(at, field.predict(at).mean.cpu()))
        # the update also adds inducing inputs, by which alone PIC tells other tiles of it
        places = at if model == "pic" else PLACES
        a, b = field.fantasize(at).predict(places), told.predict(places)
        assert model in DEGENERATE or torch.allclose(
            a.variance, b.variance, rtol=1e-3, atol=1e-5 * PRIOR_VARIANCE * UT**2
        )
        assert float((a.mean - b.mean).abs().max()) < 0.05 * UT

    def test_forgetting(self, model, device):
        field = self.built(
            model, device, inducing_information=0.0
        )  # noise decides nothing of the basis
        before = field.predict(PLACES)
        field.forget(1.0)
        assert torch.equal(field.predict(PLACES).mean, before.mean)
        field.forget(0.25)
        after = field.predict(PLACES)
        assert (
            bool((after.variance >= before.variance).all())
            and float(after.variance.max()) < PRIOR_VARIANCE * UT**2
        )
        for bad in (0.0, -1.0, 1.5, math.nan):
            with pytest.raises(ValueError, match="forgetting factor"):
                field.forget(bad)
        # a forgotten sample counts γ: the same as one of noise σ²/γ
        x, y = drive(120)
        noisy = self.build(model, device, inducing_information=0.0)
        feed(noisy, samples(x, y, noise_variance=np.full(120, 4.0)), 20)
        told = noisy.predict(PLACES)
        assert torch.allclose(after.mean, told.mean, rtol=1e-8 * self.rounding, atol=0.0)
        assert torch.allclose(after.variance, told.variance, rtol=1e-7 * self.rounding, atol=0.0)

    def test_resume_is_bit_for_bit(self, model, device):
        x, y = drive(200)
        batch = samples(x, y)
        settings = {"learn_hyperparameters": True, "memory_size": 60, "max_inducing": 30}
        straight, first = (self.build(model, device, **settings) for _ in range(2))
        resumed = self.build(model, device, **settings)
        for field in (straight, first):
            for i in range(0, 100, 10):
                field.update(batch[i : i + 10])
                field.refine(math.inf)
        state = copy.deepcopy(first.state_dict())
        kept = copy.deepcopy(state)
        resumed.load_state_dict(state)
        assert same_state(resumed.state_dict(), kept)
        for field in (straight, resumed):
            for i in range(100, 200, 10):
                field.update(batch[i : i + 10])
                field.refine(math.inf)
        assert same_state(straight.state_dict(), resumed.state_dict())
        assert torch.equal(straight.predict(PLACES).mean, resumed.predict(PLACES).mean)
        assert torch.equal(straight.predict(PLACES).variance, resumed.predict(PLACES).variance)
        assert same_state(state, kept), "the map wrote into the state that it was loaded from"

    def test_state_is_tensors_and_numbers_only(self, model, device):
        for field in (self.build(model, device), self.built(model, device)):
            for name, leaf in flat(field.state_dict()):
                assert (
                    leaf is None or torch.is_tensor(leaf) or type(leaf) in (int, float, str, bool)
                ), f"{name} is a {type(leaf).__name__}"

    def test_a_state_that_does_not_fit_is_refused(self, model, device):
        field = self.built(model, device)
        good = field.state_dict()
        before = copy.deepcopy(good)
        other_scale = self.build(model, device, field_scale=1e-9).state_dict()
        wrong = [{}, {"model": "nothing"}, good | {"model": "nothing"}, other_scale, None]
        for name, value in (("theta", {}), ("generator", None)):
            if name in good:
                wrong += [good | {name: value}, {k: v for k, v in good.items() if k != name}]
        if "format" in good:
            with pytest.raises(ValueError, match="saved by an older version"):
                field.load_state_dict({k: v for k, v in good.items() if k != "format"})
        for bad in wrong:
            with pytest.raises(ValueError):
                field.load_state_dict(bad)
            assert same_state(before, field.state_dict()), "a refused state changed the map"

    def test_an_empty_state_empties_the_map(self, model, device):
        field = self.built(model, device)
        field.load_state_dict(self.build(model, device).state_dict())
        with pytest.raises(RuntimeError, match="no sample"):
            field.predict(PLACES)
        x, y = drive(120)
        feed(field, samples(x, y), 20)
        assert torch.equal(
            field.predict(PLACES).mean, self.built(model, device).predict(PLACES).mean
        )

    def test_merge_is_the_union(self, model, device):
        x, y = drive(160)
        x = x + np.array([[40.3, -17.8]])
        union = self.build(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
        feed(union, samples(x, y), 40)
        left, right = (
            self.build(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
            for _ in range(2)
        )
        feed(left, samples(x[:80], y[:80]), 40)
        feed(right, samples(x[80:], y[80:]), 40)
        kept = copy.deepcopy(right.state_dict())
        left.merge(right)
        places = PLACES + torch.tensor([[40.3, -17.8]])
        got, expected = left.predict(places), union.predict(places)
        assert float((got.mean - expected.mean).abs().max()) < 0.05 * UT
        assert model in DEGENERATE or torch.allclose(
            got.variance, expected.variance, rtol=1e-3, atol=1e-5 * PRIOR_VARIANCE * UT**2
        )
        assert same_state(kept, right.state_dict()), "the other map changed"

    def test_merge_with_nothing_and_into_nothing(self, model, device):
        fine = {"inducing_tolerance": 1e-5, "inducing_information": 0.0}
        field, empty = self.built(model, device, **fine), self.build(model, device, **fine)
        before = copy.deepcopy(field.state_dict())
        field.merge(self.build(model, device))
        assert same_state(before, field.state_dict())
        empty.merge(field)
        got, expected = empty.predict(PLACES), field.predict(PLACES)
        assert float((got.mean - expected.mean).abs().max()) < 0.05 * UT
        assert model in DEGENERATE or torch.allclose(
            got.variance, expected.variance, rtol=1e-3, atol=1e-5 * PRIOR_VARIANCE * UT**2
        )

    def test_merge_refuses_what_cannot_be_added(self, model, device):
        field = self.built(model, device)
        before = copy.deepcopy(field.state_dict())
        other = self.build(model, device, field_scale=1e-9)
        x, y = drive(20)
        other.update(samples(x, y))
        two = self.build(model, device)
        two.update(samples(*drive(20, channels=2)))
        for bad in (other, two, object()):
            with pytest.raises(ValueError):
                field.merge(bad)
            assert same_state(before, field.state_dict()), "a refused merge changed the map"

    def test_refine_is_bounded_work(self, model, device):
        field = self.built(model, device, learn_hyperparameters=True)
        assert set(field.hyperparameters()) >= {
            "lengthscale",
            "signal_stddev",
            "noise_stddev",
            "constant_stddev",
        }
        if LEARNS not in field.capabilities:
            assert field.refine(0.0) is False and field.learning_steps is None
            return
        assert field.learning_steps == 0
        assert field.refine(0.0) is True, "20 samples and more leave steps pending"
        assert field.refine(math.inf) is False and field.refine(math.inf) is False
        assert self.built(model, device).refine(math.inf) is False
        assert 1 <= field.learning_steps <= 40
        assert field.hyperparameters()["signal_stddev"] != SETTINGS["signal_stddev"], (
            "nothing was learned"
        )

    def test_large_coordinates_lose_nothing(self, model, device):
        x, y = drive(120)
        x = np.round(x * 2**20) / 2**20  # so that x + 2^20 is exact
        near, far = self.build(model, device), self.build(model, device)
        shift = np.array([[2.0**20, -(2.0**20)]])
        feed(near, samples(x, y), 30)
        feed(far, samples(x + shift, y), 30)
        places = torch.round(PLACES * 2**20) / 2**20
        a, b = near.predict(places), far.predict(places + torch.from_numpy(shift))
        assert torch.allclose(a.mean, b.mean, rtol=1e-9, atol=0.0)
        assert torch.allclose(a.variance, b.variance, rtol=1e-7, atol=0.0)
