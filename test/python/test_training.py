"""Training: repeatable, independent of the mesh, killed and resumed."""

import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

import support
import training
from training import losses

MESH = "data=2,tensor=2"
KEYS = {"parallel__data__zero": 1, "dims__sequence": 32, "train__lr": 1e-3,
        "train__schedule": "constant"}


@unittest.skipUnless(training.IS_BUILT, "cleave is not built")
class Training(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, name, model, mesh, *flags, **keys):
        out = self.folder / name
        keys |= {k: v for k, v in KEYS.items() if "data=" in mesh or "data__" not in k}
        training.train(out, model, mesh, *flags, **keys)
        return losses(out)

    def start(self, name, *flags):
        command = training.command(self.folder / name, "gpt2", MESH, *flags, **KEYS)
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env=support.environment())

    def wait_for(self, path):
        until = time.monotonic() + 120
        while not path.exists():
            self.assertLess(time.monotonic(), until, path)
            time.sleep(0.005)

    def test_ranks_compute_what_one_rank_computes(self):
        for model, microbatches in (("gpt2", 2), ("llama", 1)):
            one = self.train(f"{model}-1", model, "", "--steps", 20)
            four = self.train(f"{model}-4", model, MESH, "--steps", 20,
                              train__microbatches=microbatches)
            self.assertEqual(len(four), 20)
            self.assertLess(four[-1], four[0] - 0.3)
            np.testing.assert_allclose(four, one, rtol=0, atol=1e-4)
            norms = [[line["grad_norm"] for line in support.read_log(self.folder / f"{model}-{n}")]
                     for n in (1, 4)]
            np.testing.assert_allclose(norms[1], norms[0], rtol=1e-4)

    def test_the_same_command_twice(self):
        first = self.train("a", "gpt2", MESH, "--steps", 5)
        second = self.train("b", "gpt2", MESH, "--steps", 5, "--cache", self.folder / "cache")
        self.assertEqual(first, second)
        compiled, = (self.folder / "cache").iterdir()
        again = training.shared() / "cache" / compiled.name
        files = {path.name: path.read_bytes() for path in compiled.iterdir()}
        self.assertLessEqual({"manifest.json", "program.bin", "kernels.so"}, set(files))
        for name, content in files.items():
            self.assertEqual(content, (again / name).read_bytes(), name)

    def test_compiled_programs_do_not_depend_on_the_heap(self):
        """With other bytes in allocated and freed memory (set by the C library) results are the same."""
        flags = support.MESHES["data=2, tensor=2"]
        for model in ("gpt2", "llama"):
            found = set()
            for fill in (1, 85, 254):
                out = self.folder / f"{model}-{fill}"
                done = support.run(support.CLEAVE, "compile", *training.flags(training.small(model)), *flags,
                                   "-o", out, env={"MALLOC_PERTURB_": str(fill)})
                self.assertEqual(done.returncode, 0, done.stderr)
                found.add(b"".join(path.read_bytes() for path in sorted(out.iterdir())))
            self.assertEqual(len(found), 1, model)

    def test_killed_and_resumed(self):
        whole = self.train("whole", "gpt2", MESH, "--steps", 70)
        process = self.start("killed", "--steps", 70, "--save-every", 50)
        self.wait_for(self.folder / "killed" / "checkpoint-000050")
        process.send_signal(signal.SIGKILL)
        process.wait()
        checkpoint = self.folder / "killed" / "checkpoint-000050"
        # On two ranks, before the original folder continues with four.
        for mesh in ("tensor=2", "data=2"):
            fewer = self.train(mesh, "gpt2", mesh, "--steps", 70, "--resume", checkpoint)
            self.assertEqual(len(fewer), 20)
            np.testing.assert_allclose(fewer, whole[50:], rtol=0, atol=1e-4)
        again = self.train("killed", "gpt2", MESH, "--steps", 70, "--resume", "latest")
        self.assertEqual(again, whole)
        for name in ("model", "optimizer"):
            contents = [(self.folder / run / "checkpoint-000070" / f"{name}.safetensors")
                        .read_bytes() for run in ("whole", "killed")]
            self.assertEqual(contents[0], contents[1])

    def test_a_signal_saves_and_exits_0(self):
        process = self.start("stopped", "--steps", 100000)
        self.wait_for(self.folder / "stopped" / "log.jsonl")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)
        step = support.read_log(self.folder / "stopped")[-1]["step"]
        checkpoint = self.folder / "stopped" / f"checkpoint-{step:06d}"
        self.assertEqual(json.loads((checkpoint / "state.json").read_text())["step"], step)

    def test_a_failing_rank_is_named_with_its_collective(self):
        said = training.explain("gpt2", MESH, **KEYS)["per_rank"][2]["collectives"]
        sources = {c["source"] for c in said if c["purpose"] == "activation"}
        # Rank 2 fails before a command of the second step, or goes silent, which the
        # watchdog detects.
        for number, (failure, pattern) in enumerate((
                ("2,3,30", r"rank 2 failed in action 'loss_grad', command 30 \(.*all_reduce"),
                ("2,3,30,1", r"all_reduce .*missing ranks: 2"))):
            done = support.run(*training.command(
                self.folder / f"failed{number}", "gpt2", MESH, "--steps", 5, "--inject-failure",
                failure, "--watchdog", 2, **KEYS))
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, pattern)
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            self.assertEqual(len(errors), 1)
            self.assertTrue(any(f"({source})" in errors[0] for source in sources), errors)


if __name__ == "__main__":
    unittest.main()
