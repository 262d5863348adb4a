"""LSTM, GRU and RNN in NumPy, in float64, by the formulas of the ONNX operator specification: the
reference of test_recurrent.py."""

import numpy as np

FUNCTIONS = {
    "Affine": lambda x, a, b: a * x + b,
    "Elu": lambda x, a, b: np.where(x > 0, x, a * (np.exp(np.minimum(x, 0)) - 1)),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "LeakyRelu": lambda x, a, b: np.where(x > 0, x, a * x),
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Softplus": lambda x, a, b: np.logaddexp(0, x),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Tanh": lambda x, a, b: np.tanh(x),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0),
}
# The defaults of alpha and beta; None for a parameter that a function does not have.
PARAMETERS = {"Affine": (1, 0), "Elu": (1, None), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01, None),
              "ScaledTanh": (1, 1), "ThresholdedRelu": (1, None)}
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


def functions_of(kind, directions, attributes):
    """For each direction its activation functions, with their parameters."""
    names = attributes.get("activations") or DEFAULTS[kind] * directions
    alphas, betas = (list(attributes.get(f"activation_{which}", [])) for which in ("alpha", "beta"))

    def parameter(name, index, given):
        default = PARAMETERS.get(name, (None, None))[index]
        return default if default is None or not given else given.pop(0)

    found = []
    for name in names:
        a, b = parameter(name, 0, alphas), parameter(name, 1, betas)
        found.append(lambda x, name=name, a=a, b=b: FUNCTIONS[name](x, a, b))
    each = len(DEFAULTS[kind])
    return [found[direction * each:(direction + 1) * each] for direction in range(directions)]


def step(kind, f, clip, attributes, x, states, r, b, p):
    """The new states. x [B, G * H] has the products of the input and their bias; b is the bias of the state."""
    h = states[0]
    hidden = h.shape[1]

    def clipped(value):
        return np.clip(value, -clip, clip) if clip else value

    def part(value, gate):
        return value[..., gate * hidden:(gate + 1) * hidden]

    if kind == "RNN":
        return [f[0](clipped(x + h @ r.T + b))]
    if kind == "LSTM":
        all_gates, c = x + h @ r.T + b, states[1]
        i = f[0](clipped(part(all_gates, 0) + part(p, 0) * c))
        forget = 1 - i if attributes.get("input_forget") else f[0](clipped(part(all_gates, 2) + part(p, 2) * c))
        c = forget * c + i * f[1](clipped(part(all_gates, 3)))
        o = f[0](clipped(part(all_gates, 1) + part(p, 1) * c))
        return [o * f[2](c), c]
    z, reset = (f[0](clipped(part(x, g) + h @ r[g * hidden:(g + 1) * hidden].T + part(b, g))) for g in (0, 1))
    if attributes.get("linear_before_reset"):
        candidate = reset * (h @ r[2 * hidden:].T + part(b, 2))
    else:
        candidate = (reset * h) @ r[2 * hidden:].T + part(b, 2)
    candidate = f[1](clipped(part(x, 2) + candidate))
    return [(1 - z) * candidate + z * h]


def layer(kind, attributes, x, w, r, b=None, lengths=None, states=(), p=None):
    """Y [T, D, B, H] and the last states [D, B, H], for x [T, B, I]; `states` are the initial ones."""
    steps, samples = x.shape[:2]
    directions, rows, hidden = r.shape
    b = np.zeros((directions, 2 * rows)) if b is None else b
    p = np.zeros((directions, 3 * hidden)) if p is None else p
    lengths = np.full(samples, steps) if lengths is None else lengths
    names = functions_of(kind, directions, attributes)
    number = 2 if kind == "LSTM" else 1
    outputs = np.zeros((steps, directions, samples, hidden))
    last = np.zeros((number, directions, samples, hidden))
    for direction in range(directions):
        reverse = attributes.get("direction") == "reverse" or direction == 1
        now = [states[i][direction] if i < len(states) and states[i] is not None else np.zeros((samples, hidden))
               for i in range(number)]
        for t in reversed(range(steps)) if reverse else range(steps):
            projected = x[t] @ w[direction].T + b[direction, :rows]
            new = step(kind, names[direction], attributes.get("clip", 0), attributes, projected, now, r[direction],
                       b[direction, rows:], p[direction])
            inside = (t < lengths)[:, None]
            outputs[t, direction] = np.where(inside, new[0], 0)
            now = [np.where(inside, value, old) for value, old in zip(new, now)]
        last[:, direction] = now
    return [outputs, *last]
