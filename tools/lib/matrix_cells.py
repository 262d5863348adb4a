"""What tools/matrix checks: strategies, meshes and models, and what goes together.

A cell is (row, column, model's name, the model's flags, flags of the mesh and the
strategies). Rows and columns are those of the tables of docs/strategies.md.
"""

import collections
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

Cell = collections.namedtuple("Cell", "row column name model flags")

SEQUENCE = 'parallel.sequence=[{{kind="megatron",axis="tensor",saved_input="{}"}}]'
# Name, axes of the mesh (after those of data), keys.
TENSOR = [
    ("none", [], []),
    ("tensor 1d", [("tensor", 2)], []),
    ("sequence megatron", [("tensor", 2)], [SEQUENCE.format("shard")]),
    ("2d", [("row", 2), ("col", 2)],
     ['parallel.tensor.layout=2d', 'parallel.tensor.axes=["row","col"]']),
    ("2.5d", [("depth", 2), ("row", 2), ("col", 2)],
     ['parallel.tensor.layout=2.5d', 'parallel.tensor.axes=["depth","row","col"]']),
    ("3d", [("i", 2), ("j", 2), ("k", 2)],
     ['parallel.tensor.layout=3d', 'parallel.tensor.axes=["i","j","k"]']),
]
HYBRID = ['parallel.data.replicate="outer"']
DATA = [
    ("none", [], []),
    ("zero 0", [("data", 2)], []),
    ("zero 1", [("data", 2)], ["parallel.data.zero=1"]),
    ("zero 2", [("data", 2)], ["parallel.data.zero=2"]),
    ("zero 3", [("data", 2)], ["parallel.data.zero=3"]),
    ("hybrid zero 1", [("outer", 2), ("data", 2)], HYBRID + ["parallel.data.zero=1"]),
    ("hybrid zero 3", [("outer", 2), ("data", 2)], HYBRID + ["parallel.data.zero=3"]),
]
# What is refused, and why: (name, mesh, keys, words of the error).
REFUSED = [
    ("sequence megatron with 2d", [("row", 2), ("col", 2)],
     ['parallel.tensor.layout=2d', 'parallel.tensor.axes=["row","col"]',
      'parallel.sequence=[{kind="megatron",axis="col"}]'],
     "both split the values between products"),
    ("sequence megatron without its tensor axis", [("data", 2), ("tensor", 2)],
     ['parallel.sequence=[{kind="megatron",axis="data"}]'],
     "needs the axis of tensor parallelism"),
    ("zero without a data axis", [("tensor", 2)], ["parallel.data.zero=1"],
     "splits over the mesh axis 'data', but the mesh has tensor=2"),
    ("data and 2d on one axis", [("data", 2), ("col", 2)],
     ['parallel.tensor.layout=2d', 'parallel.tensor.axes=["data","col"]'],
     "both name the mesh axis 'data'"),
]

# Name, microbatches on 2 and on 4 ranks: not a multiple of the stages where the
# schedule allows it.
SCHEDULES = [("gpipe", 3, 6), ("1f1b", 3, 6), ("interleaved", 3, 6), ("looped-bfs", 3, 6),
             ("chimera", 3, 6), ("zb-h1", 3, 6), ("zb-h2", 3, 7), ("zb-v", 3, 6),
             ("v-half", 3, 6), ("dualpipe-v", 5, 9)]
GRID = [("data", 2), ("tensor", 2)]
# Name, ranks of the pipeline, further axes, keys, whether scrambled models, too.
PIPELINE_MESHES = [
    ("2 ranks", 2, [], [], True),
    ("4 ranks", 4, [], [], True),
    ("2 x 2 x 2, zero 1", 2, GRID, ["parallel.data.zero=1"], False),
    ("2 x 2 x 2, zero 2", 2, GRID, ["parallel.data.zero=2"], False),
    ("2 x 2 x 2, zero 3", 2, GRID, ["parallel.data.zero=3"], False),
]
# Further pipelines: name, family and layers, ranks, further axes, schedule,
# microbatches, keys.
MORE_PIPELINES = [
    ("5 layers over 4 ranks", "gpt2", 5, 4, [], "1f1b", 6, []),
    ("5 layers over 4 ranks", "llama", 5, 4, [], "zb-h1", 6, []),
    ("sequence megatron", "gpt2", 2, 2, GRID, "1f1b", 2,
     [SEQUENCE.format("shard"), "parallel.data.zero=3"]),
    ("sequence megatron", "llama", 2, 2, [("tensor", 2)], "zb-v", 3, [SEQUENCE.format("full")]),
    ("tensor 2d", "gpt2", 2, 2, [("row", 2), ("col", 2)], "zb-h1", 3,
     ['parallel.tensor.layout=2d', 'parallel.tensor.axes=["row","col"]']),
    ("hybrid zero 3", "llama", 2, 2, [("outer", 2), ("data", 2)], "interleaved", 3,
     HYBRID + ["parallel.data.zero=3"]),
    ("encoder and decoder", "t5", 0, 2, [], "1f1b", 2, []),
    ("encoder and decoder", "t5", 0, 4, [], "zb-h1", 4, []),
    ("encoder and decoder", "t5", 0, 2, [("tensor", 2)], "zb-v", 4, []),
]

# Positions over axes of their own: name, ranks of Ulysses and of the ring.
SEQUENCES = [("ulysses 2", 2, 1), ("ulysses 4", 4, 1), ("ring 2", 1, 2), ("ring 3", 1, 3),
             ("ring 4", 1, 4), ("ulysses 2 in ring 2", 2, 2)]
MASKS = [("window", {"window": 4}), ("packed", {"documents": True, "softcap": 3}),
         ("full", {"bidirectional": True}), ("ALiBi", {"alibi": True})]
# Combined with these: name, axes before and after, keys, an entry of
# parallel.sequence, whether scrambled and other masks, too.
COMBINED = [
    ("alone", [], [], [], "", True),
    ("data 2, zero 3", [("data", 2)], [], ["parallel.data.zero=3"], "", False),
    ("tensor 2", [], [("tensor", 2)], [], "", False),
    ("sequence megatron 2", [], [("tensor", 2)], [],
     '{kind="megatron",axis="tensor",saved_input="shard"}', False),
    ("2d", [], [("row", 2), ("col", 2)],
     ["parallel.tensor.layout=2d", 'parallel.tensor.axes=["row","col"]'], "", False),
    ("pipeline 2, zb-h1", [("pipeline", 2)], [],
     ["train.microbatches=3", "parallel.pipeline.schedule=zb-h1", "dims.batch=6"], "", False),
    ("pipeline 2, data 2, tensor 2, zero 1", [("pipeline", 2), ("data", 2)], [("tensor", 2)],
     ["train.microbatches=2", "parallel.pipeline.schedule=1f1b", "parallel.data.zero=1"], "", False),
]

# Experts: what of the exported models, and how rows are limited; with room for a
# balanced share alone, rows overflow.
ROUTED = [(name, limit, keys) for name in ("mixtral", "switch", "deepseek") for limit, keys in [
    ("dropless", []), ("dropless, overflow", ["parallel.expert.max_load=1"]),
    ("capacity", ["parallel.expert.capacity=1", "parallel.expert.max_load=1"])]]
ON_DATA = ["parallel.expert.axis=data"]
# Name, axes, keys.
EXPERT_MESHES = [
    ("expert 2", [("expert", 2)], []),
    ("expert 4", [("expert", 4)], []),
    ("expert 2, tensor 2", [("expert", 2), ("tensor", 2)], []),
    *[(f"on data 2, zero {zero}", [("data", 2)], ON_DATA + [f"parallel.data.zero={zero}"])
      for zero in (1, 2, 3)],
    ("data 2, expert 2", [("data", 2), ("expert", 2)], ["parallel.data.zero=1"]),
    ("pipeline 2, expert 2", [("pipeline", 2), ("expert", 2)], ["train.microbatches=2"]),
    ("expert 2, ring 2", [("expert", 2), ("ring", 2)],
     ['parallel.sequence=[{kind="ring",axis="ring"}]']),
]


def flags_of(mesh, keys):
    flags = []
    if mesh:
        names = ",".join(f'"{axis}"' for axis, _ in mesh)
        flags += ["--set", f"mesh.axes=[{names}]"]
    for axis, size in mesh:
        flags += ["--set", f"mesh.{axis}={size}"]
    for key in keys:
        flags += ["--set", key]
    return flags


def generate(folder, families=("gpt2", "llama"), layers=1, scrambled=True, **sizes):
    """The models: (name, flags)."""
    models = []
    for family in families:
        path = folder / f"{family}-{layers}.onnx"
        more = [str(x) for key, value in sizes.items()
                for x in ("--" + key.replace("_", "-"), *([] if value is True else [value]))]
        subprocess.run([sys.executable, ROOT / "test/models/generate.py", path, "--family", family,
                        "--layers", str(layers), *more], check=True)
        paths = [path]
        if scrambled:
            paths.append(folder / f"{family}-{layers}-scrambled.onnx")
            subprocess.run([sys.executable, ROOT / "tools/scramble", path, paths[1], "--seed", "3"],
                           check=True, stdout=subprocess.DEVNULL)
        for model in paths:
            models.append((model.stem.replace(f"-{layers}", ""),
                           [str(model), "--config", str(path.with_suffix(".toml"))]))
    return models



def layouts(folder):
    """Data strategies by tensor strategies, on models of one layer."""
    models = generate(folder, batch=8, sequence=10, hidden=48, intermediate=88, vocab=67, positions=16)
    return [Cell(data, tensor, name, model, flags_of(data_mesh + mesh, data_keys + keys))
            for data, data_mesh, data_keys in DATA for tensor, mesh, keys in TENSOR
            for name, model in models if data_mesh or mesh]


def pipelines(folder):
    """Checks of pipelines: (row, column, model's name, its flags, flags)."""
    small = {"hidden": 16, "heads": 4, "vocab": 19, "positions": 16, "kv_heads": 2,
             "intermediate": 24}

    def flags(ranks, axes, schedule, microbatches, samples, keys):
        sizes = [f"dims.batch={samples * microbatches}"] if samples else []
        return flags_of([("pipeline", ranks)] + axes, sizes + keys + [
            f"train.microbatches={microbatches}", f"parallel.pipeline.schedule={schedule}"])

    models = generate(folder, layers=2, sequence=6, batch=4, **small)
    cells = []
    for schedule, *microbatches in SCHEDULES:
        for mesh, ranks, axes, keys, scrambled in PIPELINE_MESHES:
            for name, model in models:
                if scrambled or not name.endswith("scrambled"):
                    m = microbatches[ranks == 4]
                    cells.append(Cell(f"pipeline {schedule}", mesh, name, model,
                                  flags(ranks, axes, schedule, m, 4 if axes else 2, keys)))
    for what, family, layers, ranks, axes, schedule, m, keys in MORE_PIPELINES:
        if family == "t5": # an exported file, made with the tests
            path = ROOT / "test/models/t5.onnx"
            model = [str(path), "--config", str(path.with_suffix(".toml"))]
        else:
            model = generate(folder, [family], layers, False, sequence=6, batch=4, **small)[0][1]
        cells.append(Cell(f"pipeline {what}", f"{ranks} ranks, {schedule}", family, model,
                      flags(ranks, axes, schedule, m, 0 if family == "t5" else 4, keys)))
    return cells


def positions(folder):
    """Checks of long sequences: (row, column, model's name, its flags, flags)."""
    # Neither 3 nor 4 ranks divide 10 positions.
    sizes = {"layers": 2, "sequence": 10, "batch": 4, "hidden": 32, "heads": 8, "vocab": 19,
             "positions": 16, "kv_heads": 2, "intermediate": 24}
    models = generate(folder, **sizes)
    masked = []
    for name, options in MASKS:
        (folder / name).mkdir()
        masked += [(f"{family} {name}", flags) for family, flags in
                   generate(folder / name, scrambled=False, **sizes, **options)]
    cells = []
    for name, ulysses, ring in SEQUENCES:
        axes = [axis for axis in (("ring", ring), ("ulysses", ulysses)) if axis[1] > 1]
        entries = [f'{{kind="{axis}",axis="{axis}"}}' for axis, _ in reversed(axes)]
        for what, before, after, keys, entry, alone in COMBINED:
            listed = f"parallel.sequence=[{','.join(entries + [entry] * bool(entry))}]"
            for model, flags in models + masked * alone:
                if alone or not model.endswith("scrambled"):
                    cells.append(Cell(f"positions {name}", what, model, flags,
                                  flags_of(before + axes + after, keys + [listed])))
    return cells


def experts(folder):
    """Checks of experts: (row, column, model's name, its flags, flags)."""
    cells = []
    for name, limit, limits in ROUTED:
        path = ROOT / "test/models" / f"{name}.onnx"
        flags = [str(path), "--config", str(path.with_suffix(".toml"))]
        for column, mesh, keys in EXPERT_MESHES:
            cells.append(Cell(f"experts {limit}", column, name, flags, flags_of(mesh, keys + limits)))
    return cells


# Word of --only, and what makes the cells.
TABLES = [("", layouts), ("pipeline", pipelines), ("positions", positions), ("experts", experts)]

# How cells of the covering set are checked (tools/matrix), the dearest first; what is left
# for the last one is cheap.
WAYS = ("trained", "compiled", "bf16", "interpreted")
DEAR = ("trained", "compiled")


def parts(cell):
    return {("row", cell.row), ("column", cell.column), ("model", cell.name)}


def covering(cells):
    """A part of the cells of one table: [(way of checking, cell)]. Every row, every column and
    every model is trained on the recorder, and compiled, by as few cells as a greedy choice
    finds; every second one of those that are compiled computes in bf16, whose check in f64
    is the same. Every pair of a row and a column is checked in at least one way. Of equals the
    first is taken, so that the set changes with the table alone."""
    chosen, taken = [], set()
    for way in DEAR:
        usable = [cell for cell in cells
                  if way != "trained" or not cell.name.endswith("scrambled")]
        missing = set().union(*(parts(cell) for cell in usable))
        while missing:
            best = max(usable, key=lambda cell: (len(parts(cell) & missing),
                                                 cell[:2] not in taken))
            missing -= parts(best)
            taken.add(best[:2])
            narrow = way == "compiled" and len(chosen) % 2
            chosen.append(("bf16" if narrow else way, best))
    used = collections.Counter(cell.name for _, cell in chosen)
    for cell in cells:
        if cell[:2] in taken:
            continue
        models = [other for other in cells if other[:2] == cell[:2]]
        best = min(models, key=lambda other: used[other.name])
        used[best.name] += 1
        taken.add(best[:2])
        chosen.append((WAYS[-1], best))
    return chosen
