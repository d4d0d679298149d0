"""What `neighbors` found: as tables, as JSON, as a page."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

import srsly
from wasabi import msg

if TYPE_CHECKING:
    from ..pipeline.nearest import Context, Neighbors

# A text, and its marks as displaCy has them.
Line = Tuple[str, List[Dict[str, Any]]]

QUERY_COLOR, WORD_COLOR, CONTEXT_COLOR = "#feca74", "#ddd", "#9cc9cc"
# Beside the contexts: the score, the gaps between columns.
MARGIN = 20


def print_tables(found: List["Neighbors"], *, layer: str, static: str) -> None:
    """Print a table for each query, the words one below the other."""
    for query, words, contexts in found:
        msg.divider(query.word)
        near = ", ".join(f"{word} {score:.2f}" for score, word in words) or "(none)"
        print(f"Nearest words by {static}:\n\n{near}\n")
        print(f"Nearest contexts by {_layer_name(layer)} of the biLM:")
        rows = [
            ("", query),
            *((f"{score:.3f}", context) for score, context in contexts),
        ]
        side = _side(max(len(context.word) for _, context in rows))
        msg.table(
            [(score, *_in_context(context, side)) for score, context in rows],
            header=("cosine", "", "", ""),
            aligns=("r", "r", "c", "l"),
            fg_colors=(None, None, "yellow", None),
            max_col=max(side, *(len(context.word) for _, context in rows)),
            spacing=2,
        )
        if not contexts:
            msg.warn("There is no such word in the corpus.")


def print_json(found: List["Neighbors"], *, layer: str, static: str) -> None:
    """Print a list with one object for each query."""
    results = [
        {
            "query": _to_dict(query),
            "layer": layer,
            "static": static,
            "words": [{"score": score, "word": word} for score, word in words],
            "contexts": [
                {"score": score, **_to_dict(context)} for score, context in contexts
            ],
        }
        for query, words, contexts in found
    ]
    print(srsly.json_dumps(results, indent=2))


def write_page(
    path: Path, found: List["Neighbors"], *, layer: str, static: str
) -> None:
    """Write a page on which displaCy highlights the words, with their scores."""
    from spacy import displacy
    from spacy.util import escape_html

    from ..storage import replacing

    docs = []
    for query, words, contexts in found:
        lines: List[Line] = [
            _highlight(query, "query", QUERY_COLOR),
            (f"Nearest words by {static}:", []),
            _highlight_words(words),
            (f"Nearest contexts by {_layer_name(layer)} of the biLM:", []),
        ]
        for score, context in contexts:
            lines.append(_highlight(context, f"{score:.3f}", CONTEXT_COLOR))
        docs.append({**_join(lines), "title": escape_html(query.word)})
    page = displacy.render(docs, style="ent", manual=True, page=True, jupyter=False)
    with replacing(path.resolve()) as temporary:
        temporary.write_text(page, encoding="utf8")


def _layer_name(layer: str) -> str:
    names = {"top": "the top layer", "mean": "the mean of the layers"}
    return names.get(layer, f"layer {layer}")


def _side(width_of_word: int) -> int:
    columns = shutil.get_terminal_size((100, 24)).columns
    return max(12, (columns - MARGIN - width_of_word) // 2)


def _in_context(context: "Context", side: int) -> Tuple[str, str, str]:
    """What is before, the word, and what is after, each side cut to a width."""
    before = context.text[: context.start].strip()
    after = context.text[context.end :].strip()
    if len(before) > side:
        before = "..." + before[3 - side :]
    if len(after) > side:
        after = after[: side - 3] + "..."
    return before, context.word, after


def _to_dict(context: "Context") -> Dict[str, Any]:
    return {"word": context.word, **context._asdict()}


def _highlight(context: "Context", label: str, color: str) -> Line:
    place = {"start": context.start, "end": context.end}
    return context.text, [{**place, "label": label, "params": {"bg": color}}]


def _highlight_words(words: List[Tuple[float, str]]) -> Line:
    text, marks = "", []
    for score, word in words:
        place = {"start": len(text), "end": len(text) + len(word)}
        marks.append({**place, "label": f"{score:.2f}", "params": {"bg": WORD_COLOR}})
        text += word + " "
    return text, marks


def _join(lines: List[Line]) -> Dict[str, Any]:
    """One text of many, with their marks: displaCy sets texts far apart."""
    text, ents = "", []
    for line, marks in lines:
        for mark in marks:
            at = {"start": mark["start"] + len(text), "end": mark["end"] + len(text)}
            ents.append({**mark, **at})
        text += line + "\n"
    return {"text": text, "ents": ents}
