"""create_map and its settings: every mistake has an answer that says what to write."""

import dataclasses

import pytest
import torch

from gp_mapping import FieldMap, MapSettings, create_map
from gp_mapping.core.registry import build_map, make_theta_and_learner, model_names
from gp_mapping.core.types import Samples


def test_the_models_are_the_choices_of_the_setting():
    assert set(model_names()) == set(MapSettings.__dataclass_fields__["model"].metadata["choices"])
    for name in model_names():
        assert isinstance(create_map(name), FieldMap) and isinstance(
            build_map(MapSettings(model=name)), FieldMap
        )


def test_settings_reach_the_map():
    field = create_map(
        "dual_svgp",
        lengthscale=0.3,
        signal_stddev=5e-6,
        noise_stddev=2e-6,
        constant_stddev=1e-5,
        heading_stddev=4e-7,
        time_offset=0.1,
        max_inducing=17,
        memory_size=23,
        inducing_tolerance=0.1,
        inducing_information=0.0,
        seed=5,
        dtype="float32",
        kernel="rbf",
        learn_hyperparameters=False,
        learn_time_offset=False,
    )
    expected = {
        "lengthscale": 0.3,
        "signal_stddev": 5e-6,
        "noise_stddev": 2e-6,
        "constant_stddev": 1e-5,
        "heading_stddev": 4e-7,
        "time_offset": 0.1,
    }
    assert {name: field.hyperparameters()[name] for name in expected} == pytest.approx(expected)
    assert (field.max_inducing, field.memory_size, field.tolerance, field.dtype) == (
        17,
        23,
        0.1,
        torch.float32,
    )
    assert field.theta.kernel_name == "rbf" and field.learner is None
    assert torch.equal(field.generator.get_state(), torch.Generator().manual_seed(5).get_state())


@pytest.mark.parametrize(
    "model, settings, kind, expected",
    [
        ("wiski", {"refresh_samples": 77}, "Wiski", {"refresh_samples": 77}),
        ("wiski", {"wiski_form": "dense", "max_inducing": 33}, "PublishedWiski", {"rank": 33}),
        ("wiski", {"grid_density": 6.5, "max_grid_nodes": 20_000}, "Wiski", {"density": 6.5}),
        ("wiski", {"memory_size": 91}, "Wiski", {"memory_size": 91}),
        ("exact", {"max_exact_samples": 44}, "ExactGP", {"max_samples": 44}),
        ("fitc", {"memory_size": 31}, "AnytimeMap", {"memory_size": 31}),
        ("pitc", {"tile_side": 0.7, "tile_samples": 55}, "TileMap", {"tile_side": 0.7}),
        ("pic", {"tile_samples": 55}, "TileMap", {"tile_samples": 55}),
    ],
)
def test_each_model_has_what_is_its_own(model, settings, kind, expected):
    field = create_map(model, **settings)
    assert type(field).__name__ == kind
    for name, value in expected.items():
        assert getattr(field, name) == value, name


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
@pytest.mark.parametrize(
    "hyper, noise, offset, lever",
    [
        (True, True, True, True),
        (True, False, False, False),
        (False, True, False, False),
        (False, False, True, False),
        (False, False, False, True),
    ],
)
def test_what_is_learned_is_what_the_settings_say(likelihood, hyper, noise, offset, lever):
    """Noise also where the rest is held; of counts there is none."""
    settings = {
        "learn_hyperparameters": hyper,
        "learn_noise": noise,
        "learn_time_offset": offset,
        "learn_lever_arm": lever,
        "heading_stddev": 1.0,
        "field_scale": 1.0,
    }
    field = create_map("dual_svgp", likelihood=likelihood, **settings)
    loud = (hyper or noise) and likelihood == "gaussian"
    free = [hyper, hyper, loud, loud, offset, lever, lever]
    if not any(free):
        assert field.learner is None
        return
    assert field.learner.free == free
    # of the delay the prior is about what is given, and of the robot's field it is wider
    late = create_map("dual_svgp", **settings | {"time_offset": 0.2, "learn_hyperparameters": True})
    assert late.theta.time_offset == 0.2 == late.learner.prior.time_offset
    assert late.learner.prior.heading_stddev == pytest.approx(3**0.5)


@pytest.mark.parametrize(
    "given, expected",
    [
        (
            {},
            {
                "lengthscale": 1.0,
                "signal_stddev": 1e-5,
                "noise_stddev": 7e-7,
                "constant_stddev": 2e-5,
            },
        ),
        (
            {"signal_stddev": 4e-6},
            {"lengthscale": 1.0, "signal_stddev": 4e-6, "constant_stddev": 8e-6},
        ),
    ],
)
def test_what_is_left_open_is_a_field_of_ten_units_over_a_metre(given, expected):
    """Its mean within twice that; in the display unit of the field."""
    told = create_map("exact", **given).hyperparameters()
    assert {name: told[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    "model, settings, kind",
    [
        ("dual_svgp", {"tiles": True}, "TiledMap"),
        ("dual_svgp", {}, "DualSVGP"),
        ("exact", {"tiles": True}, "ExactGP"),
        ("sor", {"tiles": True}, "TiledMap"),
        ("sor", {"tiles": True, "inducing_inputs": [[0.0, 0.0]]}, "AnytimeMap"),
        ("sor", {}, "AnytimeMap"),
        ("fitc", {}, "AnytimeMap"),
        ("pitc", {}, "TileMap"),
        ("pic", {}, "TileMap"),
    ],
)
def test_who_is_made_of_tiles(model, settings, kind):
    """A large map where its model may be one of them; PITC and PIC, whose blocks are tiles, by themselves."""
    assert type(create_map(model, **settings)).__name__ == kind


@pytest.mark.parametrize("scale", [1.0, 1e-6])
@pytest.mark.parametrize("told", [0.3, 0.0])
def test_the_spread_of_constants_begins_as_told_or_with_a_tenth_of_the_noise(scale, told):
    """In SI, whatever the unit."""
    known = {"field_scale": scale, "noise_stddev": 0.2 * scale, "heading_stddev": 0.0}
    field = create_map("exact", bias_stddev=told * scale, learn_bias=True, **known)
    wanted = (told or 0.1 * 0.2) * scale
    assert field.hyperparameters()["bias_stddev"] == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("model", ["exact", "dual_svgp"])
@pytest.mark.parametrize("learns", [True, False])
def test_constants_of_passes_are_learned_where_the_settings_say_so(model, learns):
    """Of passes that differ by twenty times what was said."""
    field = create_map(
        model,
        field_scale=1.0,
        bias_stddev=0.1,
        signal_stddev=1.0,
        noise_stddev=0.1,
        lengthscale=1.0,
        constant_stddev=2.0,
        learn_bias=learns,
        learn_time_offset=False,
        heading_stddev=0.0,
    )
    x = torch.linspace(0.0, 2.0, 60).double()[:, None].expand(-1, 2)
    of = torch.arange(60).double() % 6
    field.update(Samples(x, torch.sin(x[:, :1]) + 2.0 * (of[:, None] % 2), pass_number=of))
    field.refine(60.0)
    assert (field.hyperparameters()["bias_stddev"] > 0.3) == learns


@pytest.mark.parametrize(
    "model, settings, words",
    [
        ("wizard", {}, "'wizard' is not one of .*'curl_free'$"),
        ("dual_svpg", {}, r"did you mean 'dual_svgp'\?$"),
        ("exact", {"lenghtscale": 1.0}, r"did you mean 'lengthscale'\?$"),
        ("exact", {"colour": 1}, "setting 'colour' is not one of 'model', "),
        ("exact", {"inducing_inputs": [[0.0, 0.0]]}, "no inducing inputs"),
        ("exact", {"lengthscale": -1.0}, r"lengthscale: -1.0 m is outside \[0.0, 100000.0\]"),
        (
            "exact",
            {"lengthscale": "long"},
            "lengthscale: 'long' is str, expected float, for example 0.0",
        ),
        ("exact", {"lengthscale": float("nan")}, "not finite"),
        ("exact", {"max_inducing": 2.5}, "max_inducing: 2.5 is float, expected int"),
        ("exact", {"max_inducing": True}, "max_inducing: True is bool, expected int"),
        ("exact", {"cells": 1}, "cells: 1 is int, expected bool"),
        ("exact", {"kernel": "cubic"}, "'cubic' is not one of 'rbf'"),
        ("exact", {"dtype": "float16"}, "not one of 'float64'"),
        ("exact", {"device": "banana"}, "device"),
    ],
)
def test_mistakes_are_answered(model, settings, words):
    with pytest.raises(ValueError, match=words):
        create_map(model, **settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_here_is_refused():
    with pytest.raises(ValueError, match="no CUDA device here"):
        create_map("dual_svgp", device="cuda")


def test_whole_numbers_pass_as_floats():
    assert (
        MapSettings(lengthscale=2).lengthscale == 2.0
        and type(MapSettings(lengthscale=2).lengthscale) is float
    )


def test_every_setting_says_what_it_is():
    """ROS parameters, --params files and config/mapping.yaml are made from these."""
    for f in dataclasses.fields(MapSettings):
        meta = f.metadata
        assert len(meta["doc"]) > 8, f.name
        if type(f.default) in (int, float):
            assert meta["low"] is not None and meta["high"] is not None, f.name
            assert meta["low"] <= f.default <= meta["high"], f.name
        if type(f.default) is float:
            assert meta["unit"] or f.name in ("inducing_tolerance", "unknown_ratio"), (
                f"{f.name} has no unit"
            )


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        MapSettings().seed = 3


def test_a_start_is_the_median_of_its_prior():
    """Of the time offset, too: a gas sensor's 3 s were expected at 0 ± .2 s, and drawn back to .9 s."""
    given = MapSettings(lengthscale=2.0, signal_stddev=3e-6, noise_stddev=4e-7, time_offset=3.0)
    theta, learner = make_theta_and_learner(given)
    for name in ("lengthscale", "signal_stddev", "noise_stddev", "time_offset"):
        assert getattr(learner.prior, name) == getattr(theta, name)
    assert learner.log_prior(learner.vector) > learner.log_prior(
        learner.vector - torch.tensor([0.0, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0], dtype=torch.float64)
    )
