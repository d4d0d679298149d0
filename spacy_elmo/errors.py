"""Coded messages: what was found and where, then what to do."""

from difflib import get_close_matches
from math import inf
from numbers import Real
from pathlib import Path
from typing import Iterable, Mapping, Type, Union


class WeightsError(ValueError):
    """A biLM's options or weights are missing, broken or of another kind."""


class MissingWeights(WeightsError, FileNotFoundError):
    """There is nothing at the path given."""


class RetokenizedError(ValueError, AttributeError):
    """The layers of a Doc are those of other tokens. An AttributeError, so that
    `hasattr` is False: spaCy's `doc_cleaner` asks it.
    """


class CorpusError(ValueError):
    """A text, a vocabulary, or what a command was given cannot be used."""


class TrainingError(RuntimeError):
    """Pretraining cannot start or continue."""


class DownloadError(RuntimeError):
    """A published model cannot be fetched."""


def looked_for(path: Union[str, Path]) -> str:
    """A path for a message. A relative one is followed by the current folder."""
    return str(path) if Path(path).is_absolute() else f"{path} (in {Path.cwd()})"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """For a message: the known names that are like this one, if there are any."""
    close = get_close_matches(name, known, n=2, cutoff=0.5)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def unusable(path: Union[str, Path], problem: str) -> CorpusError:
    """The error of a file, or of a section of a config, with its name in front."""
    return CorpusError(Errors.E051.format(path=path, problem=problem))


def require_same(
    path: Path,
    found: Mapping[str, object],
    wanted: Mapping[str, object],
    error: Type[Exception] = CorpusError,
) -> None:
    """RAISES (error): If what is at a path was made with other settings."""
    different = ", ".join(key for key in wanted if found.get(key) != wanted[key])
    if different:
        raise error(Errors.E110.format(path=path, what=different))


def require(holds: bool, name: str, wanted: str, found: object) -> None:
    """RAISES (ValueError): If an argument is not what is wanted."""
    if not holds:
        raise ValueError(Errors.E038.format(name=name, wanted=wanted, found=found))


def require_number(name: str, found: object, least: float, below: float = inf) -> None:
    """RAISES (ValueError): If an argument is no number, or out of range. spaCy checks a
    config, but hands on a number in quotes as it is.
    """
    holds = isinstance(found, Real) and least <= float(found) < below
    upper = "" if below == inf else f" and below {below}"
    require(holds, name, f"a number of at least {least}{upper}", found)


class Errors:
    # Options and weights
    E001 = (
        "[ELMO001] No such file or directory: {path}.{hint} Give a registered name "
        "({names}), a published model ({published}), or a path: a directory or .zip "
        "with options.json and one .hdf5 file, or an .hdf5 file beside its options."
    )
    E002 = (
        "[ELMO002] {path}: found {n} {what}, expected exactly one. A model is one file "
        "of options (options.json or *_options.json) and one *.hdf5.{hint}"
    )
    E003 = (
        "[ELMO003] {path} is an ELMoForManyLangs model (found {found}), a different "
        "architecture. Use one in bilm-tf's format: options.json and an .hdf5 file."
    )
    E004 = (
        "[ELMO004] {path} is not a readable {kind} ({reason}). If it is damaged or "
        "incomplete, copy or download it again."
    )
    E006 = "[ELMO006] {path} is not valid JSON ({reason})."
    E007 = "[ELMO007] {path}: '{key}': {problem} (found: {found})."
    E008 = (
        "[ELMO008] {path}: shape of dataset '{name}': found {found}, wanted {wanted}. "
        "Check that the weights belong to the options in {options}."
    )
    E009 = (
        "[ELMO009] No such file or directory: {path}. For a name such as en_elmo_sm, "
        "spacy_elmo.weights.resolve gives the path."
    )
    E010 = (
        "[ELMO010] {path} is an options file: give the .hdf5 file, or the folder that "
        "has both."
    )
    E011 = "[ELMO011] {path}: dataset '{name}' holds {problem}."
    E012 = "[ELMO012] {path}: {problem}. The archive was not read."
    E013 = (
        "[ELMO013] {url} is a URL: weights are read from a disk. Download its files "
        "into a folder and give that, or a name from 'python -m spacy elmo download'."
    )
    # Running the biLM
    E022 = (
        "[ELMO022] Sentence {i} is {found}. Give a list of words, each a string: "
        "text.split(), or [token.text for token in doc]."
    )
    # Documents and listeners
    E030 = (
        "[ELMO030] doc._.elmo has {found} rows, but the Doc has {wanted} tokens: it "
        "was retokenized after the 'elmo' component ran. Retokenize before 'elmo', "
        "or set doc._.elmo = None and run the component again."
    )
    E031 = (
        "[ELMO031] A listener of upstream '{upstream}' got a Doc without ELMo vectors. "
        "Enable an 'elmo' of that name before it, or set 'upstream' to its new name; "
        "or, if the Docs have another vocab, make them with nlp.make_doc."
    )
    E032 = (
        "[ELMO032] A listener of upstream '{upstream}' found no 'elmo' component of "
        "that name before it ('*': of any name), or the Docs have another vocab. Check "
        "the names and their order in [nlp] pipeline, check 'upstream', and make "
        "examples with nlp.make_doc; or use spacy_elmo.ELMo.v1."
    )
    E033 = (
        "[ELMO033] ELMo vectors of shape {found} reached a mix of {n_layers} layers of "
        "width {width}. Give 'elmo' the weights that this component was trained with, "
        "or train it again."
    )
    E037 = (
        "[ELMO037] The segmenter's spans must cover each token of the Doc once and in "
        "order. At token {i} of {n}: {found}."
    )
    E038 = "[ELMO038] {name} must be {wanted}, not {found!r}."
    E039 = "[ELMO039] The mix of the layers is not initialized: call nlp.initialize()."
    E041 = (
        "[ELMO041] This machine has no device '{device}' ({reason}). Give 'cpu', "
        "'cuda', 'cuda:1' and so on, or null to let spaCy choose."
    )
    E042 = (
        "[ELMO042] '{name}' has {value:.3g}, which is too large for {dtype}. Use "
        "float32."
    )
    E043 = (
        "[ELMO043] span._.elmo and token._.elmo are parts of doc._.elmo: set that, by "
        "doc._.elmo = layers, shape (n_tokens, L + 1, width)."
    )
    E044 = (
        "[ELMO044] '{name}' has NaN or infinite numbers: training has diverged. Lower "
        "its learning rate."
    )
    E045 = (
        "[ELMO045] No {path}: the pipeline was saved or copied without its biLM. Copy "
        "it, too, or load the pipeline with exclude=['elmo'] (the name of the "
        "component), and add the same biLM by nlp.add_pipe('elmo', first=True)."
    )
    # Corpus, vocabulary, pretraining
    E050 = "[ELMO050] No text found at {path}: {problem}."
    E051 = "[ELMO051] {path}: {problem}."
    E052 = (
        "[ELMO052] Too few documents ({documents:,} in an epoch) or tokens ({tokens:,"
        ".0f}) for {rows} rows: each needs a document of its own, and a window of "
        "{steps} tokens. Lower 'training.rows' or 'training.unroll_steps', give "
        "more text, or put empty lines between the documents of a .txt."
    )
    E053 = (
        "[ELMO053] The {what} is {value} at step {step} (epoch {epoch}). The words of "
        "the batch are in {dump}. Lower 'learn_rate' or 'grad_clip', or set precision ="
        ' "float32", and run the command again to resume from the last checkpoint.'
    )
    E054 = (
        "[ELMO054] {path} has no softmax, so it is no language model. Use a model that "
        "'spacy elmo pretrain' wrote: the official ones have no softmax, and pipelines "
        "keep their biLMs without it."
    )
    E056 = "[ELMO056] {path} cannot be read ({reason}). Remove it to start over."
    E058 = (
        "[ELMO058] Interrupted after step {step:,} of {n_steps:,}. Everything so far "
        "is saved: run the same command again to resume."
    )
    E059 = (
        "[ELMO059] The vocabulary {path} has none of the words of the text. Give one "
        "of the same language, spelling and tokenization. If it was made from the text,"
        " lower 'vocabulary.min_count' or give more text."
    )
    E060 = "[ELMO060] {path} has other settings in [model]: {what}. Use the same."
    E061 = "[ELMO061] Plots need matplotlib ({reason}): pip install matplotlib"
    # Downloads
    E100 = (
        "[ELMO100] There is no published model '{name}'.{hint} There are {names}, and "
        "nlpl/ID with a number of the NLPL repository's catalog."
    )
    E101 = "[ELMO101] {url} cannot be downloaded: {problem}."
    E103 = (
        "[ELMO103] {name} is not downloaded yet (no {path}). Run: python -m spacy elmo "
        "download {name}"
    )
    E104 = (
        "[ELMO104] Downloaded models have no place: {path} needs a home folder, and "
        "there is none. Set {variable} to a folder."
    )
    # Other commands
    E080 = (
        "[ELMO080] No component of {pipeline} mixes the layers of a biLM. Give a "
        "pipeline trained with spacy_elmo.ELMoListener.v1 or spacy_elmo.ELMo.v1."
    )
    E110 = (
        "[ELMO110] {path} was made from another text or with other settings ({what}). "
        "Give the same ones, or another output; or delete what that run has made."
    )
    E111 = "[ELMO111] {path} is there already. Remove it, or give another path."
    E112 = (
        "[ELMO112] --layers mix needs one trained mix, and there are {n}{of} "
        "(components that have one: {names}). Give a --pipeline, and the --component."
    )
    E113 = "[ELMO113] --engine ray needs Ray Data ({reason}): pip install 'ray[data]'"
    E114 = (
        "[ELMO114] Another process is writing to {path}, perhaps from an earlier run. "
        "Wait until it ends, or give another path."
    )
    E115 = (
        "[ELMO115] {path} cannot be written ({reason}). Free space if the disk is "
        "full, and run the command again; or give another place."
    )
    E116 = "[ELMO116] Interrupted. Run the same command again to resume."
    E117 = (
        "[ELMO117] One of {n} processes died, perhaps because memory ran out. Take "
        "fewer (--n-process of 'embed', corpus.n_process of 'pretrain')."
    )
    E118 = (
        "[ELMO118] --code cannot be combined with --n-process here: processes start by "
        "'{start}', and would not have its functions. Leave out --n-process, or "
        "install the functions as a package."
    )
    E120 = (
        "[ELMO120] The query {query!r} has {found} words in brackets, expected exactly "
        'one. Mark it like this: "He made a spectacular [play] on the ball".'
    )
    E121 = (
        "[ELMO121] The brackets in the query {query!r} are around {word!r}, but the "
        "tokens there are {tokens}. Put them around one whole token."
    )
    E122 = (
        "[ELMO122] {pipeline} has no 'elmo' component. Give another pipeline, or use "
        "--weights."
    )
    E123 = "[ELMO123] {name} is a biLM, not a pipeline. Give a pipeline."
    E124 = (
        "[ELMO124] {layer!r} is neither a layer nor a mix{has}: use 'top', 'mean', the "
        "number of a layer from 0 to L, or L + 1 weights, none negative, that sum to 1."
    )
    E125 = (
        "[ELMO125] This {type} has an ELMo vector of width {wanted}, and the {other} "
        "has {found}. Compare what the same 'elmo' component has seen."
    )
    E126 = (
        "[ELMO126] A --pipeline has weights and a language of its own: leave out "
        "--weights and --lang."
    )
    E127 = "[ELMO127] {path} is a pipeline with {n} biLMs. Give one of them: {paths}."
    E128 = (
        "[ELMO128] {name} cannot be loaded: {reason} Give the file of its functions by "
        "--code, or install their package."
    )
    E129 = "[ELMO129] {name} is no pipeline. Did you mean {best}?"
    # init and package
    E130 = (
        "[ELMO130] The text at {path} has {found:,} words, repeated paragraphs counted "
        "once: too few. Give {wanted:,} or more; a useful biLM needs millions."
    )
    E131 = (
        "[ELMO131] There are {n_dev} --dev files for {n} --treebank files. Give one "
        "for each; or give none, and a tenth of each treebank is held out."
    )
    E132 = (
        "[ELMO132] {path} has {n} Docs: too few to hold out one in {every}. Give "
        "--dev, or more sentences: except in a .spacy, {n_sents} of them make one Doc."
    )
    E133 = (
        "[ELMO133] {path} is there already. Replace it with --force, or give another "
        "folder, --name or --version."
    )
    E134 = "[ELMO134] Building a package needs 'build' or 'wheel': pip install build"
    E135 = "[ELMO135] spaCy has no language {lang!r}.{hint} Give one of {known}."
    E136 = (
        "[ELMO136] spaCy's tokenizer for {lang!r} is not installed ({reason}). Install "
        "what it needs; or, if words stand between spaces, take spaCy's rules ("
        "--nlp.tokenizer '{{\"@tokenizers\": \"spacy.Tokenizer.v1\"}}' for 'pretrain', "
        "--tokenizer for 'init', or a --pipeline for the other commands); or give text "
        "that is split into words (--corpus.tokenized true for 'pretrain', else "
        "--tokenized)."
    )
    E137 = "[ELMO137] {path} has no license: give --license, or one in its meta.json."
    E138 = "[ELMO138] The package cannot be built ({reason}): see {path}."
    E139 = (
        "[ELMO139] {name!r} is not a valid package name. Use one like hu_novels_elmo."
    )
    E140 = (
        "[ELMO140] The words of {path} have {length:.0f} bytes on average: there seem "
        "to be no spaces between them. Give text that is split into words, and "
        "--tokenized; and, for the pipeline, a --tokenizer that splits running text in "
        "the same way, for instance spacy.ja.JapaneseTokenizer."
    )


class Warnings:
    W001 = (
        "[ELMOW001] A listener of upstream '{upstream}' got Docs without vectors of "
        "its biLM and predicts from zeros. Enable that 'elmo' component, move it in "
        "front of the listener, or source both."
    )
    W002 = (
        '[ELMOW002] precision = "{precision}" is slower than float32 on this {device}, '
        "which has no {missing}: using float32."
    )
    W003 = "[ELMOW003] {problem} Continuing from {path} instead, at step {step}."
    W004 = "[ELMOW004] The cache {path} is not used ({reason}). If damaged, remove it."
    W005 = (
        "[ELMOW005] {path} is not UTF-8 in {n:,} of its lines, first in line {first}: "
        "invalid bytes became U+FFFD. To convert it: iconv -f latin1 -t utf8"
    )
    W006 = (
        "[ELMOW006] {share:.0%} of the words of {path} are outside the vocabulary: the "
        "perplexity says little. Is it of this language, spelling and tokenization?"
    )
    W007 = (
        "[ELMOW007] No component listens to '{name}', so training gains nothing by it, "
        "unless a component of yours reads doc._.elmo. Use spacy_elmo.EmbedWithELMo.v1 "
        "in the tok2vec of a component (see configs/); spaCy's Tok2VecListener cannot "
        "listen to it."
    )
    W008 = (
        "[ELMOW008] '{name}' was trained with another biLM ({wanted}) than that of "
        "'{upstream}' ({found}): its predictions mean nothing. Give '{upstream}' the "
        "weights that '{name}' was trained with ('spacy elmo info' prints these "
        "digests), or train '{name}' again."
    )
    W009 = (
        "[ELMOW009] The config of '{name}' asks for the weights {asked}, but a trained "
        "pipeline has its own, made from {own}, and uses those. To train with others, "
        "make a new pipeline."
    )
    W010 = (
        "[ELMOW010] spaCy's tokenizer makes only {share:.1%} of the tokens of {path}: "
        "{examples}. The pipeline is trained and evaluated on the treebank's tokens, "
        "but on running text it will see the tokenizer's."
    )
    W011 = (
        "[ELMOW011] {found:,} words is little text: the gain will be small. Millions "
        "are better, even from an older or different source."
    )
    W012 = (
        "[ELMOW012] The held-out text {path} is trained on as well: its perplexity "
        "says nothing of other text. Leave it out of paths.train."
    )
    W013 = (
        "[ELMOW013] The model of --init-from was trained with nlp.lang {theirs!r}, and "
        "this run has {ours!r}: its words are split by other rules. Give --nlp.lang."
    )
    W014 = (
        "[ELMOW014] The held-out perplexity is {found:.1f} after {step:,} steps, and "
        "was {best:.1f} after {best_step:,}. If the loss has risen as well, the run "
        "has diverged: begin again with a lower training.optimizer.learn_rate. If not, "
        "it overfits: training.keep_best keeps the best weights."
    )
    W015 = (
        "[ELMOW015] The best weights of this run so far, of step {step:,}, are lost: "
        "{path} is not there. The weights of the next evaluation count as the best."
    )
    W016 = (
        "[ELMOW016] {name!r} reads the sentences of {setters} now, which come after "
        "{elmo!r}: with others than {elmo!r} read, its vectors are not those that it "
        "was trained on. Put what sets sentences before {elmo!r}, and train again."
    )
