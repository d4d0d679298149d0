from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors
from ._app import app, plain_errors

if TYPE_CHECKING:
    from ..pipeline.embedding import Job

LAYERS = ("all", "top", "mean", "mix")
DTYPES = ("float32", "float16")
ENGINES = ("local", "ray")
# An output of this name is one file; another is a folder of parts.
SUFFIXES = (".hdf5", ".h5")


@app.command("embed")
def embed_cli(
    text: str = Arg(
        ...,
        help="Text: a file, a directory or a glob (.txt, .jsonl or .spacy, compressed "
        "or not)",
    ),
    output_path: Path = Arg(
        ..., help="An .hdf5 file, or a directory that receives the parts as they are"
    ),
    weights: Optional[str] = Opt(
        None, "--weights", "-w", help="Name or path of a biLM; by default en_elmo_sm"
    ),
    pipeline: Optional[str] = Opt(
        None, "--pipeline", "-p", help="Pipeline with an elmo component, instead"
    ),
    layers: str = Opt(
        "all",
        "--layers",
        "-L",
        help="'all', 'top', 'mean', or the trained 'mix' of a --component",
    ),
    component: Optional[str] = Opt(
        None, "--component", "-c", help="Component of the pipeline whose mix it is"
    ),
    dtype: str = Opt("float32", "--dtype", "-d", help="'float32' or 'float16'"),
    tokenized: Optional[bool] = Opt(
        None, "--tokenized/--raw", help="Words stand between blanks"
    ),
    lang: Optional[str] = Opt(None, "--lang", "-l", help="Language of the tokenizer"),
    n_process: int = Opt(1, "--n-process", "-n", help="Processes, or Ray's workers"),
    engine: str = Opt("local", "--engine", "-e", help="'local', or 'ray': Ray Data"),
    silent: bool = Opt(False, "--silent", "-S", help="No progress bar"),
) -> None:
    """
    Write the layers of each text (each line of a .txt) to HDF5, in the layout of
    AllenNLP's elmo command. An interrupted run goes on where it stopped.
    """
    with plain_errors():
        n = embed(
            text, output_path, weights=weights, pipeline=pipeline, layers=layers,
            component=component, dtype=dtype, tokenized=tokenized, lang=lang,
            n_process=n_process, engine=engine, silent=silent,
        )  # fmt: skip
    msg.good(f"{n:,} texts are in {output_path}")


def embed(
    text: str,
    output_path: Path,
    *,
    n_process: int = 1,
    engine: str = "local",
    silent: bool = False,
    **settings: Any,
) -> int:
    """Write the layers of texts. See `embed_cli`.

    RETURNS (int): How many texts the output has, or of how many files where it is a
        folder made by Ray.
    RAISES (CorpusError): If the text or an option cannot be used.
    RAISES (WeightsError): If the weights cannot be used.
    """
    from ..pipeline.embedding import merge, open_folder
    from ..pretraining.text import find_texts

    for name, value, known in (
        ("--layers", settings.get("layers", "all"), LAYERS),
        ("--dtype", settings.get("dtype", "float32"), DTYPES),
        ("--engine", engine, ENGINES),
    ):
        if value not in known:
            wanted = " or ".join(map(repr, known))
            problem = Errors.E038.format(name=name, wanted=wanted, found=value)
            raise CorpusError(problem)
    is_file = output_path.suffix in SUFFIXES
    if is_file and output_path.is_file():
        raise CorpusError(Errors.E111.format(path=output_path))
    folder = output_path.with_name(f"{output_path.name}.parts")
    folder = folder if is_file else output_path
    files = find_texts(text)
    job, tokenized, digest = make_job(folder, **settings)
    stats = [[str(f), f.stat().st_size] for f in files]
    chosen = {k: v for k, v in settings.items() if k not in ("pipeline", "weights")}
    open_folder(folder, {"files": stats, "weights": digest, **chosen})
    if engine == "ray":
        from ._ray import embed_files

        n = embed_files(files, folder, settings, n_process)
    else:
        n = _embed_locally(job, files, tokenized, n_process, silent)
    return merge(folder, output_path) if is_file else n


def make_job(
    folder: Path,
    *,
    weights: Optional[str] = None,
    pipeline: Optional[str] = None,
    layers: str = "all",
    component: Optional[str] = None,
    dtype: str = "float32",
    tokenized: Optional[bool] = None,
    lang: Optional[str] = None,
) -> Tuple["Job", bool, str]:
    """Load the pipeline.

    RETURNS (Tuple[Job, bool, str]): What writes the parts, whether texts are
        tokenized, and what names the weights.
    """
    from ..layers.bilm import get_shim
    from ..pipeline.embedding import Job, fingerprint, make_choice
    from ._load import load_elmo

    nlp, elmo, is_tokenized = load_elmo(weights, pipeline, lang, tokenized)
    mix = None
    if layers == "mix":
        mix = find_mix(nlp, component)
    # What comes before may set the sentences that elmo reads; what comes after does
    # not matter here.
    last = nlp.pipe_names.index(elmo.name)
    for name in nlp.pipe_names[last + 1 :]:
        nlp.disable_pipe(name)
    bilm = get_shim(elmo.model).bilm
    job = Job(nlp, make_choice(layers, mix), dtype, folder)
    return job, is_tokenized, fingerprint(bilm)


def find_mix(nlp: Any, component: Optional[str]) -> Any:
    """The mix of a component, or the only one that there is.

    RAISES (CorpusError): If there is none, or more than one.
    """
    from .mix import _find_mixes

    found: Dict[str, List[Any]] = {}
    for name, pipe in nlp.components:
        for _, mix in _find_mixes(pipe):
            found.setdefault(name, []).append(mix)
    names = [component] if component is not None else list(found)
    mixes = [mix for name in names for mix in found.get(name, [])]
    if len(mixes) != 1:
        known = ", ".join(found) or "none"
        raise CorpusError(Errors.E112.format(n=len(mixes), names=known))
    return mixes[0]


def _embed_locally(
    job: "Job", files: List[Path], tokenized: bool, n_process: int, silent: bool
) -> int:
    from tqdm import tqdm

    from ..pipeline.embedding import embed_file

    n = 0
    with tqdm(unit=" texts", unit_scale=True, disable=silent, desc="Texts") as bar:
        for number, file in enumerate(files):
            texts = _counted(read_texts(file, tokenized), bar)
            n += embed_file(job, texts, number, n_process)
    return n


def _counted(texts: Iterator[Any], bar: Any) -> Iterator[Any]:
    for text in texts:
        yield text
        bar.update()


def read_texts(file: Path, tokenized: bool) -> Iterator[Any]:
    """The texts of a file: each line of a .txt, each object of a .jsonl, each Doc."""
    from ._docs import _read_parts

    return _read_parts([file], tokenized)
