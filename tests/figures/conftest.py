import pytest

from capspoe.data import open_for


@pytest.fixture(scope="session")
def dataset(model):
    """The test images of the session's run."""
    return open_for(model.config, model.image, None, "test")
