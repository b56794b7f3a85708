"""Files here read all code of the repository: hundreds of thousands of nodes, none of them garbage."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_search_for_garbage():
    """A syntax tree refers to nothing above itself: it goes without a search, and each would pass through all of it."""
    gc.disable()
    yield
    gc.enable()
