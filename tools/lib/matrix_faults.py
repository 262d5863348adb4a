"""Every kind of fault of `cleave check --inject`, in a cell of the matrix' covering set that can
have it: a set in which no cell sees a mistake would say nothing about it."""

import re
import subprocess

import matrix_cells

KEYS = ["train.dropout=0.1"]  # no cell has random numbers of its own


def kinds_of(cleave):
    """What the program says it has."""
    said = subprocess.run([cleave, "check", "--help"], check=True, capture_output=True, text=True)
    kind = "[a-z]+(?:-[a-z]+)*"
    found = re.search(f"inject a fault into the sharded program: ({kind}(?:, {kind})*)",
                      " ".join(said.stdout.split()))
    return found[1].split(", ")


def ordered(cells):
    """Those of most axes, whose models have few layers and small dimensions, first: they can have
    most kinds."""
    def axes(cell):
        return sum(flag.startswith("mesh.") and "[" not in flag for flag in cell.flags)

    pipelines = [cell for cell in cells if cell.row.startswith("pipeline")]
    others = [cell for cell in cells if not cell.row.startswith("pipeline")]
    return [*sorted(pipelines, key=lambda cell: -axes(cell)), *sorted(others, key=axes)]


def inject(check, cleave, cell, kind):
    """Interpreted, unless the fault is one of commands."""
    flags = [*cell.flags, "--steps", "1", "--inject", kind]
    code, said = check(cleave, cell.model, [*flags, "--interpret"], keys=KEYS)
    if code == 2 and "--interpret does not run" in said:
        code, said = check(cleave, cell.model, flags, keys=KEYS)
    return code, said


def one(check, cleave, cells, kind):
    """(cell, exit code, what was said) of the first cell that can have the fault."""
    for cell in cells:
        code, said = inject(check, cleave, cell, kind)
        if code != 2 or "cannot have the fault" not in said:
            return cell, code, said
    return None, 2, "no cell of the covering set can have it"


def run(check, cleave, folder, pool):
    """Prints a line for each kind. How many there are, and how many were not caught."""
    cells = []
    for word, make in matrix_cells.TABLES:
        (own := folder / (word or "layouts")).mkdir()
        cells += [cell for _, cell in matrix_cells.covering(make(own))]
    cells, kinds = ordered(cells), kinds_of(cleave)
    # Each kind begins at another cell.
    begins = [cells[i:] + cells[:i] for i in range(len(kinds))]
    failures = 0
    for kind, (cell, code, said) in zip(kinds, pool.map(
            lambda pair: one(check, cleave, *pair), zip(begins, kinds))):
        failures += code != 1
        where = ", ".join(cell[:3]) if cell else "nowhere"
        print(f"{'not caught: ' * (code != 1)}{kind}: {where}: {said}", flush=True)
    return len(kinds), failures
