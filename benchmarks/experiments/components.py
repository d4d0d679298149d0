"""The six tasks' components and models, for `spacy train --code`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import answers  # noqa: E402, F401
import coref  # noqa: E402, F401
import inference  # noqa: E402, F401
import names  # noqa: E402, F401
import roles  # noqa: E402, F401
import sentiment  # noqa: E402, F401
