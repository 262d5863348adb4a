"""Programs for CUDA devices on the recorder that stands in for the driver, cuBLASLt and
NCCL: what is enqueued runs on this CPU and is compared; bounds, event edges and the order
of collectives are checked. Nothing here runs on a device."""

import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import numpy as np

import support
import recorded_training
import trace_format
import training

RECORDER = support.BUILD / "recorder"
REPLAY = support.BUILD / "bin" / "cleave-replay"
PREPARE = support.ROOT / "test" / "gpu" / "prepare.py"
sys.path.append(str(support.ROOT / "test" / "gpu" / "bench"))
import compare  # noqa: E402 (what test/gpu/run prints)


TOOLKIT = recorded_training.toolkit(support.BUILD) if REPLAY.exists() and not support.ALL else {}


def recorded(toolkit=TOOLKIT, **settings):
    """The environment in which the recorder is the driver."""
    return {"LD_LIBRARY_PATH": str(RECORDER), "CLEAVE_HOST_KERNELS": "1",
            "CLEAVE_RECORDER_SUMMARY": "1", "CLEAVE_RECORDER_CONNECTS": "1", **toolkit,
            **{f"CLEAVE_RECORDER_{key.upper()}": str(value) for key, value in settings.items()}}


def totals(stderr):
    """The recorder's counts: {"launches": 7, "not run": 0, ...}."""
    line = next(line for line in stderr.splitlines() if line.startswith("recorder: operations"))
    counts = {}
    for part in re.findall(r"\((.*?)\)", line):  # of launches: "7 emulated, 0 not run"
        counts.update({name: int(count) for count, name in re.findall(r"(\d+) ([a-z ]+)", part)})
    for name, count in re.findall(r"([a-z][a-z ]*) (\d+)", re.sub(r" \(.*?\)", "", line)):
        counts[name] = int(count)
    return counts


@unittest.skipUnless(REPLAY.exists(), "built without the CUDA toolkit")
class Replay(unittest.TestCase):
    """Whole checks of every parallelism, with graphs, as test/gpu/run repeats them; each day
    a part of its rows."""

    ROWS = ("=one rank", "=bf16, tensor 2", "pipeline 2, zb-v", "ulysses 2 in ring 2",
            "expert 4", "bf16, convolutions", "uneven batch")

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.rows = pathlib.Path(temporary.name) / "rows"
        only = [] if support.ALL else [
            "--architectures", "sm_80", *[word for row in cls.ROWS for word in ("--only", row)]]
        done = support.run(sys.executable, PREPARE, cls.rows, "--checks-only", *only, "--build", support.BUILD,
                           env={"CLEAVE_HOST_KERNELS": "1", **TOOLKIT}, timeout=1800)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        cls.names = sorted(path.parent.name for path in cls.rows.glob("*/data.bin"))

    def replay(self, transport, *rows, **settings):
        done = support.run(REPLAY, f"--{transport}", self.rows, *rows, env=recorded(**settings),
                           timeout=1800)
        return done, [line for line in done.stdout.splitlines()[1:]]

    def passes(self, transport, *rows, **settings):
        done, lines = self.replay(transport, *rows, **settings)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([line.split()[0] for line in lines if line.endswith("pass")], list(rows),
                         done.stdout)
        seen = totals(done.stderr)
        for what in ("not run", "without a note", "errors"):
            self.assertEqual(seen[what], 0, done.stderr)
        for what in ("launches", "products", "graph launches", "edges"):
            self.assertGreater(seen[what], 0, done.stderr)
        return seen

    def test_ranks_share_a_device(self):
        # Others replay one rank; and what experts do is the same with a device each.
        rows = [row for row in self.names
                if support.ALL or row not in ("one_rank", "expert_4-capacity")]
        self.assertEqual(self.passes("local", *rows)["collectives"], 0)

    def test_ranks_have_a_device_each(self):
        rows = [row for row in self.names if support.ALL or not row.endswith("one_rank")]
        seen = self.passes("nccl", *rows, devices=8)
        self.assertGreater(seen["collectives"], 0)
        self.assertGreater(seen["messages"], 0)

    @unittest.skipUnless((support.BUILD / "bin" / "cleave-dnn-plans").exists(), "there is no cuDNN")
    def test_by_cudnn_or_by_kernels(self):
        # In f32 they are checked below (Convolutions).
        for row in support.some(("bf16-convolutions-data_2", "bf16-one_rank", "convolutions-one_rank"), 1):
            for off, compare in (("0", self.assertGreater), ("1", self.assertEqual)):
                with self.subTest(row, off=off):
                    done = support.run(REPLAY, "--local", self.rows, row, timeout=1800,
                                       env={**recorded(), "CLEAVE_CUDA_NO_CUDNN": off})
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    compare(totals(done.stderr)["cudnn plans"], 0, done.stderr)

    def test_gradients_by_cublaslt_or_by_kernels(self):
        """Where it has no algorithm, kernels do what it would have done after products."""
        for row in support.some(("one_rank", "bf16-one_rank", "bf16-tensor_2"), 2):
            with self.subTest(row):
                seen = []
                for settings in ({}, {"refuses_gradients": 1}):
                    done = support.run(REPLAY, "--local", self.rows, row, timeout=1800,
                                       env=recorded(**settings))
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    seen.append(totals(done.stderr))
                by_cublaslt, by_kernels = seen
                self.assertEqual(by_cublaslt["products"], by_kernels["products"])
                self.assertLess(by_cublaslt["launches"], by_kernels["launches"])

    def test_rows_after_a_failure_are_run(self):
        """A fault may leave nothing of a device to a process: another one goes on."""
        row = self.rows / "a_broken"
        shutil.copytree(self.rows / "bf16-tensor_2", row)
        self.addCleanup(shutil.rmtree, row)
        (row / "exact-sharded" / "calls.txt").write_text("run nothing_that_there_is\n")
        done, lines = self.replay("local", "a_broken", "bf16-tensor_2", "one_rank")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(len(lines), 3, done.stdout)
        self.assertRegex(lines[0], "^a_broken +FAILED: .*nothing_that_there_is")
        self.assertRegex(lines[1], "^bf16-tensor_2 .* pass$")
        self.assertRegex(lines[2], "^one_rank .* pass$")

    def test_wrong_values_are_found(self):
        """The comparison of the replay fails where a weight differs in one program."""
        row = self.rows / "broken"
        shutil.copytree(self.rows / "bf16-tensor_2", row)
        self.addCleanup(shutil.rmtree, row)
        calls = row / "exact-sharded" / "calls.txt"
        lines = calls.read_text().splitlines(keepends=True)
        scatter = [i for i, line in enumerate(lines) if line.startswith("scatter 1 ")]
        pair = next((a, b) for a in scatter for b in scatter if a < b and
                    lines[a].split()[2] == lines[b].split()[2] and
                    lines[a].split()[3] != lines[b].split()[3])
        words = [lines[i].split() for i in pair]
        words[0][3] = words[1][3]
        lines[pair[0]] = " ".join(words[0]) + "\n"
        calls.write_text("".join(lines))
        done, lines = self.replay("local", "broken")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("FAIL: f64", lines[0])


@unittest.skipUnless(REPLAY.exists(), "built without the CUDA toolkit")
class Convolutions(unittest.TestCase):
    """Each convolution is one command, by cuDNN or by kernels of the runtime; compared with the
    interpreter."""

    def check(self, model, *settings, env=None):
        done = support.run(
            support.CLEAVE, "check", *model, "--against", "interpreter", "--steps", 2,
            *[f"--set={setting}" for setting in
              ("target.kind=cuda", 'target.architectures=["sm_90"]', *settings)],
            env={**recorded(), **(env or {})})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        seen = totals(done.stderr)
        self.assertEqual(seen["errors"], 0, done.stderr)
        return seen

    def net(self, folder):
        path = pathlib.Path(folder) / "convnet.onnx"
        support.succeed(sys.executable, support.ROOT / "test" / "models" / "convnet.py", path)
        return [path, "--config", path.with_suffix(".toml")]

    def test_a_net(self):
        with tempfile.TemporaryDirectory() as folder:
            model = self.net(folder)
            for settings in support.some((
                    ["train.precision=bf16"], [], ["train.precision=tf32", "mesh.data=2"],
                    ["mesh.tensor=2"], ["mesh.data=2", "dims.batch=3", "parallel.data.zero=3"]), 3):
                with self.subTest(settings):
                    self.assertGreater(self.check(model, *settings)["cudnn plans"], 0)
            seen = self.check(model, "train.precision=bf16", env={"CLEAVE_CUDA_NO_CUDNN": "1"})
            self.assertEqual(seen["cudnn plans"], 0)

    def test_images_in_tiles(self):
        seen = self.check([support.ROOT / "test" / "Inputs" / "conv-tiles.mlir"])
        self.assertGreater(seen["cudnn plans"], 0)
        self.assertEqual(seen["products"], 0)

    def test_what_is_one_command(self):
        """In bf16, but for what reads the images; gradients of filters stay f32."""
        with tempfile.TemporaryDirectory() as folder:
            model = self.net(folder)
            counts = {}
            for kind in ("cpu", "cuda"):
                said = support.succeed(support.CLEAVE, "explain", *model, "--set",
                                       f"target.kind={kind}", "--set", "train.precision=bf16")
                counts[kind] = [len(re.findall(pattern, said)) for pattern in (
                    r"\bconv \S+ by \S+ bf16\b(?! to)", r"\bconv \S+ by \S+ f32\b",
                    r"\bconv_input_grad \S+ by \S+ bf16\b(?! to)",
                    r"\bconv_filter_grad \S+ by \S+ bf16 to f32\b",
                    r"\bconv_filter_grad \S+ by \S+ f32\b")]
            self.assertEqual(counts, {"cpu": [0] * 5, "cuda": [4, 1, 4, 4, 1]})


@unittest.skipUnless(REPLAY.exists(), "built without the CUDA toolkit")
class Train(unittest.TestCase):
    MODEL = support.ROOT / "test" / "Inputs" / "mlp.mlir"

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
        np.savez(self.folder / "data.npz", x=x, labels=x[:, :5].argmax(1).astype(np.int32))

    def start(self, name, *settings, env=None, steps=6, flags=()):
        settings = ["data.labels=labels", "data.validation=0", "train.lr=0.03",
                    'target.architectures=["sm_90"]', *settings]
        return support.run(
            support.CLEAVE, "train", self.MODEL, "--data", self.folder / "data.npz", "--steps",
            steps, "--out", self.folder / name, "--cache", self.folder / "cache",
            *[f"--set={setting}" for setting in settings], *flags, env=env or recorded())

    def losses(self, name, *settings, **options):
        done = self.start(name, *settings, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return np.array([entry["loss"] for entry in support.read_log(self.folder / name)]), done

    def test_learns_as_on_the_cpu(self):
        want, _ = self.losses("cpu")
        for name, *settings in (["one"], ["data", "mesh.data=2", "parallel.data.zero=2"],
                                ["tensor", "mesh.tensor=2"]):
            for transport in ("local", "nccl") if settings else ("auto",):
                with self.subTest(name, transport=transport):
                    found, done = self.losses(f"{name}-{transport}", "target.kind=cuda",
                                              f"target.transport={transport}", *settings,
                                              env=recorded(devices=2))
                    self.assertLess(np.abs(found - want).max(), 1e-5)
                    seen = totals(done.stderr)
                    if transport != "local":  # actions are replayed
                        self.assertGreater(seen["graph launches"], 0, done.stderr)
                    self.assertEqual(seen["collectives"] > 0, transport == "nccl", done.stderr)

    def test_a_trace(self):
        """Commands are timed by events of the rank's stream, one after the other."""
        path = self.folder / "trace.json"
        self.losses("traced", "target.kind=cuda", "mesh.data=2", "target.transport=nccl",
                    env=recorded(devices=2), steps=2, flags=["--trace", path])
        threads, _ = trace_format.check(self, path, ranks=2)
        for rank in range(2):
            events = sorted(threads[rank, 2 * rank] + threads[rank, 2 * rank + 1],
                            key=lambda event: event["ts"])
            kernels = {event["args"]["kernel"] for event in events if event["cat"] == "launch"}
            self.assertTrue(any("adamw" in name for name in kernels), kernels)
            self.assertTrue(all(event["args"]["TFLOP/s"] > 0 for event in events
                                if event["cat"] == "gemm" and event["dur"] > 0))
            self.assertTrue(all(event["args"]["GB/s"] > 0 for event in events
                                if event["cat"] == "launch" and event["dur"] > 0))
            for before, after in zip(events, events[1:]):  # to the microsecond
                self.assertLess(before["ts"] + before["dur"], after["ts"] + 1)

    def test_tf32(self):
        """Rounds operands of products, in whole and in parts alike."""
        keys = ["target.kind=cuda", "train.precision=tf32"]
        exact, _ = self.losses("fp32", *keys[:1])
        rounded, _ = self.losses("tf32", *keys)
        self.assertGreater(np.abs(rounded - exact).max(), 1e-6)
        self.assertLess(np.abs(rounded - exact).max(), 5e-3)
        support.succeed(
            support.CLEAVE, "check", self.MODEL,
            *[f"--set={key}" for key in (*keys, "mesh.tensor=2", 'target.architectures=["sm_90"]')],
            env=recorded())

    def test_device_bench(self):
        """The weights, batches and steps that are timed on a device: here only their losses.
        No other check has logits whose rows are filled up, as they leave a program that is checked."""
        for family in ("gpt2", "mixtral"):
            with self.subTest(family):
                flags = support.generate(
                    self.folder / f"{family}.onnx", family=family, layers=1, hidden=32, heads=2,
                    vocab=131, positions=8, batch=2, sequence=8, no_weights=True)
                losses, flops = [], []
                for kind in ("cpu", "cuda"):
                    out = self.folder / f"{family}-{kind}"
                    support.succeed(
                        support.CLEAVE, "compile", *flags, "--set", f"target.kind={kind}", "--set",
                        'target.architectures=["sm_90"]', "-o", out, env=recorded())
                    said = support.succeed(support.BUILD / "bin" / "cleave-device-bench", out,
                                           "--vocabulary", 131, "--steps", 5, "--warmup", 1,
                                           "--profile", 2, env=recorded())
                    said = json.loads(said)
                    losses.append(said["losses"])
                    families = said["families"]
                    table = compare.profile_table(
                        "small", said, {"copy_gb_per_s": 1, "bf16_tflop_per_s": 1})
                    self.assertIn("by family", table[0])
                    self.assertRegex(table[-1], rf"^\(all\) +{sum(f['launches'] for f in families.values()):g} ")
                    flops.append(families["gemm"]["flops"])
                    self.assertGreater(flops[-1], 0)
                    self.assertTrue(all(f["ms"] >= 0 for f in families.values()), families)
                    if kind == "cuda":
                        # AdamW reads the parameter, its gradient and both moments, and writes three.
                        size = sum(f["bytes"] for name, f in families.items() if "adamw" in name)
                        manifest = json.loads((out / "manifest.json").read_text())
                        parameters = sum(int(np.prod(tensor["shape"])) for tensor in manifest["tensors"]
                                         if tensor["kind"] == "parameter")
                        self.assertGreater(size, 4 * 7 * parameters)
                        self.assertLess(size, 1.2 * 4 * 7 * parameters)
                if family == "gpt2":
                    # In each of 3 products 16 tokens, 32 wide, have a class that there is not.
                    self.assertAlmostEqual(flops[1] - flops[0], 3 * 2 * 16 * 32)
                self.assertEqual(len(losses[0]), 6)
                self.assertLess(np.abs(np.subtract(*losses)).max(), 1e-5)
                self.assertLess(losses[0][4], losses[0][0] - 0.05)  # a batch for the second time

    def refused(self, pattern, *settings, env=None, flags=()):
        done = self.start("refused", "target.kind=cuda", *settings, env=env, flags=flags)
        self.assertIn(done.returncode, (2, 3), done.stdout + done.stderr)
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertRegex(errors[0], pattern)
        self.assertFalse((self.folder / "refused").exists())

    def test_machines_that_cannot_serve(self):
        self.refused(r"no CUDA device was found: run on a machine with a GPU",
                     env=recorded(devices=0))
        self.refused(r"is sm_75, but .* has only kernels.sm_90.cubin, kernels.sm_80.ptx; run "
                     r"on a device of sm_80 or newer", env=recorded(toolkit={}, capability=75))
        self.refused(r"the driver serves CUDA 11.8, but cleave was built with CUDA .*: update the "
                     r"driver", env=recorded(driver=11080))
        self.refused(r"ranks on device .* need \d+ bytes, but it has \d+ of 1000 free",
                     env=recorded(memory=1000))
        self.refused(r"nccl needs a device for each of the 2 ranks, but there are 1; use transport",
                     "mesh.data=2", "target.transport=nccl", env=recorded(devices=1))
        self.refused(r"links can be made slow only between ranks on CPUs", "mesh.data=2",
                     flags=["--slow-link", "5,1"])

    @unittest.skipIf(pathlib.Path("/dev/nvidiactl").exists(), "there is a device")
    def test_no_driver(self):
        self.refused(r"^cleave: error: cannot load libcuda.so.1 \(NVIDIA's driver; [^)]*\): cannot open "
                     r"shared object", env={"CLEAVE_HOST_KERNELS": "1"})

    def test_ptx_that_the_driver_does_not_take(self):
        self.refused(r"loading .*/kernels.sm_80.ptx, of which is said: line 7: no such "
                     r"instruction: CUDA_ERROR_INVALID_PTX",
                     env=recorded(toolkit={}, capability=120, refuses_ptx=1))

    def test_programs_without_kernels_for_the_host(self):
        """What is not computed would make false failures."""
        self.refused("the program has no kernels for what stands in for a device; compile it with "
                     "CLEAVE_HOST_KERNELS=1$", env=recorded() | {"CLEAVE_HOST_KERNELS": ""})

    def test_launchers(self):
        self.refused(r"MASTER_ADDR and MASTER_PORT, where .* are not set", "mesh.data=2",
                     env=recorded() | {"WORLD_SIZE": "2", "RANK": "0"})


if __name__ == "__main__":
    unittest.main()
