#!/usr/bin/env python3
"""Changes the IR of our lit tests and gives it to cleave-opt, to be parsed and verified, and to the passes of the test:
each is taken or refused with a message, and nothing crashes or hangs.

usage: ir.py [--count N] [--seed N] [--keep DIR] [FILE...]    (default: 10,000 changes of all files)"""

import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import support  # finds the others
from support import BUILD, ROOT

OPT = BUILD / "bin" / "cleave-opt"
SECONDS = 60
TOKEN = re.compile(r'"[^"\n]*"|[#!@%^]?[A-Za-z_][\w.$-]*|-?\d[\w.+-]*|[^\s\w]|\s+')
ELEMENT = re.compile(r"(?<=[x<])(?:f64|f32|bf16|i64|i32|i1)(?=>)")
TENSOR = re.compile(r"tensor<(?:\d+x)*(f64|f32|bf16|i64|i32|i1)>")
ELEMENTS = ["f64", "f32", "bf16", "i64", "i32", "i1", "index", "complex<f32>", "i8", "f16", "i4", "f80", "none", "ui32",
            "f8E4M3FN"]
SIZES = ["?", "0", "1", "2", "1000000007", "4611686018427387904", "9223372036854775807"]
# Passes that a type may reach although the test of the file runs others.
PASSES = ["--nn-form-kernels", "--nn-differentiate", "--nn-import-pipeline", "--nn-kernels-pipeline", "--cleave-shard",
          "--dist-partition-pipeline", "--rt-plan-memory", "--kernels-to-gpu"]
# Faults of MLIR's own parser: `array<index: 1>` as an attribute.
OF_MLIR = ("parseDenseArrayAttr",)
NUMBERS = ["0", "1", "-1", "2", "3", "7", "64", "1000000007", "9223372036854775807", "-9223372036854775808", "1.5"]


def parts(path):
    """The files that `// -----` separates, without the lines of checks, and the passes that RUN asks for."""
    text = path.read_text()
    runs = re.findall(r"RUN: .*?cleave-opt ([^\n|]*)", text)
    flags = [word for word in (runs[0].split() if runs else []) if word.startswith("-") and "=" not in word
             and word != "-o" and "split-input" not in word and "verify-diag" not in word and "diagnostics" not in word]
    body = re.sub(r"^\s*//(?! -----).*\n", "", text, flags=re.M)
    return [(part, flags) for part in re.split(r"^// -----.*\n", body, flags=re.M) if part.strip()]


def change_types(draw, text):
    """One element type, size or tensor type exchanged for another one, in all places of the text or in one."""
    kind = draw.randrange(3)
    if kind == 0:
        pattern, new = ELEMENT, draw.choice(ELEMENTS)
    elif kind == 1:
        pattern, new = re.compile(r"(?<=[<x])\d+(?=x)"), draw.choice(SIZES)
    else:
        pattern, new = TENSOR, None
    found = [match.group() for match in pattern.finditer(text)]
    if not found:
        return text
    old = draw.choice(found)
    if new is None:
        element = TENSOR.match(old).group(1)
        new = draw.choice([f"tensor<*x{element}>", old.replace("tensor", "memref"), old.replace("tensor", "vector"),
                           element, "tuple<>", "index"])
    places = [match for match in pattern.finditer(text) if match.group() == old]
    if draw.random() < 0.3:
        places = [draw.choice(places)]
    for match in reversed(places):
        text = text[:match.start()] + new + text[match.end():]
    return text


def change(draw, text, others):
    """A third: one type exchanged. Else one to three tokens dropped, doubled, swapped, or exchanged for one of the same
    kind."""
    if draw.random() < 0.33:
        return change_types(draw, text)
    tokens = TOKEN.findall(text)
    solid = [at for at, token in enumerate(tokens) if not token.isspace()]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at = draw.choice(solid)
        token = tokens[at]
        kind = draw.randrange(7)
        alike = [t for t in others if t[:1] == token[:1] and not t.isspace()] or others
        if kind == 0:
            tokens[at] = ""
        elif kind == 1:
            tokens[at] = token + " " + token
        elif kind == 2:
            other = draw.choice(solid)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif re.match(r"-?\d", token):
            # A number within a type as well: 4x8xf32.
            tokens[at] = re.sub(r"\d+", lambda m: draw.choice(NUMBERS) if draw.random() < 0.5 else m.group(), token)
        elif token.startswith('"'):
            tokens[at] = draw.choice([t for t in others if t.startswith('"')] or ['""'])
        else:
            tokens[at] = draw.choice(alike)
    return "".join(tokens)


def fault(text, flags, folder, extra=()):
    """What is wrong with how cleave-opt takes the text; None: nothing."""
    path = pathlib.Path(folder) / "changed.mlir"
    path.write_text(text)
    for passes in [[], *filter(None, (flags, extra))]:
        try:
            done = subprocess.run([OPT, path, *passes, "-o", os.devnull], capture_output=True, text=True,
                                  errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"{' '.join(passes)}: more than {SECONDS} s"
        if done.returncode < 0 and any(name in done.stderr for name in OF_MLIR):
            return None
        if done.returncode < 0 or done.returncode > 1:
            return f"{' '.join(passes)}: ended with {done.returncode}: {done.stderr[:300]}"
        if done.returncode == 1 and "error:" not in done.stderr:
            return f"{' '.join(passes)}: refused without a word: {done.stderr[:300]}"
        if done.returncode and not passes:
            break  # no program to run passes on
    return None


def campaign(files, count, seed, keep=None):
    """What was found, as lines."""
    all_parts = [(path, part, flags) for path in files for part, flags in parts(path)]
    tokens = {path: TOKEN.findall(path.read_text()) for path in files}

    def one(number):
        draw = random.Random(f"{seed}.{number}")
        path, part, flags = draw.choice(all_parts)
        text = change(draw, part, tokens[path])
        with tempfile.TemporaryDirectory() as folder:
            extra = [draw.choice(PASSES)] if draw.random() < 0.5 else []
            found = fault(text, flags, folder, extra)
        if found and keep:
            (pathlib.Path(keep) / f"{seed}.{number}.mlir").write_text(f"// {found.split(': ')[0]} {path}\n{text}")
        return found and f"{path.relative_to(ROOT)}, change {seed}.{number}: {found}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [found for found in pool.map(one, range(count)) if found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="a folder for the inputs that fail")
    parser.add_argument("files", nargs="*", type=lambda name: pathlib.Path(name).resolve())
    args = parser.parse_args()
    if args.keep:
        pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
    files = args.files or sorted((ROOT / "test").glob("*/**/*.mlir"))
    found = campaign(files, args.count, args.seed, args.keep)
    print("\n".join(found))
    print(f"{args.count} changes of {len(files)} files, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
