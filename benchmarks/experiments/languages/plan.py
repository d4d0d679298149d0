"""Write experiment.yml: six languages by three tasks by what an hour can buy.

python plan.py experiment.yml
"""

import sys
from typing import Any, Dict

import srsly

LANGUAGES = {
    "de": "German", "fr": "French", "hu": "Hungarian", "ko": "Korean",
    "pt": "Portuguese", "ru": "Russian",
}  # fmt: skip
TASKS = {
    "tags": ("tags", "ud", {"tag_acc": "UPOS"}),
    "heads": ("parser", "ud", {"dep_las": "LAS"}),
    "names": ("ner", "ner", {"ents_f": "names (F)"}),
}
RULES = "spacy.Tokenizer.v1"
VECTORS = {"model.tok2vec.embed.include_static_vectors": True}
# By the minutes of one core. Paths are below WORK/languages/CODE, where texts.py puts
# them.
ARMS = {
    "spaCy": {"encoder": "cnn"},
    "floret": {"encoder": "cnn", "set": VECTORS, "vectors": "vectors"},
    "spacy pretrain, 60": {"encoder": "cnn", "init_tok2vec": "pretrained_60.bin"},
    "ELMo, 10": {"encoder": "cnn_elmo", "weights": "bilm_10"},
    "ELMo, 60": {"encoder": "cnn_elmo", "weights": "bilm_60"},
    "ELMo, 240": {"encoder": "cnn_elmo", "weights": "bilm_240"},
}
FILES = ("vectors", "init_tok2vec", "weights")
DESCRIPTION = """
By the minutes of one core that were spent on the text of the language, 3.6 to 4 million
words. The tags are UPOS. LAS is spaCy's, without punctuation and with subtypes, and the
best step is chosen by its default, a third UAS. The text is older than the treebanks in
Hungarian, French and Russian (novels) and mostly in Portuguese (a third is of 1988 and
later), minutes of parliament in German, and of many kinds in Korean. The German
treebank has 10,600 words; the Hungarian one is for measuring only; the French names are
from newspapers with errors of OCR, and the German ones from court decisions. Words are
the treebank's; encoders are those of the other experiments, trained until 2,000 updates
bring nothing. An hour of a biLM is of 4.0 (French, Portuguese), 4.1 (Korean), 5.2
(Russian) and 5.4 million tokens (German, Hungarian) in batches of 32 rows, as much as a
core without AVX-512 reads; the Russian one was made in 32 minutes of one with AMX, the
German and the Hungarian one in 33 or 34 of an EPYC with bfloat16. Ten minutes read a
sixth of an hour's tokens, four hours four times as many, on a core with AMX; all have
today's recipe. spacy pretrain learns to predict characters (PretrainCharacters), and
read some 25 million words in its hour of one core with AMX (Korean, Russian; 23 in
Portuguese), and 19 (German, French) or 17 (Hungarian) of one of an EPYC. What was kept
is from the end of the last whole epoch, up to 4 million words before; in Portuguese,
from the end of the hour.
"""


def plan() -> Dict[str, Any]:
    tasks = {
        f"{name}_{code}": {
            "cfg": cfg,
            "data": f"{folder}_{code}",
            # Rules and blanks: the words are given, and no package is needed.
            "set": {"nlp.lang": code, "nlp.tokenizer": {"@tokenizers": RULES}},
            "scores": {key: f"{language}, {what}" for key, what in scores.items()},
        }
        for code, language in LANGUAGES.items()
        for name, (cfg, folder, scores) in TASKS.items()
    }
    return {
        "title": "Your own language in an hour",
        "description": DESCRIPTION.strip(),
        "seeds": [0, 1, 2],
        "plot": "minutes",
        "tasks": tasks,
        "arms": {name: of_each_language(arm, tasks) for name, arm in ARMS.items()},
    }


def of_each_language(arm: Dict[str, Any], tasks: Dict[str, Any]) -> Dict[str, Any]:
    """An arm whose files are those of the task's language."""
    mine = {key: value for key, value in arm.items() if key in FILES}
    others = {key: value for key, value in arm.items() if key not in FILES}
    if not mine:
        return others
    paths = {
        task: {key: f"languages/{task[-2:]}/{value}" for key, value in mine.items()}
        for task in tasks
    }
    return {**others, "tasks": paths}


if __name__ == "__main__":
    srsly.write_yaml(sys.argv[1], plan())
