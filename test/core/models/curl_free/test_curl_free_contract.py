"""The contract of map_contract.py for the vector field, which takes three channels."""

import copy

import map_contract
import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, samples
from curl_free_world import dipoles, drive
from map_contract import PLACES, PRIOR_VARIANCE, MapContract, same_state


class TestContract(MapContract):
    """map_contract.py with three channels; what speaks of independent channels is replaced."""

    @pytest.fixture(autouse=True)
    def three_channels(self, monkeypatch):
        monkeypatch.setattr(map_contract, "drive", drive)

    @pytest.fixture
    def model(self):
        return "curl_free"

    def build(self, model, device, **settings):
        """A field as smooth as this one carries what a tolerance of 1e-5 leaves out far beyond its data."""
        field = super().build(model, device, **settings)
        if settings.get("inducing_tolerance") == 1e-5:
            field.rows.tolerance = 1e-9
        return field

    def test_predictions_have_shape_device_and_unit(self, model, device):
        field = self.built(model, device, n=60)
        for count in (0, 1, 40):
            p = field.predict(PLACES[:count])
            assert p.mean.shape == p.variance.shape == (count, 3) and p.noise_variance.shape == (3,)
            assert (
                p.mean.dtype == p.variance.dtype == torch.float64 and p.mean.device.type == device
            )
            assert field.norm(PLACES[:count]).mean.shape == (count, 1)

    def test_learns_the_field(self, model, device):
        field = self.built(model, device, n=400)
        x = drive(400)[0][::7]
        p = field.predict(torch.from_numpy(x))
        assert float(np.sqrt(((p.mean.cpu().numpy() / UT - dipoles(x)) ** 2).mean())) < 1.0

    def test_far_away_the_prior_is_left(self, model, device):
        field = self.built(model, device)
        far = field.predict(torch.tensor([[500.0, -500.0]])).variance[0].cpu() / UT**2
        here = field.predict(torch.from_numpy(drive(120)[0][:1])).variance[0].cpu() / UT**2
        signal = SETTINGS["signal_stddev"] ** 2 / UT**2 * torch.tensor([0.5, 0.5, 1.0])
        assert (
            bool((far > signal).all())
            and bool((far < signal + 400.0).all())
            and bool((here < far).all())
        )

    def test_order_does_not_matter_much_and_channels_are_independent(self, model, device):
        """They are not; the order is of no account."""
        x, y = drive(60)
        order = np.r_[0, 1 + np.random.default_rng(3).permutation(59)]
        one, other = (
            self.build(model, device, inducing_tolerance=1e-5, inducing_information=0.0)
            for _ in range(2)
        )
        one.update(samples(x, y))
        other.update(samples(x[order], y[order]))
        assert (
            float((one.predict(PLACES).mean - other.predict(PLACES).mean).abs().max()) < 0.05 * UT
        )

    def test_covariance_agrees_with_variance(self, model, device):
        field = self.built(model, device)
        joint = field.cross_covariance(PLACES, PLACES).cpu().reshape(120, 120) / UT**2
        variance = field.predict(PLACES).variance.cpu().reshape(-1) / UT**2
        tiny = 1e-9 * self.rounding
        assert torch.allclose(joint.diagonal(), variance, rtol=tiny, atol=tiny * PRIOR_VARIANCE)
        assert float(torch.linalg.eigvalsh(joint)[0]) > -10 * tiny * PRIOR_VARIANCE
        mean = field.covariance(PLACES, PLACES).cpu() / UT**2
        assert torch.allclose(
            mean.diagonal(), variance.reshape(-1, 3).mean(1), atol=10 * tiny * PRIOR_VARIANCE
        )

    def test_merge_refuses_what_cannot_be_added(self, model, device):
        field = self.built(model, device)
        before = copy.deepcopy(field.state_dict())
        other, space = self.build(model, device, field_scale=1e-9), self.build(model, device)
        x, y = drive(20)
        other.update(samples(x, y))
        space.update(samples(np.pad(x, ((0, 0), (0, 1))), y))
        for bad in (other, space, object()):
            with pytest.raises(ValueError):
                field.merge(bad)
            assert same_state(before, field.state_dict()), "a refused merge changed the map"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="of what is in float32 others have tests")
class TestInFloat32(TestContract):
    """The factor of k(z, z) and predictions in float32; the kernel is computed in float64.

    Two maps whose inducing inputs differ agree where these are dense to 1e-9 of the prior's
    variance, which is less than float32 tells apart: what compares such maps is left out.
    """

    rounding = 1e4
    test_fantasy_is_the_update_with_the_mean = None
    test_merge_is_the_union = test_merge_with_nothing_and_into_nothing = None

    def build(self, model, device, **settings):
        return super().build(model, device, dtype="float32", **settings)
