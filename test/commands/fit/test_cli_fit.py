"""`gp-mapping fit` as a user runs it: what it says, and that a robot's map starts from what it writes."""

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
import torch
from small_drive import lanes, write_drive

from gp_mapping import cli
from gp_mapping.store.checkpoint import load_checkpoint
from gp_mapping.store.sessions import CHECKPOINT, saved_session

FAST = ["--set", "max_inducing=60", "--set", "resolution=0.2", "--set", "cell_length=0.15"]


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bags")
    write_drive(folder / "a", lanes(count=4), noise=0.4e-6)
    write_drive(folder / "test", lanes(0.1, count=2), 3000.0, seed=2, noise=0.4e-6)
    return folder


@pytest.fixture(scope="module")
def fitted(bags, tmp_path_factory):
    """The object on stdout, stderr, and the folder."""
    output = tmp_path_factory.mktemp("fitted") / "out"
    words = [
        "fit",
        str(bags / "a"),
        "--output",
        str(output),
        "--test",
        str(bags / "test"),
        "--json",
        *FAST,
    ]
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main(words)
    assert code == 0, err.getvalue()
    return json.loads(out.getvalue()), err.getvalue(), output


def test_it_says_what_was_gained(fitted):
    result, err, _ = fitted
    fit = result["fit"]
    assert fit["cells"] > 50 and fit["converged"] and fit["iterations"] >= 1
    assert (
        fit["evidence_after"] >= fit["evidence_before"] and fit["nats_after"] >= fit["nats_before"]
    )
    assert fit["nats_after"] <= fit["evidence_after"] + 1e-6
    assert (
        set(result["test"]) == {"streamed", "fitted"}
        and result["test"]["fitted"]["test_samples"] > 100
    )
    assert result["test"]["fitted"]["rmse_ut"] < 1.1 * result["test"]["streamed"]["rmse_ut"]
    assert "fit: bound of Titsias on the log evidence, iteration 1: " in err, (
        "no plain line where there is no terminal"
    )


def test_a_map_goes_on_from_what_it_wrote(fitted, bags, tmp_path, capsys):
    result, _, output = fitted
    session = saved_session(output / CHECKPOINT)
    told = session.map.hyperparameters()
    assert told == pytest.approx(result["fit"]["after"], rel=1e-9)
    assert session.settings.learn_hyperparameters and session.settings.lengthscale == 0.0
    learner = load_checkpoint(output / CHECKPOINT)["map"]["learner"]
    assert float(learner["metric"][0, 0]) > 1.0 and float(learner["turns"].min()) > 100, (
        "it has forgotten all it knew"
    )

    assert (
        cli.main(
            [
                "map",
                str(bags / "test"),
                "--load",
                str(output / CHECKPOINT),
                "--output",
                str(tmp_path / "on"),
                "--json",
                *FAST,
            ]
        )
        == 0
    )
    capsys.readouterr()
    on = saved_session(tmp_path / "on" / CHECKPOINT)
    assert on.cell_count > session.cell_count and on.map.learning_steps > 0
    moved = on.map.hyperparameters()
    assert moved["lengthscale"] == pytest.approx(told["lengthscale"], rel=0.5), (
        "the robot began from the start again"
    )
    assert torch.isfinite(on.predict(on.path).mean).all()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--model", "curl_free", "--set", "field_component=xyz"],
            "has no offline fit; expected one of dual_svgp",
        ),
        (["--set", "learn_lever_arm=true"], "write --set learn_lever_arm=false"),
        (["--iterations", "0"], "--iterations is 0, expected 1 to 10000"),
        (["--tolerance", "nan"], "--tolerance is nan, expected a number of nats above 0"),
        (
            ["--set", "learn_hyperparameters=false", "--set", "learn_time_offset=false"],
            "nothing is to be learned",
        ),
    ],
)
def test_what_is_wrong_is_one_line(bags, tmp_path, capfd, words, text):
    code = cli.main(["fit", str(bags / "a"), "--output", str(tmp_path / "out"), *words])
    out, err = capfd.readouterr()
    assert code == 2 and out == "" and len(err.splitlines()) == 1 and text in err, err
    assert not (tmp_path / "out").exists()
