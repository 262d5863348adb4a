"""Random training jobs with skipped steps and resumes with other settings, and their results as
computed by NumPy in float64.

A job is a list of segments: each is a run that resumes from a checkpoint of the previous segment. Samples that make a
step fail are chosen while the reference trains, because a gradient's overflow depends on that step's weights."""

import dataclasses

import numpy as np

import support  # extends sys.path
import left_out
from left_out import BATCH, HIDDEN, IN, OUT

SHAPES = {"w1": (IN, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, OUT), "b2": (OUT,)}
IGNORED = -100
LAYOUTS = [([], 1), ([], 3), ([], 4),
           (["mesh.data=2"], 1), (["mesh.data=2", "parallel.data.zero=1"], 2),
           (["mesh.data=2", "parallel.data.zero=2"], 3), (["mesh.data=2", "parallel.data.zero=3"], 1),
           (["mesh.data=3", "parallel.data.zero=3"], 2), (["mesh.tensor=2"], 2),
           (["mesh.data=2", "mesh.tensor=2", "parallel.data.zero=1"], 1),
           (["mesh.pipeline=2"], 3), (["mesh.pipeline=2", "mesh.data=2"], 2)]
FROZEN = [[], [], ["b1"], ["w1", "b1"], ["w2"], ["b2"]]


@dataclasses.dataclass
class Segment:
    first: int  # the segment resumes from the checkpoint of the step before it
    last: int   # the last step of the segment that the job uses
    runs_to: int  # steps beyond `last` are discarded
    layout: list
    parts: int
    frozen: list
    lr: float
    clip: float
    horizon: int
    stops: bool = False  # stops at the step after `last`, which is not finite


@dataclasses.dataclass
class Job:
    optimizer: str
    schedule: str
    warmup: int
    min_lr: float
    decay: float
    momentum: float
    betas: tuple
    segments: list
    spoiled: dict  # step -> "nan", "huge" or "unlabelled"
    weights: dict = None
    data: tuple = None
    losses: list = dataclasses.field(default_factory=list)  # None: the step is skipped
    kept: dict = dataclasses.field(default_factory=dict)    # weights after the last step of each segment
    counts: dict = dataclasses.field(default_factory=dict)  # number of updates of each trained parameter

    def rate(self, segment, step):
        done = step - 1
        if done < self.warmup:
            return segment.lr * (done + 1) / self.warmup
        if self.schedule == "constant":
            return segment.lr
        share = min(1, (done - self.warmup) / max(1, segment.horizon - self.warmup))
        fade = 1 - share if self.schedule == "linear" else 0.5 * (1 + np.cos(np.pi * share))
        return self.min_lr + (segment.lr - self.min_lr) * fade


def pick(draw, cases):
    return cases[draw.integers(len(cases))]


def generate(seed):
    draw = np.random.default_rng(seed)
    optimizer = "adamw" if seed % 2 else "sgd"
    base = {"sgd": 0.1, "adamw": 0.02}[optimizer]
    steps = int(draw.integers(5, 13))
    schedule = pick(draw, ["constant", "linear", "cosine", "cosine"])
    kinds = pick(draw, [["nan", "huge", "unlabelled"], ["nan", "huge"], ["unlabelled"]])
    spoiled = {step: pick(draw, kinds) for step in range(1, steps + 1) if draw.random() < 0.3}
    job = Job(optimizer, schedule, int(draw.integers(0, 4)), pick(draw, [0.0, 0.001]), pick(draw, [0.0, 0.01, 0.1]),
              pick(draw, [0.9, 0.5, 0.0]), pick(draw, [(0.9, 0.999), (0.8, 0.95)]), [], spoiled)
    job.segments = segments(draw, steps, base, job)
    most = max(segment.runs_to for segment in job.segments)
    job.weights = {name: (0.4 * draw.normal(size=shape)).astype(np.float32) for name, shape in SHAPES.items()}
    x = draw.normal(size=(BATCH * most, IN)).astype(np.float32)
    y = (x[:, :OUT] @ draw.normal(size=(OUT, OUT))).argmax(1).astype(np.int64)
    y[draw.random(len(y)) < pick(draw, [0, 0.2, 0.6])] = IGNORED
    job.data = x, y
    train(job)
    return job


def segments(draw, steps, base, job):
    cuts = sorted({int(cut) for cut in draw.integers(1, steps, int(draw.integers(1, 4)))})
    found, frozen, lr, clip = [], pick(draw, FROZEN), base, pick(draw, [0.0, 0.3, 1.0])
    horizon = steps if job.schedule != "constant" and draw.random() < 0.5 else steps + 3
    layout = pick(draw, LAYOUTS)
    for first, last in zip([1] + [cut + 1 for cut in cuts], cuts + [steps]):
        if found:
            layout = pick(draw, LAYOUTS) if draw.random() < 0.6 else layout
            frozen = pick(draw, FROZEN) if draw.random() < 0.5 else frozen
            lr = lr * pick(draw, [0.5, 2.0]) if draw.random() < 0.2 else lr
            clip = pick(draw, [0.3, 1.0]) if draw.random() < 0.2 else clip
            horizon += int(draw.integers(1, 5)) if draw.random() < 0.4 else 0
        runs_to = min(last + int(draw.integers(0, 2)), horizon) if last < steps else last
        found.append(Segment(first, last, runs_to, *layout, frozen, lr, clip, horizon))
    # A run that does not skip steps stops before the first that is not finite.
    bad = [step for step, kind in job.spoiled.items() if kind != "unlabelled"]
    if any(step > 1 for step in bad) and draw.random() < 0.4 and min(bad) > 1:
        found = stopped(found, min(bad))
    return found


def stopped(found, bad):
    """Splits the segment at step `bad`; the steps before it must be finite."""
    out = []
    for segment in found:
        if segment.first < bad <= segment.last:
            out.append(dataclasses.replace(segment, last=bad - 1, runs_to=segment.last, stops=True))
            out.append(dataclasses.replace(segment, first=bad))
        else:
            out.append(segment)
    return out


def gradients(weights, x, y):
    """The mean loss over the counted labels, and its gradients."""
    with np.errstate(all="ignore"):
        before = x @ weights["w1"] + weights["b1"]
        hidden = np.maximum(before, 0)
        logits = hidden @ weights["w2"] + weights["b2"]
        logits = logits - logits.max(1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        counted = np.flatnonzero(y != IGNORED)
        loss = -logs[counted, y[counted]].sum() / len(counted)
        error = np.zeros_like(logs)
        error[counted] = np.exp(logs[counted])
        error[counted, y[counted]] -= 1
        error /= len(counted)
        back = (error @ weights["w2"].T) * (before > 0)
        return loss, {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}


def plant(job, step, weights, frozen):
    """Changes the samples of a step so that it fails. Returns whether the step is skipped."""
    x, y = job.data
    rows = left_out.rows(step, len(x))
    kind = job.spoiled.get(step)
    if kind == "huge" and {"w1", "w2"} <= set(frozen):
        kind = "nan"  # no remaining gradient is proportional to the data
    if kind == "unlabelled":
        y[rows] = IGNORED
    elif kind is None:
        y[rows[0]] = max(y[rows[0]], 0)  # at least one label counts
    else:
        row = rows[step % BATCH]
        y[row] = max(y[row], 0)
        x[row] = 1e22 if kind == "huge" else np.nan
        if kind == "huge":
            hidden = np.maximum(x[row].astype(float) @ weights["w1"], 0)
            y[row] = (hidden @ weights["w2"]).argmin()
            found = gradients(weights, x[rows].astype(float), y[rows])[1]
            if not max(abs(g).max() for name, g in found.items() if name not in frozen) > 1e20:
                x[row] = np.nan
    return kind


def train(job):
    weights = {name: value.astype(np.float64) for name, value in job.weights.items()}
    state = {}
    x, y = job.data
    for segment in job.segments:
        # A checkpoint has no optimizer state for frozen parameters.
        state = {name: state.get(name, [0, 0, 0]) for name in SHAPES if name not in segment.frozen}
        for step in range(segment.first, segment.last + 1):
            kind = plant(job, step, weights, segment.frozen)
            if kind:
                job.losses.append(None)
                continue
            rows = left_out.rows(step, len(x))
            loss, found = gradients(weights, x[rows].astype(float), y[rows])
            job.losses.append(loss)
            update(job, segment, weights, state, {name: found[name] for name in state}, job.rate(segment, step))
        job.kept[segment.last] = {name: value.copy() for name, value in weights.items()}
        job.counts[segment.last] = {name: entry[0] for name, entry in state.items()}


def update(job, segment, weights, state, found, rate):
    norm = np.sqrt(sum((g ** 2).sum() for g in found.values()))
    scale = min(1, segment.clip / (norm + 1e-6)) if segment.clip else 1
    for name, g in found.items():
        fade = job.decay if weights[name].ndim > 1 else 0
        state[name] = entry = list(state[name])
        g = g * scale
        entry[0] += 1
        if job.optimizer == "sgd":
            entry[1] = job.momentum * entry[1] + g + fade * weights[name]
            weights[name] = weights[name] - rate * entry[1]
            continue
        first, second = job.betas
        entry[1] = first * entry[1] + (1 - first) * g
        entry[2] = second * entry[2] + (1 - second) * g * g
        weights[name] = weights[name] * (1 - rate * fade) - rate * entry[1] / (1 - first ** entry[0]) / (
            np.sqrt(entry[2] / (1 - second ** entry[0])) + 1e-4)
