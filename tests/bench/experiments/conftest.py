import pytest

from tests.bench.experiments import grammar


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specx.bench.variants.find_methods", grammar.find_methods)
