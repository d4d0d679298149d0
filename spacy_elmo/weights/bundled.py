from pathlib import Path


def en_elmo_sm() -> Path:
    """The English biLM of the package. Its model card is README.md beside it."""
    return Path(__file__).parent / "en_elmo_sm"
