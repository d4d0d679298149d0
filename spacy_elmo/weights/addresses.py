"""Where published models are. AllenNLP's are two files each, those of the NLPL
repository one archive each.
"""

from typing import Dict, List, NamedTuple, Optional

# The same paths on both; the second is the older address.
ALLENNLP_HOSTS = (
    "https://allennlp.s3.amazonaws.com/models/elmo",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo",
)
NLPL_HOSTS = ("http://vectors.nlpl.eu/repository/20",)
NLPL = "nlpl/"


class File(NamedTuple):
    """A file of a model: its path below each of the hosts, and its SHA-256 where that
    is known.
    """

    path: str
    sha256: Optional[str] = None


class Published(NamedTuple):
    """A model that can be downloaded. Several hosts are tried in turn."""

    hosts: List[str]
    files: List[File]
    about: str


def _allennlp(folder: str, stem: str, about: str, suffix: str = "") -> Published:
    paths = f"{folder}/{stem}_options.json", f"{folder}/{stem}_weights{suffix}.hdf5"
    return Published(list(ALLENNLP_HOSTS), [File(path) for path in paths], about)


_SMALL = "2x1024_128_2048cnn_1xhighway"
_MEDIUM = "2x2048_256_2048cnn_1xhighway"
_ORIGINAL = "2x4096_512_2048cnn_2xhighway"

MODELS: Dict[str, Published] = {
    "allennlp/small": _allennlp(_SMALL, f"elmo_{_SMALL}", "English, 13.6M parameters"),
    "allennlp/medium": _allennlp(
        _MEDIUM, f"elmo_{_MEDIUM}", "English, 28.0M parameters"
    ),
    "allennlp/original": _allennlp(
        _ORIGINAL, f"elmo_{_ORIGINAL}", "English, 93.6M parameters: the paper's"
    ),
    "allennlp/original-5.5B": _allennlp(
        f"{_ORIGINAL}_5.5B",
        f"elmo_{_ORIGINAL}_5.5B",
        "English, 93.6M parameters, 5.5 billion tokens",
    ),
    "allennlp/portuguese": _allennlp("contributed/pt", "elmo_pt", "Portuguese"),
    "allennlp/pubmed": _allennlp(
        "contributed/pubmed", f"elmo_{_ORIGINAL}", "English, PubMed", "_PubMed_only"
    ),
}


def find_published(name: str) -> Optional[Published]:
    """The model of that name, if there can be one: NLPL's go by their number in its
    catalogue (http://vectors.nlpl.eu/repository/20.json), for instance "nlpl/144".
    """
    number = name[len(NLPL) :]
    if name.startswith(NLPL) and number.isascii() and number.isdigit():
        return Published(list(NLPL_HOSTS), [File(f"{int(number)}.zip")], "NLPL")
    return MODELS.get(name)
