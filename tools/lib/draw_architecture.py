#!/usr/bin/env python3
"""Draws docs/architecture.svg: the levels of a program, and the folders of lib/ and runtime/ that work on them.

usage: draw_architecture.py [--check]    --check writes nothing and fails where the file is another one
"""

import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILE = ROOT / "docs" / "architecture.svg"

# What a program is, from top to bottom: its name, its dialects, and the folders that lead to the next.
LEVELS = [
    ("ONNX model", "a graph of operators, weights", [("Import/ONNX", "operators to nn, shapes evaluated")]),
    ("logical program", "nn: @forward of one device", [
        ("Dialect/NN/Transforms", "attention and experts found, dimensions factored"),
        ("Autodiff", "loss, derivative, optimizer"),
        ("Stage", "cut into stages of a pipeline")]),
    ("training program", "nn, pipe: @loss_grad, @update", [
        ("Strategy", "each parallelism as shardings"),
        ("Partition", "propagate, plan, reshard, combine, prove"),
        ("Actions", "a stage's functions cut into actions")]),
    ("per-rank program", "nn, dist: tiles of each rank, collectives", [
        ("Conversion/ToRT", "library calls"),
        ("Fusion", "elementwise and reductions into kernels")]),
    ("command lists", "rt: launches, products, collectives", [
        ("Schedule", "collectives overlapped with compute"),
        ("Memory", "an address for every value"),
        ("Codegen", "kernels by LLVM; Codegen/GPU: PTX"),
        ("Target", "order proved, artifact written")]),
    ("artifact", "program.bin, kernels.so, manifest.json", [
        ("runtime/src", "sessions, threads, transports, oneDNN"),
        ("runtime/cuda, mpi", "cuBLASLt, cuDNN, NCCL; MPI"),
        ("runtime/trainer, io", "steps, data, checkpoints, logs")]),
]
# Beside them: who uses all levels, and what all levels use.
ABOVE = [("Compiler", "passes as a configuration asks"), ("Explain", "memory, traffic, time"),
         ("Check", "sharded against unsharded"), ("Interpreter", "programs in double, all ranks"),
         ("Reduce", "failing programs made small"), ("Init", "all passes registered")]
BELOW = [("Config", "keys, meshes, clusters"), ("Support", "messages, locations, attributes"),
         ("Dialect", "nn, dist, pipe, rt"), ("Interfaces", "what operations answer to passes"),
         ("Cost", "seconds of links"), ("PipelineSchedule", "tables and their proof")]

WIDTH, LEFT, STEP, ROW = 1060, 250, 24, 22
STYLE = """text { font: 13px sans-serif; fill: #1c1c1c } .name { font-weight: bold } .small { font-size: 11.5px; fill: #555 }
.level { fill: #dbe9f6; stroke: #5b86ad } .folder { fill: #fff; stroke: #999 } .side { fill: #f4efe2; stroke: #b09b5d }
.page { fill: #fff } line { stroke: #5b86ad; stroke-width: 1.5 } polygon { fill: #5b86ad }"""


def text(x, y, content, kind=""):
    return f'<text x="{x}" y="{y}"' + (f' class="{kind}"' if kind else "") + f">{escape(content)}</text>"


def box(x, y, width, height, kind):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" class="{kind}"/>'


def side(x, width, title, entries, height):
    parts = [box(x, 40, width, height, "side"), text(x + 10, 60, title, "name")]
    for at, (folder, what) in enumerate(entries):
        y = 92 + at * (height - 60) / len(entries)
        parts += [text(x + 10, y, folder, "name"), text(x + 10, y + 17, what, "small")]
    return parts


def draw():
    parts, y, middle = [], 40, 540
    for at, (name, content, folders) in enumerate(LEVELS):
        parts += [box(LEFT, y, middle, 40, "level"), text(LEFT + 12, y + 25, name, "name"),
                  text(LEFT + 160, y + 25, content)]
        y += 40
        height = STEP * len(folders) + 14
        parts.append(f'<line x1="{LEFT + 30}" y1="{y}" x2="{LEFT + 30}" y2="{y + height + 2}"/>')
        if at + 1 < len(LEVELS):
            tip = y + height + 10
            parts.append(f'<polygon points="{LEFT + 24},{tip - 8} {LEFT + 36},{tip - 8} {LEFT + 30},{tip}"/>')
        for row, (folder, what) in enumerate(folders):
            top = y + 8 + row * STEP
            parts += [box(LEFT + 60, top, middle - 60, ROW, "folder"), text(LEFT + 68, top + 15, folder, "name"),
                      text(LEFT + 250, top + 15, what, "small")]
        y += height + 10
    height = y - 40
    parts += side(10, 225, "use all levels (lib/...)", ABOVE, height)
    parts += side(LEFT + middle + 15, 245, "used at all levels (lib/...)", BELOW, height)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 15}" width="{WIDTH}" height="{y + 15}" '
            'role="img" aria-label="Levels of a program and the libraries that work on them">')
    return "\n".join(["<!-- Written by tools/lib/draw_architecture.py; edit that file. -->", head,
                      f"<style>{STYLE}</style>", box(0, 0, WIDTH, y + 15, "page"),
                      text(LEFT, 26, "levels of a program, and the folders of lib/ between them", "name"),
                      *parts, "</svg>"]) + "\n"


def folders():
    """The folders that the picture names, without lib/."""
    named = {name for _, _, entries in LEVELS for name, _ in entries} | {name for name, _ in ABOVE + BELOW}
    return {name for name in named if not name.startswith("runtime/")}


def main():
    if sys.argv[1:] == ["--check"]:
        if not FILE.exists() or FILE.read_text() != draw():
            sys.exit("docs/architecture.svg is stale; run tools/lib/draw_architecture.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        FILE.write_text(draw())


if __name__ == "__main__":
    main()
