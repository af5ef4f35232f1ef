from pathlib import Path

import pytest

from laggard_aggregator.notify import dispatcher, worker
from tests.support.pki import issued


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls and retries within hundredths of a second."""
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(dispatcher, "RESTART_SECONDS", 0.02)
    monkeypatch.setattr(dispatcher, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(worker, "FIRST_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(worker, "LAST_RETRY_SECONDS", 0.05)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with a certificate for a server on loopback."""
    return issued(tmp_path_factory.mktemp("pki"))
