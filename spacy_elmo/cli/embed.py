import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors
from ._app import app, plain_errors
from ._recipe import describe_files, describe_pipeline

if TYPE_CHECKING:
    from ..pipeline.vector_files import Job

LAYERS = ("all", "top", "mean", "mix")
DTYPES = ("float32", "float16")
ENGINES = ("local", "ray")
# An output of this name is one file; another is a folder of parts.
SUFFIXES = (".hdf5", ".h5")
# What is in the folder, and what `replacing` adds to a name.
PART_NAME = r"\d{5,}-\d{7,}\.hdf5|settings\.json"
TEMPORARY = r"\.({name})\.[a-z0-9_]{{8}}"


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
        help="'all', 'top', the number of one (0 is the token layer), 'mean', or the "
        "trained 'mix' of a --component",
    ),
    component: Optional[str] = Opt(
        None, "--component", "-c", help="Component of the pipeline whose mix it is"
    ),
    dtype: str = Opt("float32", "--dtype", "-d", help="'float32' or 'float16'"),
    tokenized: Optional[bool] = Opt(
        None, "--tokenized/--raw", help="Words stand between blanks"
    ),
    lang: Optional[str] = Opt(None, "--lang", "-l", help="Language of the tokenizer"),
    n_process: int = Opt(
        1,
        "--n-process",
        "-n",
        help="Processes, or Ray's workers, of which each takes whole files",
    ),
    engine: str = Opt("local", "--engine", "-e", help="'local', or 'ray': Ray Data"),
    silent: bool = Opt(False, "--silent", "-S", help="No progress bar"),
) -> None:
    """
    Write the layers of each text (each line of a .txt) to HDF5, in the layout of
    AllenNLP's elmo command. An interrupted run goes on where it stopped. With Ray a
    file of the text is a task: a single file has one worker, however many there are.
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

    RETURNS (int): How many texts there are.
    RAISES (CorpusError): If the text or an option cannot be used, or if another run
        is writing there.
    RAISES (WeightsError): If the weights cannot be used.
    """
    from ..pipeline.vector_files import merge, open_folder
    from ..storage import hold
    from ..text import find_texts

    settings = {"layers": "all", "dtype": "float32", **settings}
    for name, value, known in (
        ("--layers", settings["layers"], LAYERS),
        ("--dtype", settings["dtype"], DTYPES),
        ("--engine", engine, ENGINES),
    ):
        if value not in known and not (known is LAYERS and value.isdecimal()):
            wanted = " or ".join(map(repr, known))
            problem = Errors.E038.format(name=name, wanted=wanted, found=value)
            raise CorpusError(problem)
    if n_process < 1 and n_process != -1:
        problem = Errors.E038.format(
            name="--n-process", wanted="at least 1, or -1 for all cores",
            found=n_process,
        )  # fmt: skip
        raise CorpusError(problem)
    is_file = output_path.suffix in SUFFIXES
    folder = output_path
    if is_file:
        _refuse_file(output_path)
        folder = output_path.with_name(f"{output_path.name}.parts")
    files = find_texts(text)
    job, tokenized, recipe = make_job(folder, **settings)
    if engine == "local":
        # Once through all of it: what is bad is found before the work begins. On a
        # cluster nobody reads all of it.
        n_texts = sum(1 for file in files for _ in read_texts(file, tokenized))
    recipe = {"files": describe_files(files), **recipe}

    def busy() -> None:
        raise CorpusError(Errors.E114.format(path=output_path))

    lock = f".{output_path.name}.lock"
    with hold(output_path.with_name(lock) if is_file else folder / ".lock", busy):
        if is_file:
            _refuse_file(output_path)
        open_folder(folder, recipe)
        _clean(folder, PART_NAME)
        if engine == "ray":
            from ._ray import embed_files

            n_texts = embed_files(files, folder, settings, n_process)
        else:
            _embed_locally(job, files, tokenized, n_process, n_texts, silent)
        if is_file:
            _clean(output_path.parent, re.escape(output_path.name))
            merge(folder, output_path)
    return n_texts


def _refuse_file(path: Path) -> None:
    if path.is_file():
        raise CorpusError(Errors.E111.format(path=path))


def _clean(folder: Path, name: str) -> None:
    """Remove the temporary files of runs that were killed; the lock says that no
    other is alive.
    """
    pattern = re.compile(TEMPORARY.format(name=name))
    for path in folder.glob(".*"):
        if pattern.fullmatch(path.name):
            path.unlink(missing_ok=True)


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
) -> Tuple["Job", bool, Dict[str, Any]]:
    """Load the pipeline.

    RETURNS (Tuple[Job, bool, Dict[str, Any]]): What writes the parts, whether texts
        are tokenized, and what runs must share to go on with each other's parts.
    """
    from ..pipeline.vector_files import Job, make_choice
    from ._load import load_elmo, require_layer

    nlp, elmo, is_tokenized = load_elmo(weights, pipeline, lang, tokenized)
    mix = None
    if layers == "mix":
        mix = find_mix(nlp, component)
    elif layers.isdecimal():
        require_layer(elmo, int(layers))
    # What comes before may set the sentences that elmo reads; what comes after does
    # not matter here.
    last = nlp.pipe_names.index(elmo.name)
    for name in nlp.pipe_names[last + 1 :]:
        nlp.disable_pipe(name)
    job = Job(nlp, make_choice(layers, mix), dtype, folder)
    options = {"layers": layers, "dtype": dtype, "tokenized": is_tokenized}
    return job, is_tokenized, {**options, **describe_pipeline(nlp, elmo, mix)}


def find_mix(nlp: Any, component: Optional[str]) -> Any:
    """The mix of a component, or the only one that there is.

    RAISES (CorpusError): If there is none, or more than one.
    """
    from .mix import _find_mixes

    found: Dict[str, List[Any]] = {}
    for name, pipe in nlp.components:
        for _, mix in _find_mixes(pipe):
            found.setdefault(name, []).append(mix)
    known = ", ".join(found) or "none"
    if component is not None and component not in found:
        raise CorpusError(Errors.E116.format(name=component, names=known))
    names = [component] if component is not None else list(found)
    mixes = [mix for name in names for mix in found[name]]
    if len(mixes) != 1:
        raise CorpusError(Errors.E112.format(n=len(mixes), names=known))
    return mixes[0]


def _embed_locally(
    job: "Job",
    files: List[Path],
    tokenized: bool,
    n_process: int,
    n_texts: int,
    silent: bool,
) -> None:
    from tqdm import tqdm

    from ..pipeline.vector_files import embed_file

    with tqdm(
        total=n_texts, unit=" texts", unit_scale=True, disable=silent, desc="Texts"
    ) as bar:
        for number, file in enumerate(files):
            texts = _counted(read_texts(file, tokenized), bar)
            embed_file(job, texts, number, n_process)


def _counted(texts: Iterator[Any], bar: Any) -> Iterator[Any]:
    for text in texts:
        yield text
        bar.update()


def read_texts(file: Path, tokenized: bool) -> Iterator[Any]:
    """The texts of a file: each line of a .txt, each object of a .jsonl, each Doc."""
    from ._docs import _read_parts

    return _read_parts([file], tokenized)
