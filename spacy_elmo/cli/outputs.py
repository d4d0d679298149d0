"""What several commands print: a biLM, perplexities."""

from typing import TYPE_CHECKING, Any, Dict

from wasabi import msg

if TYPE_CHECKING:
    from ..bilm import BiLM
    from ..pretraining.evaluation import Perplexity


def describe(bilm: "BiLM", meta: Dict[str, Any]) -> Dict[str, str]:
    """Rows of a table about a biLM and its meta.json."""
    options, lstm, char_cnn = bilm.options, bilm.options.lstm, bilm.options.char_cnn
    filters = ", ".join(f"{n} of {width}" for width, n in char_cnn.filters)
    return {
        "Layers": f"{options.n_layers} of width {options.width}, the token layer "
        "included",
        "LSTM": f"{lstm.n_layers} x {lstm.dim}/{lstm.projection_dim}",
        "Character CNN": f"{filters} ({char_cnn.activation})",
        "Longest word": f"{char_cnn.max_characters_per_token - 2} bytes of UTF-8",
        "Highway layers": f"{char_cnn.n_highway}",
        "Parameters": f"{bilm.n_parameters:,}",
        "Version": meta.get("version") or "not given",
        "License": meta.get("license") or "not given",
    }


def print_perplexities(found: "Dict[str, Perplexity]") -> None:
    header = ["perplexity", "forward", "backward", "average", "bits/char", "unknown"]
    rows = []
    for name, p in found.items():
        perplexities = [f"{x:.2f}" for x in (p.forward, p.backward, p.average)]
        unknown = f"{p.n_unknown / p.n_tokens:.1%}"
        rows.append([name, *perplexities, f"{p.bits_per_character:.4f}", unknown])
    msg.table(rows, header=header, aligns=tuple("lrrrrr"))
