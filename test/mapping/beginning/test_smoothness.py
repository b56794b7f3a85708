"""The kernel is as smooth as the first cells show the field, where nothing says otherwise."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from survey_paths import lawnmower

from gp_mapping import MapSettings, Samples
from gp_mapping.core.kernels import make_kernel
from gp_mapping.mapping.beginning.start import Start
from gp_mapping.mapping.session import MapSession
from gp_mapping.settings.build import Parameters
from gp_mapping.settings.sensors import map_settings_for

QUICK = MapSettings(cell_length=0.1, max_inducing=30, learn_time_offset=False)


LANES = lawnmower(5.0, 1.0, 0.2)


@cache
def drawn(kernel, seed):
    """Values of a field of that kernel (ℓ 1 m, spread 3) on the lanes, with a noise of .02."""
    gram = make_kernel(kernel, 9.0, 1.0)(LANES, LANES) + 1e-7 * torch.eye(len(LANES)).double()
    normal = torch.randn(
        len(LANES), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return 20.0 + torch.linalg.cholesky(gram) @ normal[:, :1] + 0.02 * normal[:, 1:]


def driven(kernel, seed=0, size=140, settings=QUICK):
    """A session that has seen `size` samples of such a field, each a cell."""
    session = MapSession(map_settings_for("temperature", settings))
    y, t = drawn(kernel, seed)[:size], torch.arange(size, dtype=torch.float64)
    session.ingest(Samples(LANES[:size], y, stamp=t))
    return session


def test_the_kernel_is_as_smooth_as_the_field():
    assert driven("matern32").started_settings.kernel == "matern32"
    session = driven("matern92", 1)
    assert session.started_settings.kernel == session.report()["kernel"] == "matern92"
    assert session.settings.kernel == "matern52", "what was set stays what it was"
    # all that compares cells with the field has it, too
    gathered = session._gathered
    for each in (gathered, gathered.response, gathered.drift, gathered.frames):
        assert each.settings.kernel == "matern92"
    again = MapSession.from_state_dict(session.state_dict())
    x = torch.rand(20, 2, dtype=torch.float64) * 6.0
    assert torch.equal(again.predict(x).mean, session.predict(x).mean)
    assert again._gathered.drift.settings.kernel == "matern92"


def test_few_cells_tell_no_smoothness():
    assert driven("matern92", size=60).started_settings.kernel == "matern52"


@pytest.mark.parametrize(
    "given",
    [
        {"learn_smoothness": False},
        {"learn_hyperparameters": False},
        {"kernel": "matern32"},
        {"lengthscale": 1.5},
        {"long_share": 0.3},
    ],
)
def test_what_is_given_stays(given):
    session = driven("matern92", settings=replace(QUICK, **given))
    assert session.started_settings.kernel == given.get("kernel", "matern52")


def test_maps_that_are_to_be_summed_keep_one_kernel():
    for node, learns in (
        ({}, True),
        ({"publish_tiles": True}, False),
        ({"merge_from": "a"}, False),
    ):
        assert Parameters.from_values(node).map.learn_smoothness is learns


def test_a_robot_that_stands_first_is_no_rough_field():
    """Its cells are many and of one place: the kernel stays till a drive tells."""
    settings = map_settings_for("temperature", replace(QUICK, robust=False))
    y, white = (
        drawn("matern92", 1),
        torch.randn(520, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)),
    )
    still = Samples(LANES[:1].expand(520, 2), y[:1] + 0.02 * white)
    drive = [Samples(LANES[i : i + 1], y[i : i + 1]) for i in range(140)]

    def found(stands):
        """The kernel after each look, of a robot that stands for so many cells."""
        start, kernels = Start(settings), []
        start.set_first_cells(still[:9])
        for cell in [still[i] for i in range(9, stands)] + drive * (stands < 520):
            if start.add(cell):
                kernels.append(start.found[0].kernel)
        return kernels

    assert found(520) == ["matern52"] * 5  # the last of 512 cells, which count as 64
    assert found(200)[-1] in ("matern72", "matern92")
