"""A session whose map is on another device: drawn, sent, merged and saved as on the processor, to the bit."""

import copy
from dataclasses import asdict

import numpy as np
import pytest
import torch
from mapping_data import drive
from pretended_card import CARD, pretended_card

from gp_mapping import MapSettings
from gp_mapping.mapping.session import MapSession

PLACES = torch.tensor([[0.2, 0.1], [1.0, 0.0], [3.0, 2.0]], dtype=torch.float64)


def used(device: str) -> dict[str, np.ndarray]:
    """What a session shows after two drives, one of another robot; here."""
    settings = MapSettings(device=device, resolution=0.2)
    session, other = MapSession(settings), MapSession(settings)
    for one, origin in ((session, (0.0, 0.0)), (other, (0.5, 0.3))):
        one.ingest(drive(lanes=1, length=1.2, rate=10.0, origin=origin))
        one.finish()
    first = session.render()
    session.merge(other)
    opened = MapSession.from_state_dict(copy.deepcopy(session.state_dict()))
    assert opened.report()["device"] == device
    told = opened.predict(PLACES)
    assert told.mean.device.type == device
    drawn = opened.render()
    return {
        "first": first.stddev,
        "mean": drawn.mean,
        "stddev": drawn.stddev,
        "told": told.mean.cpu().numpy(),
    }


def test_a_session_on_a_card_shows_what_one_on_the_processor_does():
    here = used("cpu")
    with pretended_card() as counts:
        there = used(CARD)
    assert counts["copied from the card"], "it was there"
    for name, shown in here.items():
        # a card adds in another order
        np.testing.assert_allclose(
            there[name], shown, rtol=1e-9, atol=1e-9 * np.abs(shown).max(), err_msg=name
        )


def test_a_map_made_on_a_card_opens_where_there_is_none():
    session = MapSession(MapSettings())
    session.ingest(drive(lanes=1, length=1.0, rate=10.0))
    session.finish()
    state = session.state_dict()
    state["settings"] = asdict(session.settings) | {"device": "cuda:99"}
    opened = MapSession.from_state_dict(state)
    assert opened.settings.device == "cpu"
    assert "device 'cuda:99' is not here: it is on cpu" in opened.resume_notes
    torch.testing.assert_close(opened.predict(PLACES).mean, session.predict(PLACES).mean)
    with pytest.raises(ValueError, match="CUDA device"):
        MapSession.from_state_dict(state, device="cuda:99")  # what is asked for holds
