#!/usr/bin/env python3
"""Times the programs of a folder that test/gpu/prepare.py wrote beside PyTorch, one after
the other on this machine's device, and compares their losses.

    compare.py BIN FOLDER [--steps N]

BIN has cleave-device-bench. Prints a table; exit code 1 where losses differ by more than
one percent, 3 where something did not run. "no cuDNN" are the milliseconds of the same
with attention by the runtime's own kernels.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def measure(command, **env):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=240, env={**os.environ, **env})
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    worst = 0
    print(f"{'model':16} {'cleave':>9} {'no cuDNN':>9} {'torch':>9} {'ratio':>6} {'GiB':>6} {'torch':>6} "
          f"{'ratio':>6} {'loss':>8}   ms a step, memory, largest difference of a loss")
    for folder in sorted((args.folder / "bench").iterdir()):
        about = json.loads((folder / "bench.json").read_text())
        sizes = [word for key, value in about["sizes"].items() for word in (f"--{key}", value)]
        count = min(args.steps, about["steps"])
        try:
            command = [args.bin / "cleave-device-bench", folder, "--vocabulary",
                       about["sizes"]["vocab"], "--warmup", 5, "--steps"]
            ours = measure([*command, count])
            plain = measure([*command, min(count, 20)], CLEAVE_CUDA_NO_CUDNN="1")
            theirs = measure([sys.executable, HERE / "reference.py", about["family"], *sizes,
                              "--steps", count, "--warmup", 5])
        except (RuntimeError, subprocess.TimeoutExpired, ValueError) as error:
            print(f"{folder.name:16} FAILED: {error}")
            worst = 3
            continue
        apart = max(abs(a - b) / abs(b) for a, b in zip(ours["losses"], theirs["losses"]))
        if not apart <= 0.01:
            worst = max(worst, 1)
        gib, other = ours["peak_bytes"] / 2**30, theirs["peak_bytes"] / 2**30
        print(f"{folder.name:16} {ours['ms']:9.2f} {plain['ms']:9.2f} {theirs['ms']:9.2f} "
              f"{ours['ms'] / theirs['ms']:6.2f} {gib:6.2f} {other:6.2f} {gib / other:6.2f} "
              f"{apart:8.4f}   {'pass' if apart <= 0.01 else 'FAIL: losses differ'}", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main())
