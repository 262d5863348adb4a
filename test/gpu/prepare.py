#!/usr/bin/python3
"""Writes what test/gpu/run takes to a machine with a device: checks of many
partitioned programs, as `cleave check --record` writes them, and in DIR/bench the
programs that are timed beside PyTorch (their weights are made there).

    test/gpu/prepare.py DIR [--build BUILD] [--only TEXT]... [--checks-only] [--jobs N]
                         [--architectures sm_90,...] [--keep-ptx]

Models are small and their weights come along; programs are compiled for the
architectures named (default: sm_90). Where ptxas is missing they are PTX, which
the driver of any later device compiles; --keep-ptx keeps it beside code. With
CLEAVE_HOST_KERNELS=1 the recorder can run them, too. DIR/rows.txt names all that
DIR is to have, so that what could not be made is missed: a line "FOLDER", or
"FOLDER open: WHY" for what cleave cannot do yet.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT = 60 << 20  # bytes

MEGATRON = 'parallel.sequence=[{kind="megatron",axis="tensor"}]'
RING = 'parallel.sequence=[{kind="ring",axis="ring"}]'
ULYSSES = 'parallel.sequence=[{kind="ulysses",axis="ulysses"}]'
# Name, model, axes, keys.
ROWS = [
    ("one rank", "gpt2", [], []),
    *[(f"data 2, zero {zero}", "gpt2", [("data", 2)], [f"parallel.data.zero={zero}"])
      for zero in range(4)],
    ("data 4, uneven batch", "llama", [("data", 4)], ["dims.batch=6", "parallel.data.zero=3"]),
    ("data 2, 2 microbatches, zero 2", "llama", [("data", 2)],
     ["train.microbatches=2", "parallel.data.zero=2"]),
    ("tensor 2", "gpt2", [("tensor", 2)], []),
    ("tensor 4, megatron sequence", "llama", [("tensor", 4)], [MEGATRON]),
    ("tensor 2d", "gpt2", [("row", 2), ("col", 2)],
     ["parallel.tensor.layout=2d", 'parallel.tensor.axes=["row","col"]']),
    ("tensor 3d", "llama", [("i", 2), ("j", 2), ("k", 2)],
     ["parallel.tensor.layout=3d", 'parallel.tensor.axes=["i","j","k"]']),
    ("data 2, tensor 2, zero 1", "llama", [("data", 2), ("tensor", 2)], ["parallel.data.zero=1"]),
    ("pipeline 2, 1f1b", "gpt2", [("pipeline", 2)],
     ["train.microbatches=4", "parallel.pipeline.schedule=1f1b"]),
    ("pipeline 2, zb-v", "llama", [("pipeline", 2)],
     ["train.microbatches=4", "parallel.pipeline.schedule=zb-v"]),
    ("pipeline 2, data 2, tensor 2", "gpt2", [("pipeline", 2), ("data", 2), ("tensor", 2)],
     ["train.microbatches=2", "parallel.data.zero=1"]),
    ("ring 2", "gpt2", [("ring", 2)], [RING]),
    ("ring 4", "llama", [("ring", 4)], [RING]),
    ("ulysses 2", "llama", [("ulysses", 2)], [ULYSSES]),
    ("ulysses 2 in ring 2", "gpt2", [("ring", 2), ("ulysses", 2)],
     ['parallel.sequence=[{kind="ulysses",axis="ulysses"},{kind="ring",axis="ring"}]']),
    ("expert 2", "mixtral", [("expert", 2)], []),
    ("expert 2, tensor 2", "mixtral", [("expert", 2), ("tensor", 2)], []),
    ("expert 4, capacity", "mixtral", [("expert", 4)], ["parallel.expert.capacity=1.0"]),
    ("expert 2, ring 2", "mixtral", [("expert", 2), ("ring", 2)], [RING]),
    ("convolutions, one rank", "convnet", [], []),
    ("convolutions, data 2, zero 1", "convnet", [("data", 2)], ["parallel.data.zero=1"]),
    ("bf16, one rank", "gpt2", [], ["train.precision=bf16"]),
    ("bf16, data 2, zero 3", "llama", [("data", 2)],
     ["train.precision=bf16", "parallel.data.zero=3"]),
    ("bf16, tensor 2", "gpt2", [("tensor", 2)], ["train.precision=bf16"]),
    ("bf16, expert 2", "mixtral", [("expert", 2)], ["train.precision=bf16"]),
    ("bf16, convolutions, data 2", "convnet", [("data", 2)], ["train.precision=bf16"]),
]
# Rows of parallelisms that have not landed: name, why.
OPEN = []

# Timed: name, family, sizes, steps at most.
BENCHES = [
    ("gpt2-124m", "gpt2", {"vocab": 50257, "layers": 12, "hidden": 768, "heads": 12,
                           "positions": 1024, "batch": 16, "sequence": 1024}, 200),
    ("llama-1.2b", "llama", {"vocab": 32000, "layers": 16, "hidden": 2048, "heads": 32,
                             "kv-heads": 8, "intermediate": 8192, "batch": 4,
                             "sequence": 2048}, 200),
    # 1.0B parameters of 2.9B take part in a token.
    ("mixtral-1b", "mixtral", {"vocab": 32000, "layers": 16, "hidden": 2048, "heads": 32,
                               "kv-heads": 8, "intermediate": 3584, "experts": 8, "top-k": 2,
                               "batch": 4, "sequence": 2048}, 50),
]


def bench(cleave, folder, scratch, name, family, sizes, steps, architectures):
    """Compiles a program in bf16, and says beside it how PyTorch makes the same."""
    model = scratch / f"{name}.onnx"
    flags = [word for key, value in sizes.items() for word in (f"--{key}", str(value))]
    subprocess.run([sys.executable, ROOT / "test/models/generate.py", model, "--family", family,
                    "--no-weights", *flags], check=True)
    done = subprocess.run(
        [cleave, "compile", model, "--config", model.with_suffix(".toml"), "--set",
         "target.kind=cuda", "--set", f"target.architectures={architectures}", "--set",
         "train.precision=bf16", "--set", "train.weight_decay=0.1", "-o", folder / name],
        capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: {done.stderr}", file=sys.stderr)
        shutil.rmtree(folder / name, ignore_errors=True)
        return 1
    (folder / name / "bench.json").write_text(json.dumps(
        {"family": family, "sizes": sizes, "steps": steps}))
    return 0


def models(folder):
    """Flags of each model."""
    flags = {}
    for family, layers in (("gpt2", "2"), ("llama", "2"), ("mixtral", "1")):
        path = folder / f"{family}.onnx"
        subprocess.run([sys.executable, ROOT / "test/models/generate.py", path, "--family", family,
                        "--layers", layers, "--batch", "4", "--sequence", "8", "--hidden", "32",
                        "--heads", "4", "--kv-heads", "2", "--vocab", "50", "--positions", "16",
                        "--intermediate", "48"], check=True)
        flags[family] = [path, "--config", path.with_suffix(".toml")]
    path = folder / "convnet.onnx"
    subprocess.run([sys.executable, ROOT / "test/models/convnet.py", path], check=True)
    flags["convnet"] = [path, "--config", path.with_suffix(".toml")]
    return flags


def flags_of(mesh, keys):
    flags = []
    if mesh:
        flags += ["--set", f"mesh.axes={json.dumps([axis for axis, _ in mesh])}"]
    for axis, size in mesh:
        flags += ["--set", f"mesh.{axis}={size}"]
    return flags + [word for key in keys for word in ("--set", key)]


def folder_of(name):
    return name.replace(", ", "-").replace(" ", "_")


def named(only, name):
    """Whether the row or bench is one of those that were asked for: by a part of its name, or
    by "=" and all of it."""
    return any(name == text[1:] if text.startswith("=") else text in name for text in only)


def wanted(only, with_benches):
    """The lines of rows.txt."""
    lines = [folder_of(row[0]) for row in ROWS if named(only, row[0])]
    lines += [f"{folder_of(name)} open: {why}" for name, why in OPEN if named(only, name)]
    if with_benches:
        lines += [f"bench/{one[0]}" for one in BENCHES if named(only, one[0])]
    return lines


def share(folder):
    """Keeps equal files once; the others are links. Rows share their references."""
    first = {}
    for file in sorted(folder.rglob("*")):
        if file.is_symlink() or not file.is_file() or file.stat().st_size < 4096:
            continue
        kept = first.setdefault(hashlib.sha256(file.read_bytes()).digest(), file)
        if kept != file:
            file.unlink()
            file.symlink_to(os.path.relpath(kept, file.parent))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--only", action="append", metavar="TEXT",
                        help="rows whose name contains it (=TEXT: is it); can be repeated")
    parser.add_argument("--checks-only", action="store_true", help="nothing to time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--architectures", default="sm_90")
    parser.add_argument("--keep-ptx", action="store_true",
                        help="for devices of a generation that --architectures cannot name")
    args = parser.parse_args()
    cleave = args.build / "bin" / "cleave"
    if not cleave.exists():
        parser.error(f"{cleave} is not there; build it, or name the build folder with --build")
    if args.dir.exists() and any(args.dir.iterdir()):
        parser.error(f"{args.dir} exists; choose another folder")
    only = args.only or [""]
    rows = [row for row in ROWS if named(only, row[0])]
    args.dir.mkdir(parents=True, exist_ok=True)
    (args.dir / "rows.txt").write_text(
        "".join(f"{line}\n" for line in wanted(only, not args.checks_only)))

    def record(row):
        name, model, mesh, keys = row
        folder = args.dir / folder_of(name)
        architectures = json.dumps(args.architectures.split(","))
        done = subprocess.run(
            [cleave, "check", *flags[model], *flags_of(mesh, keys), "--set", "target.kind=cuda",
             "--set", f"target.architectures={architectures}", "--record", folder],
            capture_output=True, text=True)
        said = (done.stdout if done.returncode in (0, 1) else done.stderr).strip().splitlines()
        print(f"{name}: {said[-1] if said else done.returncode}", flush=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
        for program in folder.glob("*/"):
            if any(program.glob("*.cubin")) and not args.keep_ptx:  # it only takes place
                for text in program.glob("*.ptx"):
                    text.unlink()
        return done.returncode

    with tempfile.TemporaryDirectory() as name, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        flags = models(pathlib.Path(name))
        failures = sum(map(bool, pool.map(record, rows)))
        count = len(rows)
        for one in BENCHES:
            if named(only, one[0]) and not args.checks_only:
                (args.dir / "bench").mkdir(parents=True, exist_ok=True)
                count += 1
                failures += bench(cleave, args.dir / "bench", pathlib.Path(name), *one,
                                  json.dumps(args.architectures.split(",")))
    share(args.dir)
    size = sum(file.lstat().st_size for file in args.dir.rglob("*") if file.is_file())
    print(f"{count - failures} of {count} in {args.dir}: {size / 2**20:.1f} MiB")
    if size > LIMIT:
        print(f"more than {LIMIT >> 20} MiB", file=sys.stderr)
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
