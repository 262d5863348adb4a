"""The tables of docs/strategies.md, from what tools/matrix found."""

import sys

from matrix_cells import (COMBINED, DATA, EXPERT_MESHES, MORE_PIPELINES, PIPELINE_MESHES, ROUTED,
                          SCHEDULES, SEQUENCES, TENSOR)

BEGIN, END = "<!-- tools/matrix: begin -->", "<!-- tools/matrix: end -->"
PIPELINES = ("<!-- tools/matrix: pipelines begin -->", "<!-- tools/matrix: pipelines end -->")
POSITIONS = ("<!-- tools/matrix: positions begin -->", "<!-- tools/matrix: positions end -->")
EXPERTS = ("<!-- tools/matrix: experts begin -->", "<!-- tools/matrix: experts end -->")


def verdict(cell):
    """What the document says of the results of one cell."""
    if not cell or any(result is None for result in cell):
        return "not run"
    return "passes" if all(code == 0 for code, _ in cell) else "**fails**"


def table_of_layouts(results, cells):
    models = dict.fromkeys(cell.name for cell in cells)
    lines = ["| | " + " | ".join(name for name, _, _ in TENSOR) + " |",
             "|---|" + "---|" * len(TENSOR)]
    for data, data_mesh, _ in DATA:
        row = []
        for tensor, tensor_mesh, _ in TENSOR:
            ranks = 1
            for _, size in data_mesh + tensor_mesh:
                ranks *= size
            said = verdict([results.get((data, tensor, model)) for model in models])
            row.append("one rank" if ranks == 1 else
                       f"{said}, {ranks} ranks" if said == "passes" else said)
        lines.append(f"| {data} | " + " | ".join(row) + " |")
    return lines


def table_of_pipelines(results, cells):
    columns = [name for name, *_ in PIPELINE_MESHES]
    lines = ["| schedule | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]

    def said(row, column):
        return verdict([results.get(cell[:3]) for cell in cells
                        if cell[:2] == (f"pipeline {row}", column)])

    for schedule, two, four in SCHEDULES:
        row = [f"{said(schedule, column)}, m = {four if column == '4 ranks' else two}"
               for column in columns]
        lines.append(f"| {schedule} | " + " | ".join(row) + " |")
    lines += ["", "| further pipelines | | | |", "|---|---|---|---|"]
    for what, family, _, ranks, axes, schedule, m, _ in MORE_PIPELINES:
        mesh = " x ".join(f"{axis} {size}" for axis, size in [("pipeline", ranks)] + axes)
        lines.append(f"| {what}, {family} | {mesh} | {schedule}, m = {m} | "
                     + said(what, f"{ranks} ranks, {schedule}") + " |")
    return lines


def table_of_experts(results, cells):
    columns = [name for name, *_ in EXPERT_MESHES]
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name, limit, _ in ROUTED:
        row = [verdict([results.get((f"experts {limit}", column, name))]) for column in columns]
        lines.append(f"| {name}, {limit} | " + " | ".join(row) + " |")
    return lines


def table_of_positions(results, cells):
    columns = [name for name, *_ in COMBINED]
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for name, *_ in SEQUENCES:
        row = [verdict([results.get(cell[:3]) for cell in cells
                        if cell[:2] == (f"positions {name}", column)]) for column in columns]
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return lines


def drawn(word, results, cells):
    """The marks of a table in the document, and its lines."""
    marks, draw = {"": ((BEGIN, END), table_of_layouts),
                   "pipeline": (PIPELINES, table_of_pipelines),
                   "positions": (POSITIONS, table_of_positions),
                   "experts": (EXPERTS, table_of_experts)}[word]
    return marks, draw(results, cells)


def write(path, marks, lines):
    """Puts the lines between the marks; whether they are there."""
    text = path.read_text()
    begin, end = marks
    if begin not in text or end not in text:
        print(f"tools/matrix: error: {path} has no lines {begin} and {end}", file=sys.stderr)
        return False
    head, rest = text.split(begin, 1)
    path.write_text(head + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1])
    return True

