"""`python -m spacy elmo ...`. Every `spacy` command imports this: what the commands
need is imported when they run.
"""

from . import (  # noqa: F401
    download,
    embed,
    evaluate,
    info,
    init,
    mixes,
    neighbors,
    package,
    plot,
    pretrain,
    score,
    vectors,
)
from ._app import app as app
