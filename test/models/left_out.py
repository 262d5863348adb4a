"""A perceptron training with skipped steps, frozen parameters, or a longer schedule after a resume: its data,
and PyTorch's results.

usage: left_out.py > left_out.json      (with torch installed)

Samples of step 1 contain NaN, those of step 3 give a finite loss whose gradient norm overflows f32, and those of
step 6 have no counted label. The results are in float64; test/python/test_left_out.py reads them."""

import json

import numpy as np

BATCH, STEPS, IN, HIDDEN, OUT = 12, 8, 6, 10, 5
NAN_STEP, HUGE_STEP, UNLABELLED_STEP = 1, 3, 6
RATES = {"sgd": 0.1, "adamw": 0.02}
FROZEN_STEPS, ALL_STEPS = 20, 26  # of the run that unfreezes w1 and b1
HORIZON, LONGER = 6, 12           # of the run whose cosine is made longer
WORD = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & WORD
    return x ^ x >> 31


def sample(number, samples, seed=0):
    """The data row of training sample `number` (docs/manifest.md, "Samples")."""
    epoch, index = divmod(number, samples)
    key, bits = mix(mix(seed) ^ epoch), 1
    while 1 << 2 * bits < samples:
        bits += 1
    mask = (1 << bits) - 1
    while True:
        left, right = index >> bits, index & mask
        for turn in range(4):
            left, right = right, left ^ mix(key ^ mix((right + (turn << 32)) & WORD)) & mask
        index = left << bits | right
        if index < samples:
            return index


def rows(step, samples):
    """The samples of a step; steps count from 1."""
    return [sample((step - 1) * BATCH + i, samples) for i in range(BATCH)]


def weights():
    draw = np.random.default_rng(3)
    shapes = {"w1": (IN, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, OUT), "b2": (OUT,)}
    return {name: (0.4 * draw.normal(size=shape)).astype(np.float32)
            for name, shape in shapes.items()}


def clean(steps):
    """x [n, 6], y [n]: enough samples for the steps without repetition."""
    draw = np.random.default_rng(7)
    x = draw.normal(size=(BATCH * steps, IN)).astype(np.float32)
    return x, (x[:, :OUT] @ draw.normal(size=(OUT, OUT))).argmax(1).astype(np.int64)


def data(steps=STEPS, nan=NAN_STEP, huge=HUGE_STEP, unlabelled=UNLABELLED_STEP):
    x, y = clean(steps)
    if nan:
        x[rows(nan, len(x))[5], 2] = np.nan
    if huge:
        # The largest logit differs from the label's, so the loss is large, and so is its gradient times x.
        row = rows(huge, len(x))[4]
        x[row] = 1e22
        logits = (np.maximum(x[row].astype(float) @ weights()["w1"], 0) @ weights()["w2"])
        y[row] = logits.argmin()
    if unlabelled:
        y[rows(unlabelled, len(x))] = -100
    return x, y


def model(batch):
    """The perceptron in nn IR, for `batch` samples per call."""
    return f"""
func.func @forward(%w1: tensor<{IN}x{HIDDEN}xf32> {{nn.name = "w1", nn.role = #nn.role<parameter>}},
                   %b1: tensor<{HIDDEN}xf32> {{nn.name = "b1", nn.role = #nn.role<parameter>}},
                   %w2: tensor<{HIDDEN}x{OUT}xf32> {{nn.name = "w2", nn.role = #nn.role<parameter>}},
                   %b2: tensor<{OUT}xf32> {{nn.name = "b2", nn.role = #nn.role<parameter>}},
                   %x: tensor<{batch}x{IN}xf32> {{nn.name = "x", nn.role = #nn.role<input>}})
    -> (tensor<{batch}x{OUT}xf32> {{nn.name = "logits", nn.role = #nn.role<output>}}) {{
  %0 = nn.einsum "bi,ih->bh" %x, %w1 : tensor<{batch}x{IN}xf32>, tensor<{IN}x{HIDDEN}xf32> -> tensor<{batch}x{HIDDEN}xf32>
  %1 = nn.broadcast %b1 dims = [1] : tensor<{HIDDEN}xf32> -> tensor<{batch}x{HIDDEN}xf32>
  %2 = arith.addf %0, %1 : tensor<{batch}x{HIDDEN}xf32>
  %zero = arith.constant dense<0.0> : tensor<{batch}x{HIDDEN}xf32>
  %3 = arith.maximumf %2, %zero : tensor<{batch}x{HIDDEN}xf32>
  %4 = nn.einsum "bh,hc->bc" %3, %w2 : tensor<{batch}x{HIDDEN}xf32>, tensor<{HIDDEN}x{OUT}xf32> -> tensor<{batch}x{OUT}xf32>
  %5 = nn.broadcast %b2 dims = [1] : tensor<{OUT}xf32> -> tensor<{batch}x{OUT}xf32>
  %6 = arith.addf %4, %5 : tensor<{batch}x{OUT}xf32>
  return %6 : tensor<{batch}x{OUT}xf32>
}}
"""


def train(optimizer, x, y, steps, skipped=(), frozen_until=0, rate=None, keep=()):
    """Losses (None for a skipped step), and the weights after each step of `keep` and after the last."""
    import torch
    values = {name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
              for name, value in weights().items()}
    late = {"w1", "b1"} if frozen_until else set()
    lr = rate or (lambda step: RATES[optimizer])
    groups = [{"params": [v for v in values.values() if v.dim() > 1], "weight_decay": 0.01},
              {"params": [v for v in values.values() if v.dim() < 2], "weight_decay": 0.0}]
    if optimizer == "adamw":
        update = torch.optim.AdamW(groups, lr=1.0)
    else:
        update = torch.optim.SGD(groups, lr=1.0, momentum=0.9)
    losses, kept = [], {}
    for step in range(1, steps + 1):
        for name in late:
            values[name].requires_grad_(step > frozen_until)
        for group in update.param_groups:
            group["lr"] = lr(step)
        at = rows(step, len(x))
        update.zero_grad(set_to_none=True)
        if step in skipped:
            losses.append(None)
        else:
            hidden = torch.relu(torch.tensor(x[at], dtype=torch.float64) @ values["w1"] + values["b1"])
            loss = torch.nn.functional.cross_entropy(hidden @ values["w2"] + values["b2"],
                                                     torch.tensor(y[at]))
            loss.backward()
            torch.nn.utils.clip_grad_norm_([v for v in values.values() if v.grad is not None], 1.0)
            update.step()
            losses.append(loss.item())
        if step in keep or step == steps:
            kept[step] = {name: value.detach().numpy().ravel().tolist()
                          for name, value in values.items()}
    return {"losses": losses, "weights": kept}


def cosine(optimizer, horizon):
    return lambda step: RATES[optimizer] * 0.5 * (1 + np.cos(np.pi * min(1, (step - 1) / horizon)))


def main():
    x, y = clean(STEPS)
    result = {}
    for optimizer in RATES:
        skipped = (NAN_STEP, HUGE_STEP, UNLABELLED_STEP)
        result[optimizer] = {
            "left_out": train(optimizer, x, y, STEPS, skipped),
            "stopped": train(optimizer, x, y, STEPS, (HUGE_STEP,), keep=[HUGE_STEP - 1]),
            "unfrozen": train(optimizer, *clean(ALL_STEPS), ALL_STEPS, frozen_until=FROZEN_STEPS),
            "longer": train(optimizer, *clean(LONGER), LONGER,
                            rate=lambda step: cosine(optimizer, HORIZON if step <= HORIZON // 2
                                                     else LONGER)(step)),
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
