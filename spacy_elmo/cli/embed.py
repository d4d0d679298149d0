from multiprocessing import get_start_method
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, Tuple

from spacy.cli._util import Arg, Opt
from spacy.language import Language
from wasabi import msg

from ..errors import CorpusError, Errors, require
from ..storage import hold
from ..text.files import find_texts
from . import inputs
from ._app import app

if TYPE_CHECKING:
    from ..layers.architectures import Mix
    from ..pipeline.component import ELMo
    from ..pipeline.vector_files import Job
    from ..pipeline.vector_hooks import Layer


@app.command("embed")
def embed_cli(
    text: str = inputs.TEXT,
    output_path: Path = Arg(..., help="An .hdf5 file, or a directory for its parts"),
    weights: Optional[str] = inputs.WEIGHTS,
    pipeline: Optional[str] = inputs.PIPELINE,
    layers: str = Opt(
        "all", "--layers", "-L", help=f"'all', {inputs.LAYERS}, or a trained 'mix'"
    ),
    component: Optional[str] = Opt(
        None, "--component", "-c", help="Component whose mix to use"
    ),
    dtype: Literal["float32", "float16"] = Opt(
        "float32", "--dtype", "-d", help="Precision of the numbers in the file"
    ),
    tokenized: Optional[bool] = inputs.TOKENIZED,
    lang: Optional[str] = inputs.LANG,
    n_process: int = Opt(
        1, "--n-process", "-n", min=-1, help="Processes (-1 for all), or Ray's workers"
    ),
    engine: Literal["local", "ray"] = Opt(
        "local", "--engine", "-e", help="Run here, or as tasks of Ray Data"
    ),
    silent: bool = Opt(False, "--silent", "-S", help="No progress bar"),
    code_path: Optional[Path] = inputs.CODE,
) -> None:
    """
    Write the layers of each line of a text to HDF5. The layout is that of AllenNLP's
    elmo command. An interrupted run continues where it stopped. With Ray Data, each
    file of the text is a task, so a single file uses one worker.
    """
    from ..pipeline.vector_files import Job, merge, open_folder

    require(n_process != 0, "--n-process", "1 or more, or -1 for all", n_process)
    given = component is None or layers == "mix"
    require(given, "--component", "left out without --layers mix", component)
    start = get_start_method()
    if code_path and engine == "local" and n_process != 1 and start != "fork":
        raise CorpusError(Errors.E118.format(start=start))
    output_path = output_path.resolve()  # "." has no name
    is_file = output_path.suffix.lower() in (".hdf5", ".h5")  # else a folder of parts
    name = f"{output_path.name}.parts" if is_file else output_path.name
    folder = output_path.with_name(name)
    lock = output_path.with_name(f".{output_path.name}.lock")
    busy = CorpusError(Errors.E114.format(path=output_path))
    with hold(lock, busy):
        if output_path.exists() and (is_file or not output_path.is_dir()):
            raise CorpusError(Errors.E111.format(path=output_path))
        files = find_texts(text)
        nlp, tokenized = inputs.load_reader(weights, pipeline, lang, tokenized)
        elmo, layer, mix = _choose_layers(nlp, pipeline, layers, component)
        for after in inputs.components_after(nlp, elmo):
            nlp.remove_pipe(after)
        job = Job(nlp, layer, mix, dtype, tokenized, folder)
        # The texts are read here, and their files hashed, before the work begins: a bad
        # text is found now, and no part of another text is taken for one of these.
        n_texts = sum(1 for file in files for _ in job.read(file))
        if not n_texts:
            raise CorpusError(Errors.E050.format(path=text, problem="it is empty"))
        open_folder(folder, job.describe(elmo, files))
        if engine == "ray":
            _embed_on_ray(job, files, n_process)
        else:
            _embed_here(job, files, n_process, n_texts, silent)
        if is_file:
            merge(folder, output_path)
    msg.good(f"{n_texts:,} texts are in {output_path}")


def _choose_layers(
    nlp: Language, pipeline: Optional[str], layers: str, component: Optional[str]
) -> Tuple["ELMo", "Optional[Layer]", "Optional[Mix]"]:
    """What the options name: the `elmo` component, and of its layers one, a mix, or
    all, which is neither.
    """
    if layers == "mix":
        elmo, mix = _find_mix(nlp, component)
        return elmo, None, mix
    elmo = inputs.find_elmo(nlp, pipeline)
    return elmo, None if layers == "all" else inputs.choose_layer(elmo, layers), None


def _find_mix(nlp: Language, component: Optional[str]) -> Tuple["ELMo", "Mix"]:
    """The mix of a component, or the only one of the pipeline, and the `elmo` component
    with the biLM that it mixes.
    """
    from ..pipeline.learned_weights import find_mixes

    mixes = list(find_mixes(nlp))
    found = [mix for mix in mixes if component in (None, mix[0])]
    if len(found) != 1:
        names = ", ".join(dict.fromkeys(name for name, _, _ in mixes)) or "none"
        of = f" of {component!r}" if component else ""
        raise CorpusError(Errors.E112.format(n=len(found), of=of, names=names))
    name, encoder, mix = found[0]
    if "upstream" not in encoder.attrs:  # a biLM of its own, maybe fine-tuned
        # Its settings tell later runs whether they may go on with this one's parts.
        config = {"model": _own_bilm(nlp.config.interpolate()["components"][name])}
        elmo: Any = nlp.add_pipe("elmo", f"elmo_of_{name}", before=name, config=config)
        elmo.model = encoder
        return elmo, mix
    elmo = encoder.attrs["component"].get()
    if elmo is None or not elmo.is_enabled():
        raise CorpusError(Errors.E031.format(upstream=encoder.attrs["upstream"]))
    return elmo, mix


def _own_bilm(config: Any) -> Any:
    """The biLM in the config of a component, or None."""
    if not isinstance(config, dict):
        return None
    if config.get("@architectures") == "spacy_elmo.ELMo.v1":
        return config["bilm"]
    return next(filter(None, map(_own_bilm, config.values())), None)


def _embed_here(
    job: "Job", files: List[Path], n_process: int, n_texts: int, silent: bool
) -> None:
    """Embed all files in processes of this machine, with a progress bar."""
    from tqdm import tqdm

    from ..pipeline.vector_files import missing_parts, write_parts

    texts = ((i, text) for i, file in enumerate(files) for text in job.read(file))
    bar = tqdm(texts, total=n_texts, unit=" texts", disable=silent)
    n_process = n_process if n_process > 0 else cpu_count() or 1
    try:
        write_parts(job, missing_parts(job, bar), n_process)
    except KeyboardInterrupt:
        raise CorpusError(Errors.E116) from None


def _embed_on_ray(job: "Job", files: List[Path], n_workers: int) -> None:
    """Embed each file in a task of its own. All workers must see the output folder."""
    from ..pipeline.vector_files import missing_parts, write_parts

    try:
        # Not "ray" alone: any folder of that name can be imported.
        from ray.data import from_items  # type: ignore[import-not-found, unused-ignore]
    except ImportError as e:
        raise CorpusError(Errors.E113.format(reason=e)) from None

    def embed(item: Dict[str, Any]) -> Dict[str, Any]:
        texts = ((item["number"], text) for text in job.read(Path(item["file"])))
        write_parts(job, missing_parts(job, texts))
        return item

    items = [{"file": str(f.absolute()), "number": i} for i, f in enumerate(files)]
    data = from_items(items, override_num_blocks=len(items))
    data.map(embed, concurrency=n_workers if n_workers > 0 else None).take_all()
