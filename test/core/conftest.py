"""The devices that the models are tested on; and this folder's helpers on the import path of its subfolders."""

import pytest
import torch

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=DEVICES)
def device(request) -> str:
    return request.param
