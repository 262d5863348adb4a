"""The rows of tools/bench for single layers that are not transformers: a step (forward, backward, SGD) of cleave beside
PyTorch's, on the same arrays."""

import json
import pathlib
import statistics
import subprocess
import tempfile

WARMUP = 3  # steps that are not counted

# The layers, as PyTorch modules, and the shapes of their inputs and targets without the batch.
LAYERS = {
    "lstm": {"module": "Lstm(512)", "batch": 32, "input": [64, 512], "target": [64, 512]},
}

# Runs in the peers' Python. Arguments: the layer as JSON, the folder, steps, threads, "export", "torch" or "compile".
PEER = r"""
import json, sys, time
import numpy as np, torch
layer, folder, steps, threads, mode = json.loads(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]), sys.argv[5]
torch.set_num_threads(threads)
torch.manual_seed(0)

class Lstm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layer = torch.nn.LSTM(size, size, batch_first=True)
    def forward(self, x):
        return self.layer(x)[0]

model = eval(layer["module"])
if mode == "export":
    rng = np.random.default_rng(0)
    x, t = (rng.normal(size=[layer["batch"], *layer[of]]).astype(np.float32) for of in ("input", "target"))
    np.savez(folder + "/data.npz", x=x, t=t)
    torch.onnx.export(model, (torch.tensor(x),), folder + "/model.onnx", input_names=["x"], output_names=["y"],
                      opset_version=17, dynamo=False, dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    sys.exit()
with np.load(folder + "/data.npz") as data:
    x, t = torch.tensor(data["x"]), torch.tensor(data["t"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = torch.compile(model) if mode == "compile" else model
times = []
for _ in range(steps + WARMUP):
    start = time.perf_counter()
    optimizer.zero_grad()
    loss = ((run(x) - t) ** 2).mean()
    loss.backward()
    optimizer.step()
    loss.item()
    times.append(1e3 * (time.perf_counter() - start))
print(json.dumps(sorted(times[WARMUP:])[steps // 2]))
""".replace("WARMUP", str(WARMUP))


def time_torch(python, layer, folder, steps, threads, mode):
    """Milliseconds of a step; None if this PyTorch cannot run it."""
    done = subprocess.run([python, "-W", "ignore", "-c", PEER, json.dumps(layer), folder, str(steps), str(threads),
                           mode], capture_output=True, text=True)
    if done.returncode:
        print(f"tools/bench: note: torch ({mode}) ended with {done.returncode}: "
              f"{done.stderr.strip().splitlines()[-1:]}", flush=True)
        return None
    return None if mode == "export" else json.loads(done.stdout.splitlines()[-1])


def time_cleave(cleave, layer, folder, steps, threads):
    """Milliseconds of a step, and the largest arenas of a rank."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        keys = {"train.loss": "mse", "data.labels": "t", "train.optimizer": "sgd", "train.lr": 0.01, "train.momentum": 0,
                "train.weight_decay": 0, "train.clip_norm": 0, "train.schedule": "constant", "data.validation": 0,
                "dims.batch": layer["batch"], "target.threads_per_rank": threads}
        subprocess.run([cleave, "train", f"{folder}/model.onnx", *(f"--set={key}={keys[key]}" for key in keys), "--data",
                        f"{folder}/data.npz", "--steps", str(steps + WARMUP), "--out", f"{run}/run"], check=True,
                       capture_output=True, text=True)
        lines = [json.loads(line) for line in open(f"{run}/run/log.jsonl")]
    lines = [line for line in lines if "step_ms" in line][WARMUP:]
    return statistics.median(line["step_ms"] for line in lines), lines[-1]["peak_bytes"]


def measure_layers(cleave, python, names, rounds, steps, threads):
    """The rows of the layers `names`."""
    rows = []
    for name in names:
        layer = LAYERS[name]
        ours, peers, peak = [], {"torch": [], "compile": []}, 0
        with tempfile.TemporaryDirectory() as folder:
            time_torch(python, layer, folder, steps, threads, "export")
            for _ in range(rounds):
                ms, peak = time_cleave(cleave, layer, folder, steps, threads)
                ours.append(ms)
                for mode, times in peers.items():
                    found = time_torch(python, layer, folder, steps, threads, mode)
                    times += [found] if found else []
        medians = {mode: statistics.median(times) for mode, times in peers.items() if times}
        for mode, peer_ms in medians.items():
            ms = statistics.median(ours)
            rows.append({"model": name, "precision": "fp32", "ranks": 1, "ms": ms, "peer": f"torch {mode}".strip(),
                         "peer_ms": peer_ms, "ratio_to_best_peer": ms / min(medians.values()), "peak_bytes": peak})
    return rows
