"""The mpi transport: mpirun starts a process for every rank. Results, bytes sent and files are
identical to those of the local transport; a process that dies, fails or hangs ends the run
with a message."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np

import support
import training
from support import BUILD, CLEAVE, ROOT, RUN, read_log
from test_cleave_run import check_trace

MPIRUN = ROOT / "test" / "mpirun.sh"
MAKE = BUILD / "bin" / "cleave-make-bigram"
LIBRARY = BUILD / "lib" / "libcleave-mpi.so"
HAS_MPI = shutil.which("mpirun") is not None


def mpirun(ranks, *command, **options):
    """Runs a command in `ranks` processes."""
    return support.run(MPIRUN, ranks, *command, **options)


def processes_of(mark, program=RUN):
    """The pids of the processes with `mark` in their arguments, by rank."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if not folder.name.isdigit() or folder.joinpath("exe").resolve() != program:
                continue
            if mark not in folder.joinpath("cmdline").read_bytes().decode().split("\0"):
                continue
            for entry in folder.joinpath("environ").read_bytes().decode().split("\0"):
                if entry.startswith("OMPI_COMM_WORLD_RANK="):
                    found[int(entry.split("=")[1])] = int(folder.name)
        except OSError:
            continue  # the process has ended
    return found


def equal_runs(test, one, other):
    """Two runs have the same results, bytes sent and counters."""
    a, b = read_log(one), read_log(other)
    test.assertEqual(len(a), len(b))
    for mine, theirs in zip(a, b):
        for key in ("step", "loss", "val_loss", "grad_norm", "lr", "sent_bytes", "tokens"):
            test.assertEqual(mine[key], theirs[key], (key, mine["step"]))
    test.assertGreater(a[-1]["sent_bytes"], 0)
    counted = [[(rank["traffic"], rank["attention_flops"])
                for rank in json.loads((out / "counters.json").read_text())["ranks"]]
               for out in (one, other)]
    test.assertEqual(counted[0], counted[1])
    names = sorted(path.name for path in one.glob("checkpoint-*"))
    test.assertEqual(names, sorted(path.name for path in other.glob("checkpoint-*")))
    test.assertTrue(names)
    for name in names:
        for file in ("model.safetensors", "optimizer.safetensors", "state.json"):
            test.assertEqual((one / name / file).read_bytes(), (other / name / file).read_bytes(),
                             f"{name}/{file}")


@unittest.skipUnless(HAS_MPI, "mpirun is not installed (openmpi-bin)")
@unittest.skipUnless(RUN.exists() and MAKE.exists() and LIBRARY.exists(), "cleave-run is not built")
class MpiRun(unittest.TestCase):
    """cleave-run on a program with a few kernels."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        random = np.random.default_rng(0)
        words = ["the ", "cat ", "sat ", "on ", "a ", "mat. ", "then ", "it ", "ran "]
        (self.folder / "text.txt").write_text("".join(random.choice(words, 2000)))

    def program(self, ranks, microbatches=1):
        path = self.folder / f"program-{ranks}-{microbatches}"
        if not path.exists():
            subprocess.run([MAKE, path, str(ranks), str(microbatches)], check=True)
        return path

    def command(self, out, *flags, ranks=4, microbatches=1):
        return [RUN, self.program(ranks, microbatches), "train", "--data",
                self.folder / "text.txt", "--out", self.folder / out, *flags]

    def local(self, out, *flags, **sizes):
        support.succeed(*self.command(out, *flags, **sizes))
        return self.folder / out

    def mpi(self, out, *flags, expect=0, ranks=4, processes=None, **sizes):
        done = mpirun(processes or ranks, *self.command(out, *flags, ranks=ranks, **sizes),
                      timeout=1200)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        if expect == 0:
            self.assertEqual(done.stderr, "")
            return self.folder / out
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(len(errors), 1, done.stderr)
        return errors[0]

    def test_bits_bytes_and_files_are_those_of_local(self):
        for ranks, microbatches in support.some([(3, 2), (2, 1), (4, 2)], 1):
            sizes = {"ranks": ranks, "microbatches": microbatches}
            equal_runs(self, self.local(f"l{ranks}", "--save-every", 10, **sizes),
                       self.mpi(f"m{ranks}", "--save-every", 10, **sizes))

    def test_one_process_prints_and_a_trace_has_the_ranks_of_all(self):
        done = mpirun(4, *self.command("a", "--steps", 3, "--trace", self.folder / "trace.json",
                                       microbatches=2))
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout.count("step 3/3"), 1)
        self.assertEqual(done.stdout.count("saved "), 1)
        check_trace(self, self.folder / "trace.json", ranks=4, steps=3, microbatches=2)

    def test_no_step_allocates(self):
        out = self.mpi("a")
        allocations = json.loads((out / "counters.json").read_text())["allocations"]
        if allocations:  # not counted with sanitizers
            # MPI buffers a message that arrives before its receive.
            self.assertLess(allocations["after_warm_up"], 20)

    def test_resumes_what_local_saved_and_the_reverse(self):
        whole = self.local("whole", "--steps", 20)
        first = self.local("l", "--steps", 10)
        # The schedule depends on the number of steps, so a run of 20 steps is stopped.
        self.local("half", "--steps", 20, "--save-every", 10)
        checkpoint = self.folder / "half" / "checkpoint-000010"
        mpi = self.mpi("m", "--steps", 20, "--save-every", 10)
        self.assertEqual(first.exists(), True)
        for name, resumed in [
                ("by-mpi", self.mpi("by-mpi", "--steps", 20, "--resume", checkpoint)),
                ("by-local", self.local("by-local", "--steps", 20, "--resume",
                                        mpi / "checkpoint-000010"))]:
            self.assertEqual(training.losses(resumed), training.losses(whole)[10:], name)
            for file in ("model", "optimizer"):
                self.assertEqual(
                    (resumed / f"checkpoint-000020/{file}.safetensors").read_bytes(),
                    (whole / f"checkpoint-000020/{file}.safetensors").read_bytes())

    def test_another_number_of_processes_exits_2(self):
        error = self.mpi("a", ranks=4, processes=3, expect=2)
        self.assertRegex(error, "OMPI_COMM_WORLD_SIZE is 3, but .* a mesh of 4 ranks")
        error = self.mpi("a", ranks=2, processes=1, expect=2)
        self.assertRegex(error, "OMPI_COMM_WORLD_SIZE is 1, but .* a mesh of 2 ranks")
        self.assertFalse((self.folder / "a").exists())

    def test_bad_input_and_dry_runs_end_all_processes(self):
        error = self.mpi("a", "--resume", self.folder / "nowhere", expect=2)
        self.assertIn("does not exist; give a checkpoint's folder", error)
        self.mpi("a", "--dry-run")
        self.assertFalse((self.folder / "a").exists())
        self.assertEqual(mpirun(2, RUN, "--help").returncode, 0)

    def test_a_rank_that_fails_is_named(self):
        # The second of a step's four action runs: update, whose first command
        # reduces the gradient.
        for rank in (0, 2):
            error = self.mpi(f"f{rank}", "--inject-failure", f"{rank},7,1", "--eval-every", 0,
                             expect=3)
            self.assertIn(f"rank {rank} failed in action 'update', command 1", error)
            self.assertIn("all_reduce of loss", error)

    def test_a_silent_rank_is_named_by_the_watchdog(self):
        for rank in (0, 2):
            error = self.mpi(f"h{rank}", "--inject-failure", f"{rank},7,0,1", "--watchdog", 1,
                             "--eval-every", 0, expect=3)
            self.assertIn("all_reduce of table.grad", error)
            self.assertIn(f"missing ranks: {rank}", error)

    def start(self, out, command=None, more=()):
        """Starts an endless run; returns once it has completed a step."""
        flags = ("--steps", 1000000, "--eval-every", 0, *more)
        log = open(self.folder / f"{out}.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [str(x) for x in (MPIRUN, 4, *(command or ()), *self.command(out, *flags))],
            stdout=log, stderr=subprocess.STDOUT, env=support.environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until = time.monotonic() + 60
        path = self.folder / out / "log.jsonl"
        while not path.exists() or not path.stat().st_size:
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(process.poll(), (self.folder / f"{out}.log").read_text())
            time.sleep(0.02)
        pids = processes_of(str(self.folder / out))
        self.assertEqual(sorted(pids), [0, 1, 2, 3])
        return process, pids

    def test_a_process_that_dies_ends_the_others_with_3(self):
        for victim in (2, 0):
            # A shell that the launcher does not signal records exit codes and stderr, because the
            # launcher may exit before it has forwarded them.
            note = self.folder / f"code{victim}"
            script = (f'trap "" TERM; note={note}.$OMPI_COMM_WORLD_RANK; "$@" 2> $note.said; '
                      'echo $? > $note')
            process, pids = self.start(f"k{victim}", ["setsid", "-w", "sh", "-c", script, "sh"])
            os.kill(pids[victim], signal.SIGKILL)
            process.wait(timeout=60)
            log = (self.folder / f"k{victim}.log").read_text()
            notes = [pathlib.Path(f"{note}.{rank}") for rank in range(4)]
            until = time.monotonic() + 20
            while not all(path.exists() and path.read_text() for path in notes):
                self.assertLess(time.monotonic(), until, log)
                time.sleep(0.02)
            log += "".join(path.with_name(f"{path.name}.said").read_text() for path in notes)
            self.assertRegex(log, rf"error: (rank {victim} failed in action '\w+': )?(the )?process.* of rank "
                                  rf"{victim}.* has ended")
            if victim:
                self.assertRegex(log, f"rank {victim}.* has ended.*; no checkpoint was saved")
            codes = [int(path.read_text()) for path in notes]
            want = [3] * 4
            want[victim] = 137
            self.assertEqual(codes, want, log)

    def test_a_host_that_is_stopped(self):
        """The others end when the stopped process gives no sign of life; one that is continued in time does no harm."""
        process, pids = self.start("frozen", more=("--watchdog", 5))
        log = self.folder / "frozen.log"
        os.kill(pids[0], signal.SIGSTOP)
        time.sleep(2)
        os.kill(pids[0], signal.SIGCONT)
        time.sleep(1)
        self.assertIsNone(process.poll(), log.read_text())
        os.kill(pids[0], signal.SIGSTOP)
        begin = time.monotonic()
        try:
            while "error:" not in log.read_text() and time.monotonic() - begin < 20:
                time.sleep(0.1)
            self.assertIn("does not respond", log.read_text())
            self.assertLess(time.monotonic() - begin, 10)
        finally:
            for pid in pids.values():
                for number in (signal.SIGCONT, signal.SIGKILL):
                    try:
                        os.kill(pid, number)
                    except ProcessLookupError:
                        pass
            process.wait(timeout=60)

    def test_signals_save_and_exit_0(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            out = f"s{int(number)}"
            process, pids = self.start(out)
            for pid in pids.values():  # as a batch system signals them
                os.kill(pid, number)
            self.assertEqual(process.wait(timeout=60), 0)
            self.assertIn("stopped by a signal", (self.folder / f"{out}.log").read_text())
            step = read_log(self.folder / out)[-1]["step"]
            state = self.folder / out / f"checkpoint-{step:06d}" / "state.json"
            self.assertEqual(json.loads(state.read_text())["step"], step)

    def test_infer(self):
        trained = self.local("a", ranks=2)
        tokens = np.arange(11 * 16).reshape(11, 16) % 257
        np.savez(self.folder / "in.npz", input_ids=tokens)
        results = []
        for name, start in [("l", ()), ("m", (MPIRUN, 3))]:
            support.succeed(*start, RUN, self.program(3), "infer", "--inputs",
                            self.folder / "in.npz", "--outputs", self.folder / f"{name}.npz",
                            "--weights", trained / "checkpoint-000020")
            results.append(np.load(self.folder / f"{name}.npz")["logits"])
        np.testing.assert_array_equal(*results)


@unittest.skipUnless(HAS_MPI, "mpirun is not installed (openmpi-bin)")
@unittest.skipUnless(CLEAVE.exists() and RUN.exists() and LIBRARY.exists(), "cleave is not built")
class MpiModels(unittest.TestCase):
    """The driver on small models, with 4 ranks."""

    MESH = "data=2,tensor=2"
    KEYS = {"parallel__data__zero": 3}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_training_is_that_of_local(self):
        for model, zero in support.some([("gpt2", 3), ("gpt2", 1), ("llama", 3)], 1):
            outs = []
            for name, start in [("l", ()), ("m", (MPIRUN, 4))]:
                out = self.folder / f"{model}-{zero}-{name}"
                keys = self.KEYS | {"parallel__data__zero": zero}
                support.succeed(*start, *training.command(
                    out, training.small(model), self.MESH, "--steps", 3, **keys))
                outs.append(out)
            equal_runs(self, *outs)

    def test_a_ring(self):
        outs = []
        for name, start in [("l", ()), ("m", (MPIRUN, 4))]:
            outs.append(self.folder / name)
            support.succeed(*start, *training.command(
                outs[-1], training.small("llama"), "sequence=4", "--steps", 2,
                parallel__sequence='[{kind="ring",axis="sequence",plan="ring"}]'))
        equal_runs(self, *outs)
        counters = json.loads((outs[1] / "counters.json").read_text())
        self.assertTrue(all(rank["attention_flops"] > 0 for rank in counters["ranks"]))

    def test_stages_on_two_ranks(self):
        """Chimera with data ranks: files, too, equal those of the local transport."""
        outs = []
        for name, start in [("l", ()), ("m", (MPIRUN, 4))]:
            outs.append(self.folder / name)
            support.succeed(*start, *training.command(
                outs[-1], training.small("gpt2"), "pipeline=2,data=2", "--steps", 2,
                train__microbatches=2, parallel__data__zero=1,
                parallel__pipeline__schedule="chimera"))
        equal_runs(self, *outs)

    def check(self, model, *more):
        return mpirun(4, CLEAVE, "check", *training.flags(training.small(model), self.MESH, **self.KEYS),
                      *more, timeout=1200)

    def test_check_passes(self):
        for model in support.some(("llama", "gpt2"), 1):
            done = self.check(model, "--json", "--steps", 2)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            report = json.loads(done.stdout)
            self.assertTrue(report["pass"])
            self.assertEqual(report["max_replica_difference"], 0)
            self.assertEqual({tensor["part"] for tensor in report["tensors"]},
                             {"exact", "rounding"})

    def test_check_finds_a_fault(self):
        done = self.check("gpt2", "--inject", "drop-collective", "--steps", 1)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("drop-collective"), 1)

    def test_a_host_that_is_stopped_while_it_compiles(self):
        """The process dies while compiling, when the others wait in MPI_Init, which has no timeout."""
        out = self.folder / "compiling"
        command = training.command(out, "gpt2.dynamo18", "data=2", train__steps=2)
        log = open(self.folder / "compiling.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(x) for x in (MPIRUN, 2, *command)], stdout=log, stderr=subprocess.STDOUT,
                                   env=support.environment() | {"CLEAVE_JOIN_TIMEOUT": "1"})
        pids = {}
        try:
            while 0 not in pids:
                self.assertIsNone(process.poll(), (self.folder / "compiling.log").read_text())
                pids = processes_of(str(out), CLEAVE)
            os.kill(pids[0], signal.SIGSTOP)
            begin = time.monotonic()
            while process.poll() is None and time.monotonic() - begin < 20:
                if "error:" in (self.folder / "compiling.log").read_text():
                    break
                time.sleep(0.05)
            self.assertIn("rank 0 does not respond: its process", (self.folder / "compiling.log").read_text())
        finally:
            for number in (signal.SIGCONT, signal.SIGKILL):
                try:
                    os.kill(pids.get(0, 0) or process.pid, number)
                except ProcessLookupError:
                    pass
            process.wait(timeout=60)

    def test_refusals(self):
        def refused(pattern, ranks, *command):
            done = mpirun(ranks, *command)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertRegex(done.stderr, pattern)

        gpt2 = training.small("gpt2")
        model = training.flags(gpt2, self.MESH, **self.KEYS)
        for command in (["check", *model], training.command(self.folder / "x", gpt2, self.MESH,
                                                            **self.KEYS)[1:]):
            refused(r"the mesh \(data=2, tensor=2\) has 4 ranks, but there are 3", 3, CLEAVE,
                    *command)
            refused('target.transport = "local" runs all ranks in one process, but the launcher '
                    "started 4", 4, CLEAVE, *command, "--set", "target.transport=local")
        refused("target.transport.*nccl.*expected auto, local or mpi", 2, CLEAVE, "explain", *model, "--set",
                "target.transport=nccl")
        done = support.run(CLEAVE, "check", *model, "--set", "target.transport=mpi")
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs a launcher: start with mpirun -n 4", done.stderr)


if __name__ == "__main__":
    unittest.main()
