#!/usr/bin/env python3
"""Times the programs of a folder that test/gpu/prepare.py wrote beside PyTorch, one after
the other on this machine's device, and compares their losses.

    compare.py BIN FOLDER [--steps N] [--only TEXT] [--seconds N]

BIN has cleave-device-bench. Prints a table with three verdicts a model: losses within one
percent, with cuDNN and without; a step takes at most what PyTorch's takes; so does its memory.
What did run is printed where something else did not. Exit code 0: all of it; 1: losses are
wrong; 2: there is nothing to time; 3: something did not run, or came later than --seconds;
4: losses are right, but time or memory misses the goal. Of several 3, then 1, then 4.
"no cuDNN" are the milliseconds of the same with attention by the runtime's own kernels. A second table
tells what families of commands take, summed over a step in which each is timed for itself:
bytes of operands and results as a share of what the driver's copy moves, operations as a share
of what a large product reaches.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

# Families whose limit are the matrix units.
PRODUCTS = ("gemm", "grouped_gemm", "attention", "convolution")
HERE = pathlib.Path(__file__).resolve().parent
LOSS_LIMIT = 0.01
LIMIT = 420  # seconds of a program
LEAST = 20  # with less left, none is begun


def measure(command, deadline=math.inf, **env):
    left = deadline - time.monotonic()
    if left < LEAST:
        raise RuntimeError("left out, as no time is left")
    most = min(LIMIT, left)
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=most, env={**os.environ, **env})
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"cut off after {most:.0f} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    # What C prints of a number that is none is not JSON.
    line = re.sub(r"(?<=[\[ ])-?(nan|inf)\b", "NaN", done.stdout.strip().splitlines()[-1])
    return json.loads(line)


def difference(losses, others):
    """The largest relative one; infinite where a loss is no number, or one is missing."""
    if not losses or len(losses) != len(others) or not all(map(math.isfinite, [*losses, *others])):
        return math.inf
    return max(0 if a == b else abs(a - b) / abs(b) if b else math.inf
               for a, b in zip(losses, others))


def verdicts(ours, plain, theirs):
    """(losses apart, time ratio, memory ratio, exit code, words). What did not run is None, and
    its verdicts are left out."""
    parts, code = [], 0
    apart = time_ratio = memory_ratio = math.nan
    pairs = []
    if ours and theirs:
        pairs.append(difference(ours["losses"], theirs["losses"]))
    if plain and theirs:  # it does fewer steps
        pairs.append(difference(plain["losses"], theirs["losses"][:len(plain["losses"])]))
    if pairs:
        apart = max(pairs)
        isClose = apart <= LOSS_LIMIT
        code = 0 if isClose else 1
        parts.append(f"losses {'pass' if isClose else 'FAIL'}")
    if ours and theirs:
        time_ratio = ours["ms"] / theirs["ms"] if theirs["ms"] else math.nan
        memory_ratio = ours["peak_bytes"] / theirs["peak_bytes"] if theirs["peak_bytes"] else math.nan
        for what, ratio in (("time", time_ratio), ("memory", memory_ratio)):
            code = code or (0 if ratio <= 1 else 4)
            parts.append(f"{what} {'pass' if ratio <= 1 else 'misses the goal'}")
    return apart, time_ratio, memory_ratio, code, ", ".join(parts)


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
    parser.add_argument("--seconds", type=float, default=math.inf, help="for all of them")
    args = parser.parse_args()
    deadline = time.monotonic() + args.seconds
    folders = sorted(file.parent for file in (args.folder / "bench").glob("*/bench.json")
                     if args.only in file.parent.name)
    if not folders:
        parser.error(f"found no bench.json of a model in {args.folder}/bench; prepare it again")
    codes = {0}
    tables = []
    try:
        ceilings = measure([args.bin / "cleave-gpu-kernels", "--ceilings"], deadline)
    except (OSError, RuntimeError, ValueError, IndexError) as error:
        print(f"no ceilings to compare families with: {error}")
        ceilings = None
        codes.add(3)
    print(f"{'model':16} {'cleave':>9} {'no cuDNN':>9} {'torch':>9} {'ratio':>6} {'GiB':>6} {'torch':>6} "
          f"{'ratio':>6} {'loss':>8}   ms a step, memory, largest difference of a loss")
    for folder in folders:
        if deadline - time.monotonic() < LEAST:
            print(f"{folder.name:16} left out: no time is left", flush=True)
            codes.add(3)
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
                return measure(*given, deadline, **env)
            except (OSError, RuntimeError, ValueError, IndexError) as error:
                faults.append(f"{what}: {error}")
                return None

        ours = tried("cleave", [*command, count, "--profile", 3])
        theirs = tried("torch", reference)
        plain = tried("cleave without cuDNN", [*command, min(count, 20)], CLEAVE_CUDA_NO_CUDNN="1")
        apart, time_ratio, memory_ratio, code, said = verdicts(ours, plain, theirs)
        codes |= {code, 3 if faults else 0}
        said = "; ".join([f"FAILED: {fault}" for fault in faults] + [said] * bool(said))

        def number(of, key, scale=1):
            return of[key] / scale if of else math.nan

        print(f"{folder.name:16} {number(ours, 'ms'):9.2f} {number(plain, 'ms'):9.2f} "
              f"{number(theirs, 'ms'):9.2f} {time_ratio:6.3f} {number(ours, 'peak_bytes', 2**30):6.2f} "
              f"{number(theirs, 'peak_bytes', 2**30):6.2f} {memory_ratio:6.3f} {apart:8.4f}   {said}",
              flush=True)
        if ceilings and ours and "families" in ours:
            tables += ["", *profile_table(folder.name, ours, ceilings)]
    if tables:
        print("\n".join(tables))
    return next(code for code in (3, 1, 4, 0) if code in codes)


if __name__ == "__main__":
    sys.exit(main())
