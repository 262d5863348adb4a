#!/usr/bin/env python3
"""Times the programs of a folder that test/gpu/prepare.py wrote beside PyTorch, one after
the other on this machine's device, and compares their losses.

    compare.py BIN FOLDER [--steps N] [--only TEXT]

BIN has cleave-device-bench. Prints a table; exit code 1 where losses differ by more than
one percent, 3 where something did not run; what did is printed all the same. "no cuDNN"
are the milliseconds of the same with attention by the runtime's own kernels. A second table
tells what families of commands take, summed over a step in which each is timed for itself:
bytes of operands and results as a share of what the driver's copy moves, operations as a share
of what a large product reaches.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

# Families whose limit are the matrix units.
PRODUCTS = ("gemm", "grouped_gemm", "attention", "convolution")
HERE = pathlib.Path(__file__).resolve().parent


def measure(command, **env):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=420, env={**os.environ, **env})
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def profile_table(name, ours, ceilings):
    """Lines about the families of a model, the slowest first; those of little time together."""
    families = sorted(ours["families"].items(), key=lambda item: -item[1]["ms"])
    total = sum(family["ms"] for _, family in families)
    shown = [item for item in families if item[1]["ms"] >= 0.01 * total]
    rest = [family for _, family in families[len(shown):]]
    if rest:
        shown.append(("(others)", {key: sum(family[key] for family in rest) for key in rest[0]}))
    lines = [f"{name + ', by family':40} {'launches':>8} {'ms':>9} {'share':>6} {'GB/s':>7} "
             f"{'of copy':>7} {'TFLOP/s':>8} {'of most':>7}"]
    for called, family in shown:
        seconds = family["ms"] / 1e3
        line = f"{called:40.40} {family['launches']:8g} {family['ms']:9.3f} {family['ms'] / total:6.1%} "
        if seconds > 0 and family["bytes"]:
            rate = family["bytes"] / seconds / 1e9
            line += f"{rate:7.0f} {rate / ceilings['copy_gb_per_s']:7.1%} "
        else:
            line += " " * 16
        if seconds > 0 and called in PRODUCTS:
            rate = family["flops"] / seconds / 1e12
            line += f"{rate:8.1f} {rate / ceilings['bf16_tflop_per_s']:7.1%}"
        lines.append(line.rstrip())
    return lines + [f"{'(all)':40} {sum(f['launches'] for _, f in families):8g} {total:9.3f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", default="", help="models whose names contain it")
    args = parser.parse_args()
    worst = 0
    tables = []
    try:
        ceilings = measure([args.bin / "cleave-gpu-kernels", "--ceilings"])
    except (RuntimeError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        print(f"no ceilings to compare families with: {error}")
        ceilings, worst = None, 3
    print(f"{'model':16} {'cleave':>9} {'no cuDNN':>9} {'torch':>9} {'ratio':>6} {'GiB':>6} {'torch':>6} "
          f"{'ratio':>6} {'loss':>8}   ms a step, memory, largest difference of a loss")
    for folder in sorted((args.folder / "bench").iterdir()):
        if args.only not in folder.name:
            continue
        about = json.loads((folder / "bench.json").read_text())
        sizes = [word for key, value in about["sizes"].items() for word in (f"--{key}", value)]
        count = min(args.steps, about["steps"])
        command = [args.bin / "cleave-device-bench", folder, "--vocabulary",
                   about["sizes"]["vocab"], "--warmup", 5, "--steps"]
        reference = [sys.executable, HERE / "reference.py", about["family"], *sizes,
                     "--steps", count, "--warmup", 5]
        faults = []

        def tried(what, *given, **env):
            try:
                return measure(*given, **env)
            except (RuntimeError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
                faults.append(f"{what}: {error}")
                return {"ms": math.nan, "peak_bytes": math.nan, "losses": []}

        ours = tried("cleave", [*command, count, "--profile", 3])
        plain = tried("cleave without cuDNN", [*command, min(count, 20)], CLEAVE_CUDA_NO_CUDNN="1")
        theirs = tried("torch", reference)
        apart = max((abs(a - b) / abs(b) for a, b in zip(ours["losses"], theirs["losses"])),
                    default=math.nan)
        isClose = apart <= 0.01
        worst = max(worst, 3 if faults else 0 if isClose else 1)
        gib, other = ours["peak_bytes"] / 2**30, theirs["peak_bytes"] / 2**30
        verdict = ("FAILED: " + "; ".join(faults) if faults
                   else "pass" if isClose else "FAIL: losses differ")
        print(f"{folder.name:16} {ours['ms']:9.2f} {plain['ms']:9.2f} {theirs['ms']:9.2f} "
              f"{ours['ms'] / theirs['ms']:6.2f} {gib:6.2f} {other:6.2f} {gib / other:6.2f} "
              f"{apart:8.4f}   {verdict}", flush=True)
        if ceilings and "families" in ours:
            tables += ["", *profile_table(folder.name, ours, ceilings)]
    if tables:
        print("\n".join(tables))
    return worst


if __name__ == "__main__":
    sys.exit(main())
