import ast
import json
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import typer

import spacy_elmo

try:
    METADATA = distribution("spacy-elmo")
    ENTRY_POINTS = [
        pytest.param(entry, id=f"{entry.group}:{entry.name}")
        for entry in METADATA.entry_points
    ]
except PackageNotFoundError:
    pytest.skip("spacy-elmo is not installed", allow_module_level=True)

HEAVY = ("torch", "h5py", "matplotlib")
SOURCES = Path(spacy_elmo.__file__).parent
# The folders that each may import: CONTRIBUTING.md has the same arrows.
BELOW = {"bilm": set(), "text": set(), "weights": {"bilm"}}
BELOW["layers"] = {"bilm", "weights"}
BELOW["pipeline"] = {*BELOW["layers"], "layers", "text"}
BELOW["pretraining"] = {"bilm", "text", "weights"}
BELOW["recipe"] = {*BELOW["pretraining"], "pretraining"}
BELOW["cli"] = {"pipeline", *BELOW["pipeline"], "recipe", *BELOW["recipe"]}


# What a session may do, and each time the names of the modules that it loads.
STEPS = (
    "import spacy, thinc.api, spacy.cli", "import spacy_elmo.cli", "spacy.blank('en')",
    "spacy.blank('en').add_pipe('elmo').model.initialize()",
)  # fmt: skip


def modules_of(*steps):
    """The names of the modules that each step loads in a fresh Python."""
    program = f"""
import json, sys
for step in {steps!r}:
    before = {{*sys.modules}}
    exec(step)
    print(json.dumps(sorted({{*sys.modules}} - before)))
"""
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def loaded():
    return dict(zip(STEPS, modules_of(*STEPS)))


def imports_of(path):
    """The modules of the package that a module imports, wherever in it, by path."""
    tree = ast.parse(path.read_text(encoding="utf8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].joinpath(
                *(node.module or "").split(".")
            )
            for name in (alias.name for alias in node.names):
                found = folder / f"{name}.py", folder / name / "__init__.py"
                found += folder.with_suffix(".py"), folder / "__init__.py"
                yield next(file for file in found if file.is_file())


def test_imports_point_down_and_never_in_a_circle():
    graph = {path: {*imports_of(path)} - {path} for path in SOURCES.rglob("*.py")}
    for path, imported in graph.items():
        folders = {file.parent.name for file in imported if file.parent != SOURCES}
        if path.parent != SOURCES:
            folder = path.parent.name
            assert folders <= {folder, *BELOW[folder]}, path
        elif path.name != "__init__.py":  # which imports its public names when asked
            assert not folders, path
    # `from . import x` of a command is an import of the folder, which has them all.
    for path in graph:
        if path.name == "__init__.py":
            graph[path] = set()
    TopologicalSorter(graph).prepare()  # or it raises a CycleError


def test_no_two_modules_have_one_name():
    names = [path.stem for path in SOURCES.rglob("*.py") if path.stem != "__init__"]
    assert len(names) == len(set(names))


def test_metadata():
    assert METADATA.version == spacy_elmo.__version__
    assert METADATA.metadata["Requires-Python"] == ">=3.10"
    required = [r for r in METADATA.requires or [] if "extra ==" not in r]
    imported = set()
    for path in Path(spacy_elmo.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).split(".")[0])
    # Each of these is imported where its feature is asked for.
    optional = {"matplotlib", "ray"}
    others = imported - set(sys.stdlib_module_names) - optional
    names = {r.split(">")[0].split("<")[0].replace("-", "_") for r in required}
    assert others <= names


def test_hints_name_packages_that_an_index_has():
    found = set()
    for path in Path(spacy_elmo.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf8")
        found |= set(re.findall(r"pip install '?([\w-]+)", text))
    assert found == {"build", "matplotlib", "ray", "smart-open"}


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_entry_points(entry):
    found = entry.load()
    if entry.group == "spacy_cli":
        assert isinstance(found, typer.Typer)
    else:
        assert callable(found)


def test_all_registered_names_have_an_entry_point():
    assert {(entry.group, entry.name) for entry in METADATA.entry_points} == {
        ("spacy_factories", "elmo"),
        ("spacy_architectures", "spacy_elmo.BiLM.v1"),
        ("spacy_architectures", "spacy_elmo.ELMo.v1"),
        ("spacy_architectures", "spacy_elmo.ELMoListener.v1"),
        ("spacy_architectures", "spacy_elmo.EmbedWithELMo.v1"),
        ("spacy_misc", "spacy_elmo.segment_sentences.v1"),
        ("spacy_misc", "spacy_elmo.segment_docs.v1"),
        ("spacy_cli", "elmo"),
        ("srsly_msgpack_decoders", "spacy_elmo"),
        ("spacy_elmo_weights", "en_elmo_sm"),
        ("spacy_elmo_weights", "en_elmo_md"),
    }


def test_import_is_light():
    read = "import srsly; srsly.msgpack_loads(srsly.msgpack_dumps({}))"
    modules, with_srsly = modules_of("import spacy_elmo", read)
    assert not {*HEAVY, "spacy", "thinc", "numpy"}.intersection(modules)
    (modules,) = modules_of("import spacy_elmo; spacy_elmo.bilm, spacy_elmo.weights")
    assert "spacy_elmo.weights" in modules and "spacy" not in modules
    # srsly reads Docs by our decoder.
    assert "spacy_elmo.layers.user_data" in with_srsly
    assert not {*HEAVY, "spacy", "thinc"}.intersection(with_srsly)


def test_a_blank_pipeline_imports_nothing_of_ours_that_costs(loaded):
    # spaCy and thinc may have imported torch themselves.
    modules = loaded["spacy.blank('en')"]
    assert not set(HEAVY).intersection(modules)
    ours = {name for name in modules if name.startswith("spacy_elmo.")}
    assert "spacy_elmo.pipeline.factory" in ours
    # The extensions are registered at once: Docs with vectors may come from a file.
    assert "spacy_elmo.layers.extensions" in ours
    for part in ("bilm", "layers.shim", "pretraining", "pipeline.component"):
        assert f"spacy_elmo.{part}" not in ours


def test_every_spacy_command_imports_the_commands_and_pays_nothing(loaded):
    modules = loaded["import spacy_elmo.cli"]
    assert not {*HEAVY, "numpy", "pandas"}.intersection(modules)
    assert "spacy_elmo.cli.pretrain" in modules
    for part in ("bilm", "layers", "pipeline", "pretraining", "weights"):
        assert f"spacy_elmo.{part}" not in modules


def test_weights_are_read_without_what_takes_seconds_to_import(loaded):
    assert "spacy_elmo.bilm.lstm" in loaded[STEPS[-1]]
    assert not {"torch._dynamo", "sympy"}.intersection(loaded[STEPS[-1]])


def test_files_that_travel_with_the_package():
    files = [str(file).replace("\\", "/") for file in METADATA.files or []]
    if not any(file.endswith("spacy_elmo/__init__.py") for file in files):
        pytest.skip("an editable install has no files of its own")
    assert "spacy_elmo/py.typed" in files
    for name in ("options.json", "weights.hdf5", "vocab.txt", "README.md"):
        assert f"spacy_elmo/weights/en_elmo_sm/{name}" in files
        assert f"spacy_elmo/weights/en_elmo_md/{name}" in files
