"""Random configurations for tools/matrix: models of any sizes, meshes of up to 12
ranks, whatever strategies go together."""

import concurrent.futures
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from matrix_cells import ROOT, SCHEDULES, flags_of


def random_case(draw, folder, name):
    """One configuration: (flags of the model, flags)."""
    pick = draw.choice
    groups, kv_heads, width = pick([1, 2, 3]), pick([1, 2, 3]), pick([2, 4, 6, 8])
    family, layers = pick(["gpt2", "llama", "mixtral"]), pick([1, 2, 2, 3])
    sequence = pick([1, 2, 3, 6, 7, 10])
    sizes = {"family": family, "layers": layers, "heads": groups * kv_heads,
             "hidden": groups * kv_heads * width, "vocab": pick([5, 7, 12, 33]), "batch": 2,
             "sequence": sequence, "positions": max(sequence, 2)}
    if family != "gpt2":
        sizes |= {"kv_heads": kv_heads, "intermediate": pick([3, 7, 12, 20])}
    path = folder / f"{name}.onnx"
    subprocess.run([sys.executable, ROOT / "test/models/generate.py", path,
                    *[str(x) for key, value in sizes.items()
                      for x in ("--" + key.replace("_", "-"), value)]], check=True)
    while True:
        pipeline, data, tensor = pick([1, 1, 2, 2, 3, 4]), pick([1, 1, 2, 3]), pick([1, 1, 2, 3])
        ring, ulysses = pick([(1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
        expert = pick([1, 2, 3]) if family == "mixtral" else 1
        # Ulysses needs a head for each rank.
        if (1 < pipeline * data * tensor * ring * ulysses * expert <= 12 and
                (ulysses == 1 or kv_heads % (ulysses * tensor) == 0)):
            break
    mesh = [axis for axis in (("pipeline", pipeline), ("data", data), ("expert", expert),
                              ("ring", ring), ("ulysses", ulysses), ("tensor", tensor))
            if axis[1] > 1]
    schedule = pick([name for name, *_ in SCHEDULES])
    microbatches = pick([1, 2, 3, 4, 5])
    if pipeline > 1:
        if schedule == "chimera" and pipeline % 2:
            schedule = "zb-h1"
        least = {"dualpipe-v": 2 * pipeline, "chimera": 2}.get(schedule, 1)
        microbatches = max(microbatches, least)
        if schedule == "interleaved":  # whole rounds
            microbatches = pipeline * pick([1, 2])
        if schedule == "chimera":
            microbatches += microbatches % 2
    keys = [f"dims.batch={microbatches * pick([1, 2, 3])}", f"train.microbatches={microbatches}",
            f"train.dropout={pick([0.0, 0.0, 0.2])}", f"train.clip_norm={pick([0.0, 1.0])}",
            f"train.precision={pick(['fp32', 'bf16'])}"]
    if pipeline > 1:
        keys.append(f"parallel.pipeline.schedule={schedule}")
    if data > 1:
        keys.append(f"parallel.data.zero={pick([0, 1, 2, 3])}")
    entries = [f'{{kind="{kind}",axis="{kind}"}}'
               for kind, size in (("ulysses", ulysses), ("ring", ring)) if size > 1]
    if tensor > 1 and pick([True, False]) and sequence > 1:  # of one position there are no parts
        entries.append('{kind="megatron",axis="tensor"}')
    if entries:
        keys.append(f"parallel.sequence=[{','.join(entries)}]")
    keys.append(f"target.transport={pick(['local', 'nccl'])}")
    return [str(path), "--config", str(path.with_suffix(".toml"))], flags_of(mesh, keys)


def run(args, check, on_devices):
    """Draws and checks (`check(model, flags)` is an exit code and what was said); whether all
    that ran passed."""
    begin, passed, refused, failed = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory() as name, \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        folder = pathlib.Path(name)

        def one(number):
            model, flags = random_case(random.Random(f"{args.seed} {number}"), folder, number)
            if not on_devices:  # they alone have others
                flags = [*flags, "--set", "target.transport=local"]
            code, said = check(model, flags)
            # Of few samples the rounding of one device may be less by chance; what is wrong is
            # wrong with other values, too.
            again = code == 1 and all(
                check(model, [*flags, "--seed", seed])[0] == 0
                for seed in (1, 2))
            return number, flags, (0, f"with two of three seeds; {said}") if again else (code, said)

        for number, flags, (code, said) in pool.map(one, range(args.first,
                                                               args.first + args.random)):
            passed, refused = passed + (code == 0), refused + (code == 2)
            failed += code not in (0, 2)
            verdicts = {0: "passes", 2: "is refused"}
            print(f"case {number} of seed {args.seed} {verdicts.get(code, f'fails ({code})')}: "
                  f"{said}", flush=True)
            if code not in (0, 2):
                print("  " + " ".join(f"'{flag}'" if '"' in flag else flag for flag in flags),
                      flush=True)
    print(f"{args.random} random configurations, {passed} passed, {refused} were refused, "
          f"{failed} failed, {time.monotonic() - begin:.0f} s")
    return failed == 0

