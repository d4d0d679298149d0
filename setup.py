from pathlib import Path

from setuptools import find_packages, setup

root = Path(__file__).parent
about: dict = {}
exec((root / "spacy_elmo" / "about.py").read_text(encoding="utf8"), about)

setup(
    name="spacy-elmo",
    version=about["__version__"],
    description="ELMo as a spaCy plugin: fast, exact, reproducible",
    long_description=(root / "README.md").read_text(encoding="utf8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=[
        *find_packages(include=["spacy_elmo", "spacy_elmo.*"]),
        "spacy_elmo.configs",
    ],
    # `spacy elmo init` fills them.
    package_dir={"spacy_elmo.configs": "configs"},
    package_data={
        "spacy_elmo": ["py.typed", "weights/*.json", "weights/*/*", "recipe/*.yml"],
        "spacy_elmo.configs": ["*.cfg"],
    },
    python_requires=">=3.10",
    install_requires=[
        "spacy>=3.8,<3.9",
        "thinc>=8.3,<8.4",
        "torch>=2.6",
        "srsly>=2.4,<3",
        "catalogue>=2.0.6,<2.1",
        "numpy>=2",
        "h5py>=3.11",
        # A lock whose file was removed is no longer taken for one.
        "filelock>=3.21",
        # These come with spaCy and torch; their releases decide which.
        "pydantic>=2",
        "requests",
        "smart-open>=7.3.1",
        "tqdm",
        "typer>=0.19",
        "wasabi",
    ],
    extras_require={
        "plot": ["matplotlib>=3.6"],
        "experiments": ["matplotlib>=3.6", "floret", "pytorch-crf", "scorch"],
        "ray": ["ray[data]>=2.9"],
        "zstd": ["smart-open[zst]>=7.3.1"],
        "test": [
            "pytest>=7",
            "pytest-xdist",
            "hypothesis>=6.100",
            "setuptools",
            "wheel",
        ],
        "lint": ["ruff", "mypy"],
    },
    entry_points={
        "spacy_factories": ["elmo = spacy_elmo.pipeline.factory:make_elmo"],
        "spacy_architectures": [
            "spacy_elmo.BiLM.v1 = spacy_elmo.layers.architectures:build_bilm",
            "spacy_elmo.ELMo.v1 = spacy_elmo.layers.architectures:build_elmo",
            "spacy_elmo.ELMoListener.v1 = "
            "spacy_elmo.layers.architectures:build_elmo_listener",
            "spacy_elmo.EmbedWithELMo.v1 = "
            "spacy_elmo.layers.architectures:build_embed_with_elmo",
        ],
        "spacy_misc": [
            "spacy_elmo.segment_sentences.v1 = spacy_elmo.segmenters:segment_sentences",
            "spacy_elmo.segment_docs.v1 = spacy_elmo.segmenters:segment_docs",
        ],
        "spacy_cli": ["elmo = spacy_elmo.cli:app"],
        "srsly_msgpack_decoders": ["spacy_elmo = spacy_elmo.layers.user_data:decode"],
        "spacy_elmo_weights": [
            "en_elmo_sm = spacy_elmo.weights:en_elmo_sm",
            "en_elmo_md = spacy_elmo.weights:en_elmo_md",
        ],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
