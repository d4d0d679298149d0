import hashlib
import json
from enum import Enum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
)

from spacy.cli._util import Arg, Opt
from wasabi import msg

from ..errors import CorpusError, Errors
from ._app import app, plain_errors
from ._inputs import LANG, PIPELINE, TEXT, TOKENIZED, WEIGHTS, find_mixes, load_elmo

if TYPE_CHECKING:
    from spacy.language import Language

    from ..pipeline.component import ELMo
    from ..pipeline.vector_files import Job

# An output of this name is one file; another is a folder of parts.
SUFFIXES = (".hdf5", ".h5")


class Dtype(str, Enum):
    float32 = "float32"
    float16 = "float16"


class Engine(str, Enum):
    local = "local"
    ray = "ray"


class Settings(NamedTuple):
    """What is written, by the names of the options."""

    weights: Optional[str] = None
    pipeline: Optional[str] = None
    layers: str = "all"
    component: Optional[str] = None
    dtype: str = "float32"
    tokenized: Optional[bool] = None
    lang: Optional[str] = None


@app.command("embed")
def embed_cli(
    text: str = TEXT,
    output_path: Path = Arg(
        ..., help="An .hdf5 file, or a directory that receives the parts as they are"
    ),
    weights: Optional[str] = WEIGHTS,
    pipeline: Optional[str] = PIPELINE,
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
    dtype: Dtype = Opt(Dtype.float32, "--dtype", "-d", help="Precision of the file"),
    tokenized: Optional[bool] = TOKENIZED,
    lang: Optional[str] = LANG,
    n_process: int = Opt(
        1,
        "--n-process",
        "-n",
        help="Processes (-1 for all cores), or Ray's workers, of which each takes "
        "whole files",
    ),
    engine: Engine = Opt(
        Engine.local, "--engine", "-e", help="Ray stands for Ray Data"
    ),
    silent: bool = Opt(False, "--silent", "-S", help="No progress bar"),
) -> None:
    """
    Write the layers of each text (each line of a .txt) to HDF5, in the layout of
    AllenNLP's elmo command. An interrupted run goes on where it stopped. With Ray a
    file of the text is a task: a single file has one worker, however many there are.
    """
    settings = Settings(
        weights, pipeline, layers, component, dtype.value, tokenized, lang
    )
    with plain_errors():
        n = embed(
            text, output_path, settings, n_process=n_process, engine=engine,
            silent=silent,
        )  # fmt: skip
    msg.good(f"{n:,} texts are in {output_path}")


def embed(
    text: str,
    output_path: Path,
    settings: Settings = Settings(),  # noqa: B008
    *,
    n_process: int = 1,
    engine: Engine = Engine.local,
    silent: bool = False,
) -> int:
    """Write the layers of texts. See `embed_cli`.

    RETURNS (int): How many texts there are.
    RAISES (CorpusError): If the text or a setting cannot be used, or if another run
        is writing there.
    RAISES (WeightsError): If the weights cannot be used.
    """
    from tqdm import tqdm

    from ..pipeline.vector_files import embed_file, merge, open_folder
    from ..storage import hold, sha256
    from ..text import find_texts

    if n_process < 1 and n_process != -1:
        wanted = "at least 1, or -1 for all cores"
        problem = Errors.E038.format(name="--n-process", wanted=wanted, found=n_process)
        raise CorpusError(problem)
    is_file = output_path.suffix in SUFFIXES
    folder = output_path
    if is_file:
        folder = output_path.with_name(f"{output_path.name}.parts")

    def busy() -> None:
        raise CorpusError(Errors.E114.format(path=output_path))

    with hold(output_path.with_name(f".{output_path.name}.lock"), busy):
        if is_file and output_path.exists():
            raise CorpusError(Errors.E111.format(path=output_path))
        files = find_texts(text)
        loaded = load_job(folder, settings)
        # Once through all of it: what is bad is found before the work begins.
        n_texts = sum(1 for file in files for _ in loaded.read(file))
        hashes = [[file.name, sha256(file)] for file in files]
        open_folder(folder, {"files": hashes, **loaded.recipe})
        if engine == Engine.ray:
            _embed_on_ray(folder, settings, files, n_process)
        else:
            with tqdm(
                total=n_texts, unit=" texts", unit_scale=True, disable=silent
            ) as bar:
                for number, file in enumerate(files):
                    texts = _counted(loaded.read(file), bar)
                    embed_file(loaded.job, texts, number, n_process)
        if is_file:
            merge(folder, output_path)
    return n_texts


class Loaded(NamedTuple):
    """A pipeline that is ready to embed.

    job (Job): What writes the parts.
    tokenized (bool): Words of the texts stand between blanks.
    recipe (Dict[str, Any]): What runs must share to go on with each other's parts.
    """

    job: "Job"
    tokenized: bool
    recipe: Dict[str, Any]

    def read(self, file: Path) -> Iterator[Any]:
        from ..text import read_texts

        return read_texts(file, tokenized=self.tokenized)


def load_job(folder: Path, settings: Settings) -> Loaded:
    """Load the pipeline."""
    from ..pipeline.vector_files import Job, make_choice

    layers = settings.layers
    known = layers in ("all", "top", "mean", "mix") or layers.isdecimal()
    if not known:
        wanted = "'all', 'top', 'mean', 'mix' or a number"
        problem = Errors.E038.format(name="--layers", wanted=wanted, found=layers)
        raise CorpusError(problem)
    nlp, elmo, tokenized = load_elmo(
        settings.weights,
        settings.pipeline,
        settings.lang,
        settings.tokenized,
        int(layers) if layers.isdecimal() else "top",
    )
    mix = _find_mix(nlp, settings.component) if layers == "mix" else None
    # What comes before may set the sentences that elmo reads; what comes after does
    # not matter here.
    last = nlp.pipe_names.index(elmo.name)
    for name in nlp.pipe_names[last + 1 :]:
        nlp.disable_pipe(name)
    recipe = {
        "layers": layers,
        "dtype": settings.dtype,
        "tokenized": tokenized,
        "pipeline": _fingerprint(nlp, elmo),
        "mix": None if mix is None else hashlib.sha256(mix.to_bytes()).hexdigest(),
    }
    job = Job(nlp, make_choice(layers, mix), settings.dtype, folder)
    return Loaded(job, tokenized, recipe)


def _fingerprint(nlp: "Language", elmo: "ELMo") -> str:
    """Changes with the tokenizer, with what runs before the biLM, with how it cuts
    sentences and with its weights.
    """
    from ..layers.doc_encoder import get_shim
    from ..layers.sentence_cache import digest

    shim = get_shim(elmo.model)
    others = [name for name in nlp.component_names if name not in nlp.pipe_names]
    exclude = ["vocab", "meta.json", "config.cfg", elmo.name, *others]
    config = nlp.get_pipe_config(elmo.name)
    how = [nlp.lang, digest(shim.bilm), shim.precision, config["model"]["segmenter"]]
    found = hashlib.sha256(nlp.to_bytes(exclude=exclude))
    found.update(json.dumps(how).encode("utf8"))
    return found.hexdigest()


def _find_mix(nlp: "Language", component: Optional[str]) -> Any:
    """The mix of a component, or the only one that there is.

    RAISES (CorpusError): If there is none, or more than one.
    """
    mixes = [(name, mix) for name, _, mix in find_mixes(nlp)]
    found = [mix for name, mix in mixes if component in (None, name)]
    if len(found) != 1:
        names = ", ".join(dict.fromkeys(name for name, _ in mixes)) or "none"
        raise CorpusError(Errors.E112.format(n=len(found), names=names))
    return found[0]


def _counted(texts: Iterator[Any], bar: Any) -> Iterator[Any]:
    for text in texts:
        yield text
        bar.update()


class _RayWorker:
    """Embeds whole files. Ray Data makes one in each of its processes, which must all
    see the output folder.
    """

    def __init__(self, folder: Path, settings: Settings):
        self.loaded = load_job(folder, settings)

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        from ..pipeline.vector_files import embed_file

        for file, number in zip(batch["file"], batch["number"]):
            embed_file(self.loaded.job, self.loaded.read(Path(file)), int(number))
        return batch


def _embed_on_ray(
    folder: Path, settings: Settings, files: List[Path], n_workers: int
) -> None:
    from spacy.util import is_package

    from ..weights import registered_names

    try:
        # The module that is used: a folder "ray" can be imported as well.
        from ray.data import from_items  # type: ignore[import-not-found, unused-ignore]
    except ImportError as e:
        raise CorpusError(Errors.E113.format(reason=e)) from None

    def absolute(path: Optional[str], is_name: Callable[[str], bool]) -> Optional[str]:
        # Workers are in folders of their own.
        if path is None or is_name(path) or not Path(path).exists():
            return path
        return str(Path(path).absolute())

    settings = settings._replace(
        weights=absolute(settings.weights, registered_names().__contains__),
        pipeline=absolute(settings.pipeline, is_package),
    )
    items = [{"file": str(f.absolute()), "number": i} for i, f in enumerate(files)]
    from_items(items, override_num_blocks=len(items)).map_batches(
        _RayWorker,
        batch_size=1,
        concurrency=n_workers,
        fn_constructor_args=(folder.absolute(), settings),
    ).take_all()
