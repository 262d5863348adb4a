#!/usr/bin/env python3
"""Changes ONNX files (bytes, or fields of the message tree) and imports them: each is accepted, or rejected with code 2
and messages of cleave, in at most 2 s and 1 GiB. Accepted models are also explained on two ranks, without these limits.

usage: models.py [--count N] [--seed N] [FILE...]    (default: 3000 changes of small models)"""

import argparse
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import support  # extends sys.path
from support import CLEAVE

import onnxwire
import seeds

SECONDS, BYTES = 2, 1 << 30
LONGER = 120  # time limit of explain in seconds

# The fields of each message that are messages themselves (onnx.proto).
GRAPH = {1: "node", 5: "tensor", 11: "value", 12: "value", 13: "value", 15: "sparse"}
FIELDS = {"model": {7: "graph", 8: "opset", 14: "entry", 25: "function"}, "graph": GRAPH, "node": {5: "attribute", 9: "entry"},
          "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 14: "type"}, "tensor": {13: "entry"},
          "value": {2: "type", 4: "entry"}, "type": {1: "tensor_type", 4: "sequence"}, "tensor_type": {2: "shape"},
          "shape": {1: "dim"}, "function": {7: "node", 9: "opset", 11: "attribute"}, "sequence": {1: "type"},
          "sparse": {1: "tensor", 2: "tensor"}}
NUMBERS = [0, 1, 2, 3, 7, 8, 16, 255, 65536, 2 ** 24, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 40, 2 ** 62, 2 ** 63 - 1, 2 ** 63,
           2 ** 64 - 1, 2 ** 64 - 2]


def messages(message, kind, depth=0):
    """All messages of the tree, parsed in place."""
    yield message
    kinds = FIELDS.get(kind, {}) if depth < 12 else {}
    for field in message.fields:
        if field[0] not in kinds or field[1] != onnxwire.BYTES:
            continue
        if not isinstance(field[2], onnxwire.Message):
            try:
                field[2] = onnxwire.Message(field[2])
            except (onnxwire.WireError, IndexError):
                continue  # already changed
        yield from messages(field[2], kinds[field[0]], depth + 1)


def copied(field):
    """A message field as bytes, so that a message cannot come to contain itself."""
    number, wire, value = field
    return [number, wire, value.bytes() if isinstance(value, onnxwire.Message) else value]


def change_field(draw, place, others):
    field = draw.choice(place.fields)
    at = place.fields.index(field)
    kind = draw.randrange(6)
    if kind == 0:
        del place.fields[at]
    elif kind == 1:
        place.fields.insert(draw.randrange(len(place.fields) + 1), copied(field))
    elif kind == 2:
        place.fields.append(copied(draw.choice(draw.choice(others).fields)))
    elif kind == 3:
        field[0] = draw.randrange(1, 30)
    elif field[1] == onnxwire.VARINT:
        field[2] = draw.choice(NUMBERS + [draw.randrange(2 ** 64)])
    elif field[1] == onnxwire.BYTES and not isinstance(field[2], onnxwire.Message):
        names = [f[2] for m in others for f in m.fields if f[1] == onnxwire.BYTES and not isinstance(f[2], onnxwire.Message)]
        field[2] = draw.choice([bytes(draw.choice(names)), b"", bytes(field[2]) + b"\x1b", bytes(field[2])[:-1]])
    else:
        del place.fields[at]


def mutated(draw, data):
    if draw.random() < 0.5:
        data = bytearray(data)
        for _ in range(draw.choice([1, 1, 2, 5, 20])):
            at = draw.randrange(len(data))
            kind = draw.randrange(4)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                del data[at:at + draw.randrange(1, 20)]
            elif kind == 2:
                data[at:at] = data[draw.randrange(len(data)):][:draw.randrange(1, 20)]
            else:
                data[at] ^= 1 << draw.randrange(8)
            if not data:
                return b""
        return bytes(data)
    model = onnxwire.Message(data)
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        tree = [m for m in messages(model, "model") if m.fields]
        if tree:
            change_field(draw, draw.choice(tree), tree)
    return model.bytes()


def ended(command, limit):
    """Exit code, stderr, seconds, bytes."""
    with tempfile.TemporaryFile("w+b") as said:
        begin = time.monotonic()
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=said, env=support.environment())
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid or time.monotonic() - begin > limit:
                break
            time.sleep(0.002)
        if not pid:
            process.kill()
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        # CPU time of this process, because others run in parallel.
        own = usage.ru_utime + usage.ru_stime
        return process.returncode, said.read().decode("utf-8", "replace"), own, usage.ru_maxrss * 1024


def fault(command, limit, sized):
    """An error in how a command ended (None: no error), and whether it accepted the model."""
    code, said, seconds, size = ended(command, 10 * limit)
    if code not in (0, 2):
        return f"ended with {code}: {said[-300:]}", False
    lines = said.splitlines()
    strange = [line for line in lines if not line.startswith(("cleave: error: ", "cleave: warning: ", "  "))]
    if strange or any(ord(c) < 32 and c not in "\n\t" for c in said) or (code == 2 and not lines):
        return f"said {said[:500]!r}", False
    if sized and (seconds > limit or size > BYTES):
        return f"took {seconds:.1f} s and {size / 2 ** 20:.0f} MiB", False
    return None, code == 0


def attempt(folder, data, name, seed):
    draw = random.Random(f"{name} {seed}")
    path = folder / f"{seed}.onnx"
    path.write_bytes(mutated(draw, data))
    flags = ["--set", "dims.batch=2", "--set", "dims.sequence=8"]
    found, taken = fault([CLEAVE, "import", path, *flags], SECONDS, True)
    if taken:
        found, _ = fault([CLEAVE, "explain", path, *flags, "--set", "mesh.data=2", "--cache", folder / "cache"], LONGER, False)
    if not found:
        path.unlink()
    return found and f"{name}, seed {seed} ({path}): {found}"


def campaign(files, count, seed, folder, workers=os.cpu_count()):
    contents = [(path.name, path.read_bytes()) for path in files]
    with ThreadPoolExecutor(workers) as pool:
        tasks = [pool.submit(attempt, folder, contents[i % len(contents)][1], contents[i % len(contents)][0], seed + i)
                 for i in range(count)]
        return [found for task in tasks if (found := task.result())]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = pathlib.Path(tempfile.mkdtemp())
    if not args.files:
        (folder / "seeds").mkdir()
        seeds.models(folder / "seeds", folder)
        args.files = sorted((folder / "seeds").glob("*.onnx"))
    found = campaign(args.files, args.count, args.seed, folder)
    for line in found:
        print(line)
    print(f"{args.count} changes of {len(args.files)} models, {len(found)} faults")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
