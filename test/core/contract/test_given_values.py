"""What Python programs give a map and take from it: arrays of every make, and values that are theirs to change."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from core_data import SETTINGS, UT, drive, samples

from gp_mapping import Samples, create_map
from gp_mapping.core.registry import model_names

X, Y = drive(40)


def built(model, **settings):
    field = create_map(model, **(SETTINGS | settings))
    field.update(samples(X, Y if model != "curl_free" else np.repeat(Y, 3, 1)))
    return field


@pytest.mark.parametrize("model", model_names())
def test_what_a_map_tells_of_itself_is_not_the_map(model):
    """`c = field.centre; c *= 1e6`, to print it in microtesla, moved the map; so did its prior."""
    field, place = built(model), torch.from_numpy(X[:5])
    before = field.predict(place)
    told = field.calibration_data()
    for taken in (
        field.centre,
        field.prior().mean,
        field.prior().variance,
        *(() if told is None else (told.x, told.y, told.extra)),
    ):
        taken *= 1e6
    if hasattr(field, "discard_posterior"):
        field.discard_posterior()  # it is computed again
    after = field.predict(place)
    assert torch.equal(after.mean, before.mean) and torch.equal(after.variance, before.variance)


def test_arrays_of_every_make_are_read():
    """`lat_lon[:, ::-1]` was refused by torch, and big-endian arrays of a file; a table's columns are arrays, too."""

    class Table:
        def __array__(self, dtype=None, copy=None):
            return X

    field, expected = built("dual_svgp"), Samples(X, Y)
    for places in (X[:, ::-1][:, ::-1], X[::-1][::-1], X.astype(">f8"), Table(), X.tolist()):
        assert torch.equal(Samples(places, Y).x, expected.x)
        assert torch.equal(field.predict(places).mean, field.predict(X).mean)
    assert torch.equal(
        Samples(X, Y, stamp=np.arange(40)[::-1]).stamp, torch.arange(39.0, -1, -1).double()
    )
    reused = X.copy()
    kept = Samples(reused, Y)
    reused += 1.0
    assert torch.equal(kept.x, expected.x), "an array that is used again changes no samples"


def test_a_loop_over_samples_ends():
    """`for sample in samples` never ended: any number was an index."""
    batch = Samples(X, Y)
    assert len(list(itertools.islice(batch, 50))) == 40 and batch[-40].x[0, 0] == batch[0].x[0, 0]
    for beyond in (40, -41):
        with pytest.raises(IndexError, match=f"sample {beyond} of 40"):
            batch[beyond]


@pytest.mark.parametrize(
    ("x", "y", "heading", "words"),
    [
        (np.zeros((3, 0)), np.zeros(3), None, "no column"),
        (np.zeros((3, 2)), np.zeros((3, 0)), None, "no column"),
        (np.zeros((3, 2)), np.zeros(3), np.full((3, 2), 5.0), "longest has length 7.07"),
    ],
)
def test_what_is_no_sample_is_refused(x, y, heading, words):
    with pytest.raises(ValueError, match=words):
        Samples(x, y, heading=heading)


def test_a_heading_that_is_none_is_refused_by_predictions():
    field = built("dual_svgp", heading_stddev=0.3 * UT)
    with pytest.raises(ValueError, match="unit vectors"):
        field.predict(X[:1], np.ones((1, 2)), [[90.0, 0.0]])


@pytest.mark.parametrize("dimensions", [1, 3])
@pytest.mark.parametrize("model", ["dual_svgp", "solve_gp", "exact", "fic", "pic"])
def test_anisotropy_is_of_the_plane(model, dimensions):
    """On a line both lengthscales were used at once, which no kernel is; in space torch complained of sizes."""
    field = create_map(model, **SETTINGS, anisotropy=2.0)
    with pytest.raises(ValueError, match=f"anisotropy: 2.0 .* samples are {dimensions}-D"):
        field.update(Samples(np.zeros((3, dimensions)), np.zeros(3)))
    assert not field.started


def test_a_centre_that_is_no_number_is_named():
    with pytest.raises(ValueError, match="centre is .nan.*finite"):
        create_map("exact", **SETTINGS, centre=[np.nan]).update(Samples(X, Y * UT))


def test_inducing_inputs_without_a_row_are_refused_and_arrays_of_every_make_are_read():
    """With none the map learned nothing for ever; reversed columns were refused by torch."""
    for none in ([], np.zeros((0, 2))):
        with pytest.raises(ValueError, match="inducing_inputs has no rows.*leave it out"):
            create_map("dual_svgp", **SETTINGS, inducing_inputs=none)
    field = create_map("dual_svgp", **SETTINGS, inducing_inputs=X[:5, ::-1])
    field.update(samples(X, Y))
    assert field.inducing_inputs().numpy() == pytest.approx(X[:5, ::-1])


def test_no_covariance_of_no_places_is_computed():
    field = built("wiski", wiski_form="dense", max_inducing=60)
    assert field.covariance(X[:0], X).shape == (0, 40) and field.covariance(X, X[:0]).shape == (
        40,
        0,
    )


def test_a_line_is_not_moved_in_the_plane():
    field = create_map("exact", **SETTINGS)
    field.update(Samples(X[:, :1], Y * UT))
    with pytest.raises(ValueError, match="one coordinate"):
        field.move(torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("one_by_one", [False, True])
def test_values_in_another_unit_than_the_settings_are_said(one_by_one):
    """Values of about 1 with the defaults, which are tesla: errors of .05 with a stddev of .000002, without a word."""
    step = 1 if one_by_one else 20
    with pytest.warns(UserWarning, match="another unit than the settings"):
        field = create_map("dual_svgp")
        for i in range(0, 40, step):
            field.update(Samples(X[i : i + step], Y[i : i + step]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        field = create_map("dual_svgp", field_scale=1.0)
        field.update(Samples(X, Y))
        create_map("dual_svgp").update(samples(X, Y))
        create_map("dual_svgp", centre=[45.0]).update(Samples(X, Y))  # it is known
        create_map("dual_svgp", likelihood="poisson").update(Samples(X, np.full(40, 500)))
