"""What is computed outside of torch's autograd layer: the same numbers, in tensors like all others."""

from dataclasses import replace

import pytest
import torch

from gp_mapping import Samples, create_map
from gp_mapping.core.kernels.stationary import Matern52, Stationary
from gp_mapping.core.models.dual_svgp.model import DualSVGP
from gp_mapping.gradients import recorded, unrecorded
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.mapping import MapSettings
from gp_mapping.settings.parts import KERNELS, Part

X = torch.tensor([0.5, 2.0], dtype=torch.float64)


def records() -> bool:
    """Whether a call is recorded here."""
    return X.clone().requires_grad_(True).square().requires_grad


def test_gradients_are_recorded_where_they_are_wanted_and_nowhere_else():
    with torch.enable_grad():
        assert records()
        with unrecorded():
            assert not records()
            with torch.enable_grad():
                assert not records(), "the calls passed through the autograd layer"
            with recorded():
                assert records()
            assert not records()
        with pytest.raises(KeyError), unrecorded():
            raise KeyError
        assert records(), "what raises must not leave it switched off"


def test_a_map_that_is_made_there_is_changed_and_differentiated_anywhere():
    with unrecorded():
        inside = X * 2.0
        view = inside[:1]
    view.add_(1.0)
    inside.requires_grad_(True)
    assert torch.autograd.grad(inside.square().sum(), inside)[0].tolist() == [4.0, 8.0]


def test_a_slope_that_torch_finds_itself_is_found_there_too():
    kernel, square = Matern52(2.0, 0.7), X.square()
    with unrecorded():
        found = Stationary.slope(kernel, square)
    assert torch.allclose(found, kernel.slope(square), rtol=1e-12)


class Differentiated(Matern52):
    """A kernel of another package, which differentiates in its own way."""

    seen = 0

    def from_distance(self, r):
        with torch.enable_grad():
            Differentiated.seen += torch.ones(1, requires_grad=True).exp().requires_grad
        return super().from_distance(r)


def test_parts_of_other_packages_may_enable_gradients(monkeypatch):
    known = {name: KERNELS.part(name) for name in KERNELS}
    monkeypatch.setattr(KERNELS, "_parts", known)  # of this test alone
    KERNELS.register("differentiated", Part(Differentiated))
    drive = Samples(
        x=torch.arange(8.0)[:, None] * torch.tensor([[0.3, 0.1]]),
        y=torch.sin(torch.arange(8.0))[:, None],
        stamp=torch.arange(8.0),
    )
    settings = MapSettings(
        lengthscale=1.0, signal_stddev=1.0, noise_stddev=0.1, constant_stddev=1.0
    )
    for kernel, own in (("matern52", True), ("differentiated", False)):
        session = MapSession(replace(settings, kernel=kernel))
        assert session.is_builtin is own
        session.ingest(drive)
    assert Differentiated.seen > 0

    def looked(field):
        with torch.enable_grad():
            recording.append(records())

    recording, seen = [], Differentiated.seen  # a map by itself, as who needs no session has it
    monkeypatch.setattr(DualSVGP, "check", looked)
    for kernel, own in (("matern52", True), ("differentiated", False)):
        recording.clear()
        field = create_map("dual_svgp", kernel=kernel, field_scale=1.0, signal_stddev=1.0)
        field.update(drive)
        field.refine()
        assert recording and all(each is not own for each in recording), kernel
    assert Differentiated.seen > seen and records()
