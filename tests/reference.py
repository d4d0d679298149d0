"""The biLM of "Deep contextualized word representations" (Peters et al., NAACL
2018, sections 3.1 and 3.4) in plain NumPy: float64, one word and one time step
after the other. It follows bilm-tf, the paper's own code, and reads the official
HDF5 names and shapes. It is there to be compared with: clarity before speed.
`options` is the dict of an options.json, `arrays` maps a dataset's name to its
values, and a sentence is a list of words."""

import json
from pathlib import Path

import h5py
import numpy as np

BOS, EOS, BEGIN_WORD, END_WORD, PAD = 256, 257, 258, 259, 260
BOUNDARY = {"<S>": BOS, "</S>": EOS}


def cell_name(direction, layer):
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"


def official_shapes(options):
    """The name and shape of every dataset of the official layout."""
    lstm, cnn = options["lstm"], options["char_cnn"]
    dim, width, d = lstm["dim"], lstm["projection_dim"], cnn["embedding"]["dim"]
    n_filters = sum(n for _, n in cnn["filters"])
    shapes = {"char_embed": (261, d)}  # whether n_characters says 261 or 262
    for i, (w, n) in enumerate(cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{i}": (1, w, d, n), f"CNN/b_cnn_{i}": (n,)}
    for k in range(cnn.get("n_highway") or 0):
        for gate in ("carry", "transform"):
            shapes[f"CNN_high_{k}/W_{gate}"] = (n_filters, n_filters)
            shapes[f"CNN_high_{k}/b_{gate}"] = (n_filters,)
    if n_filters != width:
        shapes |= {"CNN_proj/W_proj": (n_filters, width), "CNN_proj/b_proj": (width,)}
    for direction in (0, 1):
        for layer in range(lstm["n_layers"]):
            cell = cell_name(direction, layer)
            shapes[f"{cell}/W_0"] = (width + width, 4 * dim)  # rows: input, then h
            shapes[f"{cell}/B"] = (4 * dim,)
            if dim != width:
                shapes[f"{cell}/W_P_0"] = (dim, width)
    return shapes


def random_weights(options, seed=0, scale=3.0):
    """float32 values. `scale` is the gain of the LSTM's projection: at 3 its clip
    bites as often as not, and float32 still agrees with float64 within 1e-5."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in official_shapes(options).items():
        fan_in = np.prod(shape[:-1]) if name != "char_embed" else 1
        gain = scale if name.endswith("W_P_0") else 1.0 if len(shape) > 1 else 0.5
        values = rng.standard_normal(shape) * gain / np.sqrt(fan_in)
        arrays[name] = values.astype("float32")
    return arrays


def write_weights(directory, options, arrays, dtype="float32"):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "options.json").write_text(json.dumps(options), encoding="utf8")
    with h5py.File(directory / "weights.hdf5", "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values.astype(dtype))
    return directory


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def clip(x, bound):
    return np.clip(x, -bound, bound) if bound else x


def character_ids(word, max_characters):
    inner = [BOUNDARY[word]] if word in BOUNDARY else word.encode("utf8", "ignore")
    ids = [BEGIN_WORD, *inner[: max_characters - 2], END_WORD]
    return ids + [PAD] * (max_characters - len(ids))


def token_vector(options, arrays, word):
    """x_k, the context-insensitive token: (projection_dim,)."""
    cnn = options["char_cnn"]
    ids = character_ids(word, cnn["max_characters_per_token"])
    chars = arrays["char_embed"][ids]
    activation = {"relu": lambda v: np.maximum(v, 0), "tanh": np.tanh}
    parts = []
    for i, (w, n) in enumerate(cnn["filters"]):
        W, b = arrays[f"CNN/W_cnn_{i}"].reshape(-1, n), arrays[f"CNN/b_cnn_{i}"]
        windows = [chars[t : t + w].ravel() for t in range(len(ids) - w + 1)]
        pooled = np.max(np.stack(windows) @ W + b, axis=0)  # padding takes part
        parts.append(activation[cnn["activation"]](pooled))
    x = np.concatenate(parts)
    for k in range(cnn.get("n_highway") or 0):
        names = ("W_carry", "b_carry", "W_transform", "b_transform")
        W_g, b_g, W_t, b_t = (arrays[f"CNN_high_{k}/{name}"] for name in names)
        g = sigmoid(x @ W_g + b_g)
        x = g * np.maximum(x @ W_t + b_t, 0) + (1 - g) * x
    if "CNN_proj/W_proj" in arrays:
        x = x @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"]
    return x


def int8_product(x, W):
    """x and each column of W are rounded to 127 and 63 levels of each sign."""
    x_scale = np.abs(x).max() / 127
    w_scales = np.abs(W).max(axis=0) / 63
    return np.rint(x / x_scale) @ np.rint(W / w_scales) * x_scale * w_scales


def lstm_layer(options, arrays, cell, xs, c, h, product=np.matmul):
    """xs (n_steps, projection_dim) -> the outputs, and the last c and h."""
    lstm = options["lstm"]
    W, b, W_P = (arrays.get(f"{cell}/{name}") for name in ("W_0", "B", "W_P_0"))
    outputs = []
    for x in xs:
        i, j, f, o = np.split(product(np.concatenate([x, h]), W) + b, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)  # + 1: TF's forget_bias
        c = clip(c, lstm.get("cell_clip"))
        h = sigmoid(o) * np.tanh(c)
        if W_P is not None:
            h = clip(product(h, W_P), lstm.get("proj_clip"))
        outputs.append(h)
    return np.stack(outputs), c, h


def reference_encode(options, arrays, sentences, state=None):
    """One (n_words, L+1, 2*projection_dim) per sentence, and the state: for each
    row a dict from (direction, layer) to (c, h)."""
    lstm = options["lstm"]
    arrays = {name: values.astype("float64") for name, values in arrays.items()}
    zeros = np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])
    tokens = {"<S>", "</S>"}.union(*sentences)
    tokens = {word: token_vector(options, arrays, word) for word in tokens}
    layers, new_state = [], []
    for row, words in enumerate(sentences):
        x = np.stack([tokens[word] for word in ["<S>", *words, "</S>"]])
        both, last = [], {}
        for direction in (0, 1):
            order = slice(None, None, -1 if direction else 1)
            steps, outputs = x[order], [x]
            for layer in range(lstm["n_layers"]):
                key = direction, layer
                c, h = state[row][key] if state else zeros
                out, c, h = lstm_layer(options, arrays, cell_name(*key), steps, c, h)
                last[key] = c, h
                # The residual joins outside of the recurrence: h stays without it
                residual = layer > 0 and lstm.get("use_skip_connections")
                steps = out + steps if residual else out
                outputs.append(steps[order])
            both.append(np.stack(outputs, axis=1))
        layers.append(np.concatenate(both, axis=-1)[1:-1])
        new_state.append(last)
    return layers, new_state
