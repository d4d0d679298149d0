"""Each snippet of README, docs/ and projects/ runs as it stands, and each link leads
somewhere.
"""

import inspect
import json
import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer
from spacy.cli import init_config
from spacy.training import Example
from spacy.util import load_config, load_model_from_config, registry
from thinc.api import Config, get_current_ops, use_ops

import spacy_elmo
from spacy_elmo.cli import app
from spacy_elmo.pipeline.learned_weights import get_mixes

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / "projects").glob("*/README.md"),
]
TEXTS = {page: page.read_text(encoding="utf8") for page in PAGES}
CHANGELOG = ROOT / "CHANGELOG.md"
COMMANDS = typer.main.get_command(app).commands


def snippets(language):
    return [
        pytest.param(snippet, id=f"{page.parent.name}-{page.stem}-{i}")
        for page, text in TEXTS.items()
        for i, snippet in enumerate(re.findall(rf"```{language}\n(.*?)```", text, re.S))
    ]


def shapes(snippet):
    """`expression  # ... (1, 2, 3)` -> [(expression, (1, 2, 3))]"""
    lines = re.findall(r"^(\S+\.shape)  # .*?(\(\d[\d, ]*\))$", snippet, flags=re.M)
    return [(expression, eval(shape)) for expression, shape in lines]


@pytest.mark.parametrize("snippet", snippets("python"))
def test_python_runs_and_gives_the_shapes_that_it_says(snippet):
    scope = {}
    with use_ops(get_current_ops().name):  # a snippet may set others
        exec(snippet, scope)
    for expression, shape in shapes(snippet):
        assert eval(expression, scope) == shape


@pytest.mark.parametrize("snippet", snippets("ini"))
def test_a_config_makes_a_pipeline(snippet):
    nlp = load_model_from_config(Config().from_str(snippet), auto_fill=True)
    nlp.initialize()
    assert nlp("Hello there")._.elmo is not None


def test_the_config_that_readme_shows_is_a_shipped_one():
    """Of its component nothing is left out that would cost accuracy."""
    (snippet,) = re.findall(r"```ini\n(.*?)```", TEXTS[ROOT / "README.md"], re.S)
    shown, shipped = (
        load_model_from_config(config, auto_fill=True).config["components"]["ner"]
        for config in (
            Config().from_str(snippet),
            load_config(ROOT / "configs" / "ner.cfg"),
        )
    )
    assert shown == shipped


@pytest.mark.parametrize("name", ["spacy_elmo.BiLM.v1", "spacy_elmo.ELMoListener.v1"])
def test_the_reference_has_each_argument_with_its_default(name):
    _, part = TEXTS[ROOT / "docs" / "reference.md"].split(f"\n`{name}`, ")
    table = part.split("\n\n")[1]
    found = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", table, flags=re.M)
    arguments = inspect.signature(registry.architectures.get(name)).parameters
    wanted = {key: argument.default for key, argument in arguments.items()}
    assert {key: json.loads(default) for key, default in found} == wanted


def test_published_models_that_are_named_can_be_loaded():
    helps = [str(vars(p).get("help")) for c in COMMANDS.values() for p in c.params]
    numbers = re.findall(r"nlpl/(\d+)", "\n".join([*TEXTS.values(), *helps]))
    # The others are ELMoForManyLangs, which is refused.
    assert not {int(number) for number in numbers}.intersection(range(136, 180))


def sections(text):
    config = ConfigParser(interpolation=None)
    config.read_string(text)
    return {name: dict(config[name]) for name in config.sections()}


def test_elmo_in_a_config_of_spacy(tmp_path):
    """What docs/training.md does to a file of `spacy init config`."""
    (added,) = re.findall(r"```cfg\n(.*?)```", TEXTS[ROOT / "docs/training.md"], re.S)
    embed = "components.tok2vec.model.embed"
    shared = tmp_path / "shared.cfg"
    options = {"lang": "en", "pipeline": ["tagger", "ner"], "silent": True}
    text = init_config(**options).to_str()
    for old, new in (
        ('["tok2vec"', '["elmo", "tok2vec"'),
        (f"[{embed}]", f"{added}\n[{embed}.embed]"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    shared.write_text(text, encoding="utf8")
    assert train_a_little(Config().from_disk(shared)) == ["tok2vec"]
    # A mix for each component
    config = Config().from_disk(shared).interpolate()
    tok2vec = config["components"].pop("tok2vec")["model"]
    config["nlp"]["pipeline"].remove("tok2vec")
    for name in ("tagger", "ner"):
        config["components"][name]["model"]["tok2vec"] = tok2vec
    assert train_a_little(config) == ["tagger", "ner"]


def test_elmo_in_a_text_classifier_of_spacy():
    """What docs/training.md does to another such file."""
    options = {"lang": "en", "pipeline": ["textcat"], "optimize": "accuracy"}
    config = init_config(**options, silent=True).interpolate()
    del config["components"]["tok2vec"]
    tagger = Config().from_disk(ROOT / "configs" / "tagger.cfg").interpolate()
    tok2vec = tagger["components"]["tagger"]["model"]["tok2vec"]
    config["components"]["textcat"]["model"]["tok2vec"] = tok2vec
    config["components"]["elmo"] = {"factory": "elmo"}
    config["nlp"]["pipeline"] = ["elmo", "textcat"]
    config["initialize"]["vectors"] = None
    assert train_a_little(config) == ["textcat"]


def train_a_little(config):
    """The components of a pipeline that have learned a mix."""
    nlp = load_model_from_config(config)
    annotation = {
        "tags": ["NNP", "VBZ"], "entities": [(0, 3, "PERSON")],
        "cats": {"yes": 1.0, "no": 0.0},
    }  # fmt: skip
    examples = [Example.from_dict(nlp.make_doc("Ann reads"), annotation)]
    nlp.initialize(lambda: examples)
    for _ in range(4):  # not 1: the output layers begin with zeros
        nlp.update(examples)
    mixes = get_mixes(nlp)
    assert all(len(set(mix["s"])) > 1 for mix in mixes)
    return [mix["component"] for mix in mixes]


def test_the_config_of_a_migration_is_a_part_of_a_shipped_one():
    page = TEXTS[ROOT / "docs" / "migrating.md"]
    _, after = re.findall(r"```cfg\n(.*?)```", page, re.S)
    shipped = sections((ROOT / "configs" / "ner.cfg").read_text(encoding="utf8"))
    for name, settings in sections(after).items():
        assert settings == shipped[name]


def test_the_version_to_cite_is_that_of_the_package():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf8")
    assert f"\nversion: {spacy_elmo.__version__}\n" in text
    assert f"\n## {spacy_elmo.__version__}\n" in CHANGELOG.read_text(encoding="utf8")


@pytest.mark.parametrize("snippet", snippets("bash"))
def test_a_command_names_what_exists(snippet):
    for line in snippet.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for target in words[1:] if words[:1] == ["make"] else []:
            assert f"\n{target}:" in (ROOT / "Makefile").read_text()
        for name in (w for w in words if w.startswith(("configs/", "assets/"))):
            assert (ROOT / name).is_file()
        if "elmo" in words and "spacy" in words:
            check_options(words[words.index("elmo") + 1 :])


def check_options(words):
    command = COMMANDS[words[0]]
    known = {option for p in command.params for option in p.opts + p.secondary_opts}
    # Dotted names override settings of a config.
    for word in words[1:]:
        if word.startswith("--") and "." not in word:
            assert word.split("=")[0] in known


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXTS[page]):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_source_distribution_has_every_page():
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf8")
    for page in PAGES[1:]:  # README is in it anyway
        assert f"graft {page.relative_to(ROOT).parts[0]}\n" in manifest


def test_readme_is_short():
    assert len(TEXTS[ROOT / "README.md"].splitlines()) <= 150
