"""cleave-run from end to end, on the program that cleave-make-bigram writes."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

import support
import trace_format

BUILD = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", support.ROOT / "build"))
RUN = BUILD / "bin" / "cleave-run"
MAKE = BUILD / "bin" / "cleave-make-bigram"


def losses(out):
    return [line["loss"] for line in log(out)]


def log(out):
    return support.read_log(out)


def check_trace(test, path, ranks, steps, microbatches):
    """Checks the trace format, and the slices of the program on each stream."""
    threads, arrows = trace_format.check(test, path, ranks)
    test.assertEqual(arrows, []) # only collectives, no point-to-point messages
    for rank in range(ranks): # commands of a rank do not overlap
        own = sorted(threads[rank, 2 * rank] + threads[rank, 2 * rank + 1],
                     key=lambda e: e["ts"])
        for before, after in zip(own, own[1:]):
            test.assertGreaterEqual(after["ts"], before["ts"] + before["dur"] - 0.002)
    for (rank, thread), own in threads.items():
        for event in own:
            test.assertEqual(thread % 2 == 1, event["cat"] == "all_reduce", event)
    slices = sum(threads.values(), [])
    test.assertEqual({e["args"]["step"] for e in slices}, set(range(1, steps + 1)))
    # The program of test/unit/Run/MakeBigram.cpp: loss_grad and update each
    # launch kernels on every rank; the gradient is all-reduced once a step.
    sums = [e for e in slices if e["cat"] == "all_reduce"]
    test.assertGreaterEqual(len(sums), steps * ranks)
    test.assertEqual(len(sums) % (steps * ranks), 0)
    test.assertGreaterEqual(sum(e["cat"] == "launch" for e in slices), steps * ranks * microbatches)


@unittest.skipUnless(RUN.exists() and MAKE.exists(), "cleave-run is not built")
class CleaveRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        random = np.random.default_rng(0)
        words = ["the ", "cat ", "sat ", "on ", "a ", "mat. ", "then ", "it ", "ran "]
        self.data = self.folder / "text.txt"
        self.data.write_text("".join(random.choice(words, 2000)))

    def program(self, ranks=1, microbatches=1):
        path = self.folder / f"program-{ranks}-{microbatches}"
        if not path.exists():
            subprocess.run([MAKE, path, str(ranks), str(microbatches)], check=True)
        return path

    def command(self, program, *flags):
        data = () if "--data" in flags else ("--data", self.data)
        return [str(x) for x in (RUN, program, "train", *data, *flags)]

    def run_tool(self, command, expect=0, **options):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                              cwd=self.folder, timeout=120, **options)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        if expect:
            self.assertTrue(done.stderr.startswith("cleave-run: error: "), done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr if expect else done.stdout

    def train(self, out, *flags, ranks=1, microbatches=1, expect=0):
        return self.run_tool(self.command(self.program(ranks, microbatches), "--out",
                                          self.folder / out, *flags), expect)

    def test_losses_do_not_depend_on_mesh_or_microbatches(self):
        printed = self.train("a")
        self.assertIn("step 20/20", printed)
        want = losses(self.folder / "a")
        self.assertEqual(len(want), 20)
        self.assertLess(want[-1], want[0] - 0.5)
        self.assertAlmostEqual(want[0], np.log(257), delta=0.05)
        for ranks, microbatches in [(1, 2), (2, 1), (4, 2), (3, 1), (2, 8)]:
            out = f"m{ranks}-{microbatches}"
            self.train(out, ranks=ranks, microbatches=microbatches)
            np.testing.assert_allclose(losses(self.folder / out), want, rtol=1e-10,
                                       err_msg=out)
            found, expected = log(self.folder / out)[-1], log(self.folder / "a")[-1]
            self.assertAlmostEqual(found["val_loss"], expected["val_loss"], places=10)
            self.assertAlmostEqual(found["grad_norm"], expected["grad_norm"], places=10)
        self.train("again", ranks=2)
        self.assertEqual(losses(self.folder / "again"), losses(self.folder / "m2-1"))

    def test_counters_are_those_of_a_ring(self):
        self.train("a", ranks=2)
        line = log(self.folder / "a")[-1]
        counters = json.loads((self.folder / "a" / "counters.json").read_text())
        if counters["allocations"]:  # not counted with sanitizers
            self.assertEqual(counters["allocations"]["step"], 0)
            self.assertGreater(counters["allocations"]["process"], 1000)
        # Two all-reduces of one number and one of the gradient, in double: for each,
        # a rank sends half of the elements twice, rounded down for an odd number.
        sent = [sum(t["sent_bytes"] for t in rank["traffic"]) for rank in counters["ranks"]]
        self.assertEqual(sum(sent), 2 * (257 * 257 + 2) * 8)
        self.assertEqual(line["sent_bytes"], max(sent))
        self.assertGreaterEqual(line["peak_bytes"], 4 * 257 * 257 * 8)

    def test_a_trace_has_a_track_for_every_rank_and_stream(self):
        self.train("a", "--steps", 3, "--trace", self.folder / "trace.json", ranks=2,
                   microbatches=2)
        check_trace(self, self.folder / "trace.json", ranks=2, steps=3, microbatches=2)
        counters = json.loads((self.folder / "a" / "counters.json").read_text())
        if counters["allocations"]:
            self.assertEqual(counters["allocations"]["step"], 0)
        message = self.train("b", "--trace", self.folder / "no" / "trace.json", expect=2)
        self.assertIn("trace.json: cannot be written: No such file", message)
        self.assertFalse((self.folder / "b").exists())

    def test_killed_and_resumed_is_bit_identical(self):
        self.train("whole", "--steps", 30, ranks=2)
        process = subprocess.Popen(
            self.command(self.program(2), "--out", self.folder / "a", "--steps", 30,
                         "--save-every", 5), cwd=self.folder, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not (self.folder / "a" / "checkpoint-000010").exists():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.train("a", "--steps", 30, "--resume", "latest", ranks=2)
        self.assertEqual(losses(self.folder / "a"), losses(self.folder / "whole"))
        self.train("b", "--steps", 30, "--resume", self.folder / "a" / "checkpoint-000010",
                   ranks=4)
        np.testing.assert_allclose(losses(self.folder / "b"),
                                   losses(self.folder / "whole")[10:], rtol=1e-10)
        for name in ("model", "optimizer"):
            file = f"checkpoint-000030/{name}.safetensors"
            self.assertEqual((self.folder / "a" / file).read_bytes(),
                             (self.folder / "whole" / file).read_bytes())

    def test_signals_save_and_exit_0(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            out = self.folder / f"s{int(number)}"
            process = subprocess.Popen(
                self.command(self.program(2), "--out", out, "--steps", 1000000,
                             "--eval-every", 0), cwd=self.folder, stdout=subprocess.PIPE,
                text=True)
            self.addCleanup(process.kill)
            until = time.monotonic() + 60
            while not (out / "log.jsonl").exists() or not (out / "log.jsonl").stat().st_size:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            process.send_signal(number)
            printed, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
            self.assertIn("stopped by a signal", printed)
            step = log(out)[-1]["step"]
            state = json.loads((out / f"checkpoint-{step:06d}" / "state.json").read_text())
            self.assertEqual(state["step"], step)

    def test_a_failing_rank_is_named(self):
        error = self.train("a", "--inject-failure", "1,7,1", "--eval-every", 0,
                           ranks=2, expect=3)
        self.assertIn("rank 1 failed", error)
        self.assertIn("all_reduce of loss", error)
        # The watchdog detects a silent rank.
        error = self.train("b", "--inject-failure", "1,7,0,1", "--watchdog", "0.5",
                           "--eval-every", 0, ranks=2, expect=3)
        self.assertIn("all_reduce of table.grad", error)
        self.assertRegex(error, r"\b1\b")

    def test_bad_input_exits_2_and_writes_nothing(self):
        def refused(pattern, *flags, ranks=1, data=None, out="bad"):
            if data is not None:
                self.data.write_bytes(data)
            error = self.train(out, *flags, ranks=ranks, expect=2)
            self.assertRegex(error, pattern)
            self.assertFalse((self.folder / "bad").exists())

        (self.folder / "mine").mkdir()
        refused("output folder exists", out="mine")
        refused("--steps", "--steps", 0)
        refused("--ranks is 3.* mesh of 2", "--ranks", 3, ranks=2)
        refused("no whole checkpoint", "--resume", "latest")
        refused("does not exist; give a checkpoint's folder", "--resume", self.folder / "nowhere")
        refused("cleave-run --help", "--colour", "red")
        refused("16 tokens are fewer than a sequence of 16", data=b"0123456789abcdef")
        np.save(self.folder / "big.npy", np.arange(300, dtype=np.int32))
        refused("position 257 has id 257, beyond the model's vocabulary of 257",
                "--data", self.folder / "big.npy", data=b"x")
        self.run_tool([RUN, self.folder / "none", "train"], expect=2)
        self.run_tool([RUN, self.program()], expect=2)
        program = self.program(1)
        (program / "program.bin").write_bytes((program / "program.bin").read_bytes()[:100])
        refused("damaged or truncated", data=b"x" * 1000)
        (program / "program.bin").unlink()
        refused("program.bin")

    def test_a_full_disk_is_one_message(self):
        program = self.program(1)
        mount = self.folder / "small"
        mount.mkdir()
        # Space for one checkpoint of 1.6 MB, not for two.
        script = (f"mount -t tmpfs -o size=2500k tmpfs {mount} && "
                  f"{' '.join(self.command(program, '--out', mount / 'a', '--save-every', '5'))}"
                  f"; code=$?; ls -A {mount}/a; exit $code")
        try:
            probe = subprocess.run(["unshare", "-r", "-m", "true"], capture_output=True)
        except FileNotFoundError:
            probe = None
        if probe is None or probe.returncode:
            self.skipTest("mounts are not allowed here")
        done = subprocess.run(["unshare", "-r", "-m", "sh", "-c", script],
                              capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "^cleave-run: error: .*no space left on the device; "
                                      "nothing of .*/a/checkpoint-000010 was kept; --resume "
                                      ".*/a/checkpoint-000005 goes on\n$")
        left = done.stdout.splitlines()[-4:]
        self.assertEqual(left, ["checkpoint-000005", "config.toml", "latest", "log.jsonl"])

    def test_infer(self):
        self.train("a", ranks=2)
        tokens = np.arange(11 * 16).reshape(11, 16) % 257
        np.savez(self.folder / "in.npz", input_ids=tokens)
        results = []
        for ranks in (1, 3):
            self.run_tool([RUN, self.program(ranks), "infer", "--inputs", self.folder / "in.npz",
                           "--outputs", self.folder / "out.npz", "--weights",
                           self.folder / "a" / "checkpoint-000020"])
            results.append(np.load(self.folder / "out.npz")["logits"])
        self.assertEqual(results[0].shape, (11, 16, 257))
        self.assertEqual(results[0].dtype, np.float64)
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0][0, 5], results[0].reshape(-1, 257)[5])
        # Reads the checkpoint directly, using only its file format.
        raw = (self.folder / "a/checkpoint-000020/model.safetensors").read_bytes()
        size = int.from_bytes(raw[:8], "little")
        entry = json.loads(raw[8:8 + size])["table"]
        begin, end = entry["data_offsets"]
        table = np.frombuffer(raw[8 + size:][begin:end], "<f8").reshape(entry["shape"])
        np.testing.assert_array_equal(results[0], table[tokens])

    def test_a_terminal_gets_a_progress_bar(self):
        import pty
        parent, child = pty.openpty()
        process = subprocess.Popen(self.command(self.program(1), "--out", self.folder / "a"),
                                   cwd=self.folder, stdout=child)
        os.close(child)
        text = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:
                break
            if not part:
                break
            text += part
        self.assertEqual(process.wait(), 0)
        os.close(parent)
        self.assertTrue(re.search(rb"\[=+ *\] \d+/20  loss [\d.]+  .* tokens/s  \d+:\d\d left",
                                  text), text[-400:])


if __name__ == "__main__":
    unittest.main()
