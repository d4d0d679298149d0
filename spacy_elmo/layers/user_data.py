import sys
from typing import Any, Callable, Optional


def decode(found: Any, chain: Optional[Callable[[Any], Any]] = None) -> Any:
    """Registers our extensions before Docs are read that may have vectors (entry point
    srsly_msgpack_decoders). spaCy loads them with the first pipeline, but
    DocBin.get_docs takes any Vocab, and pickled Docs need none.

    found (Any): Each map in the msgpack that srsly reads, such as the bytes of a Doc.
        Returned unchanged.
    """
    if "spacy.tokens" in sys.modules:  # Others use srsly too.
        from . import extensions as extensions
    return found if chain is None else chain(found)
