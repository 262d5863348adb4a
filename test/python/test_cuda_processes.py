"""Programs for CUDA devices with one process per rank, on the recorder, started by mpirun or as
torchrun starts them. Results and files are bit-identical to those of one process with threads. If a
process dies, never starts or finds no device, the run ends with a message."""
import json
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import numpy as np

import support
import training
from support import CLEAVE, RUN, read_log
from test_cuda_recorded import REPLAY, recorded, totals
from test_mpi import HAS_MPI, LIBRARY, MPIRUN

MODEL = support.ROOT / "test" / "Inputs" / "mlp.mlir"
KEYS = ["target.kind=cuda", 'target.architectures=["sm_90"]', "data.labels=labels",
        "data.validation=0", "train.lr=0.03"]
MESHES = {2: ["mesh.data=2", "parallel.data.zero=2"], 4: ["mesh.data=2", "mesh.tensor=2"]}


def free_port():
    """A free port whose successor is free, too."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


class Job:
    """Processes started one by one, with torchrun's environment variables."""

    def __init__(self, test, ranks, command, env, skip=(), **variables):
        self.processes = {}
        port = free_port()
        for rank in range(ranks):
            if rank in skip:
                continue
            variables_of_rank = {
                "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks,
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **variables}
            process = subprocess.Popen(
                [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=support.environment() | env | {
                    key: str(value) for key, value in variables_of_rank.items()})
            self.processes[rank] = process
            test.addCleanup(process.wait)
            test.addCleanup(process.kill)

    def join(self, seconds=60):
        """Exit codes by rank, and the outputs of all processes."""
        until = time.monotonic() + seconds
        out = err = ""
        for process in self.processes.values():
            more = process.communicate(timeout=max(1, until - time.monotonic()))
            out, err = out + more[0], err + more[1]
        return {rank: process.returncode for rank, process in self.processes.items()}, out, err


def errors_in(text):
    return [line for line in text.splitlines() if "error:" in line]


@unittest.skipUnless(REPLAY.exists(), "built without the CUDA toolkit")
class CudaProcesses(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
        np.savez(self.folder / "data.npz", x=x, labels=x[:, :5].argmax(1).astype(np.int32))

    def flags(self, ranks, *more):
        return [f"--set={key}" for key in (*KEYS, *MESHES[ranks], *more)]

    def train(self, out, ranks, *more, steps=4):
        return [CLEAVE, "train", MODEL, "--data", self.folder / "data.npz", "--steps", steps,
                "--out", self.folder / out, "--cache", training.shared() / "cache",
                *self.flags(ranks), *more]

    def threads(self, out, ranks):
        support.succeed(*self.train(out, ranks), "--set=target.transport=nccl",
                        env=recorded(devices=ranks))

    def mpirun(self, ranks, *command, devices=None):
        return support.run(MPIRUN, ranks, *command, env=recorded(devices=devices or ranks),
                           timeout=120)

    def same_runs(self, one, other):
        a, b = (read_log(self.folder / name) for name in (one, other))
        self.assertEqual(len(a), len(b))
        for mine, theirs in zip(a, b):
            for key in ("loss", "grad_norm", "sent_bytes"):
                self.assertEqual(mine[key], theirs[key], (key, mine["step"]))
        self.assertGreater(a[-1]["sent_bytes"], 0)
        for file in ("model.safetensors", "optimizer.safetensors"):
            paths = [self.folder / name / "checkpoint-000004" / file for name in (one, other)]
            self.assertEqual(paths[0].read_bytes(), paths[1].read_bytes(), file)

    def found_nothing(self, stderr, ranks):
        """Every process ran what it recorded, without an error."""
        lines = [line for line in stderr.splitlines() if line.startswith("recorder: operations")]
        self.assertEqual(len(lines), ranks, stderr)
        for line in lines:
            seen = totals(line)
            self.assertEqual((seen["errors"], seen["not run"]), (0, 0), line)
            for what in ("collectives", "graph launches"):
                self.assertGreater(seen[what], 0, line)

    def wait_for_step(self, out, process):
        until = time.monotonic() + 60
        path = self.folder / out / "log.jsonl"
        while not path.exists() or not path.stat().st_size:
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(process.poll())
            time.sleep(0.02)

    @unittest.skipUnless(HAS_MPI and LIBRARY.exists(), "mpirun is not installed (openmpi-bin)")
    def test_mpirun(self):
        for ranks in MESHES:
            with self.subTest(ranks=ranks):
                self.threads(f"t{ranks}", ranks)
                done = self.mpirun(ranks, *self.train(f"m{ranks}", ranks))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count("saved "), 1)
                self.found_nothing(done.stderr, ranks)
                self.same_runs(f"t{ranks}", f"m{ranks}")

    @unittest.skipUnless(HAS_MPI and LIBRARY.exists(), "mpirun is not installed (openmpi-bin)")
    def test_mpirun_check(self):
        done = self.mpirun(2, CLEAVE, "check", MODEL, "--json", "--steps", 2, *self.flags(2))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(json.loads(done.stdout)["pass"])

    @unittest.skipUnless(HAS_MPI and LIBRARY.exists(), "mpirun is not installed (openmpi-bin)")
    def test_mpirun_with_too_few_devices(self):
        done = self.mpirun(2, *self.train("few", 2), devices=1)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(len(errors_in(done.stderr)), 1, done.stderr)
        self.assertRegex(done.stderr, r"a device for each process, but process \d+ of rank 0 on "
                                      r"\S+ and process \d+ of rank 1 on \S+ share one")
        self.assertFalse((self.folder / "few").exists())

    #--- Started as torchrun does ----------------------------------------------

    def job(self, ranks, command, devices=None, **more):
        return Job(self, ranks, command, recorded(devices=devices or ranks), **more)

    def fails(self, job, code, pattern, lines=1):
        """All processes end with the code and print `lines` matching lines."""
        codes, out, err = job.join()
        self.assertEqual(set(codes.values()), {code}, (codes, out, err))
        self.assertEqual(len(errors_in(err)), lines, err)
        for line in errors_in(err):
            self.assertRegex(line, pattern)

    def test_torchrun(self):
        for ranks in MESHES:
            with self.subTest(ranks=ranks):
                self.threads(f"t{ranks}", ranks)
                codes, out, err = self.job(ranks, self.train(f"p{ranks}", ranks)).join()
                self.assertEqual(set(codes.values()), {0}, out + err)
                self.assertEqual(out.count("saved "), 1)
                self.found_nothing(err, ranks)
                self.same_runs(f"t{ranks}", f"p{ranks}")

    def test_torchrun_check_and_infer(self):
        check = [CLEAVE, "check", MODEL, "--json", "--steps", 2, *self.flags(2)]
        codes, out, err = self.job(2, check).join()
        self.assertEqual(set(codes.values()), {0}, out + err)
        self.assertTrue(json.loads(out)["pass"])
        x = np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32)
        np.savez(self.folder / "in.npz", x=x)
        results = []
        for name, ranks in (("one", 1), ("two", 2)):
            path = self.folder / f"{name}.npz"
            keys = [f"--set={key}" for key in (*KEYS[:2], f"mesh.tensor={ranks}")]
            codes, out, err = self.job(ranks, [CLEAVE, "infer", MODEL, "--inputs",
                                               self.folder / "in.npz", "--outputs", path,
                                               "--cache", training.shared() / "cache", *keys]).join()
            self.assertEqual(set(codes.values()), {0}, out + err)
            results.append(np.load(path))
        for name in results[0]:
            np.testing.assert_allclose(results[0][name], results[1][name], rtol=1e-5, atol=1e-6)

    def test_an_executable(self):
        exe = self.folder / "mlp"
        support.succeed(CLEAVE, "compile", MODEL, "--emit", "exe", "-o", exe, *self.flags(2),
                        env=recorded())
        codes, out, err = self.job(2, [exe, "train", "--data", self.folder / "data.npz", "--steps", 4,
                                       "--out", self.folder / "exe"]).join()
        self.assertEqual(set(codes.values()), {0}, out + err)
        self.threads("t", 2)
        self.same_runs("t", "exe")

    def test_devices_that_the_launcher_has_dealt_out(self):
        """Each process sees one device, a different one, under number 0."""
        command = ["sh", "-c", 'CLEAVE_RECORDER_FIRST=$RANK exec "$@"', "sh", *self.train("p", 2)]
        codes, out, err = self.job(2, command, devices=1).join()
        self.assertEqual(set(codes.values()), {0}, out + err)

    def test_machines_that_count_other_restarts(self):
        """torchrun's agent counts failures on its own machine."""
        command = ["sh", "-c", 'TORCHELASTIC_RESTART_COUNT=$RANK exec "$@"', "sh",
                   *self.train("p", 2)]
        codes, out, err = self.job(2, command).join()
        self.assertEqual(set(codes.values()), {0}, out + err)

    def test_too_few_devices(self):
        for command in self.train("few", 2), [CLEAVE, "check", MODEL, *self.flags(2)]:
            self.fails(self.job(2, command, devices=1), 2,
                       r"process \d+ of rank 0 on \S+ and process \d+ of rank 1 on \S+ share one")

    def test_bad_input_ends_all(self):
        self.fails(self.job(2, self.train("a", 2, "--set=mesh.data=3")), 2,
                   "mesh .data=3. has 3 ranks, but there are 2")
        self.fails(self.job(2, self.train("a", 2, "--set=target.kind=cpu")), 2, "brings no MPI")
        for key, value in (("MASTER_PORT", "x"), ("CLEAVE_JOIN_TIMEOUT", "long"),
                           ("WORLD_SIZE", 3000000000), ("RANK", 7)):
            job = self.job(2, self.train("a", 2), **{key: value})
            self.fails(job, 2, f'{key} is "?{value}"?, expected', lines=2)

    def test_who_never_comes_is_named(self):
        self.fails(self.job(4, self.train("a", 4), skip=[2], CLEAVE_JOIN_TIMEOUT=4), 3,
                   r"missing ranks: 2: their processes have not come to 127.0.0.1:\d+ within 4 s")
        self.fails(self.job(2, self.train("a", 2), skip=[0], CLEAVE_JOIN_TIMEOUT=1), 3,
                   r"rank 1 has not reached rank 0 at 127.0.0.1:\d+ within 1 s")

    def test_another_program_at_the_port(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            job = self.job(1, self.train("a", 2), WORLD_SIZE=2,
                           CLEAVE_PORT=taken.getsockname()[1])
            self.fails(job, 2, "choose another with CLEAVE_PORT")

    def test_a_process_that_dies_ends_the_others(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                job = self.job(4, self.train(f"k{victim}", 4, steps=1000000))
                self.wait_for_step(f"k{victim}", job.processes[0])
                begin = time.monotonic()
                job.processes[victim].kill()
                codes, _, err = job.join()
                self.assertLess(time.monotonic() - begin, 10)
                self.assertEqual(codes, {rank: -9 if rank == victim else 3 for rank in range(4)}, err)
                self.assertEqual(len(errors_in(err)), 1, err)
                self.assertRegex(err, f"process.* of rank {victim}.* has ended")

    def test_a_process_that_stops_is_named(self):
        """A process dies in a collective, or between steps, when process 0 asks it for logged values."""
        for attempt in range(4 if support.ALL else 2):
            with self.subTest(attempt=attempt):
                out = f"s{attempt}"
                job = self.job(2, self.train(out, 2, "--watchdog", 2, steps=1000000))
                self.wait_for_step(out, job.processes[0])
                begin = time.monotonic()
                job.processes[1].send_signal(signal.SIGSTOP)
                _, err = job.processes[0].communicate(timeout=60)
                self.assertLess(time.monotonic() - begin, 20)
                self.assertEqual(job.processes[0].returncode, 3, err)
                self.assertEqual(len(errors_in(err)), 1, err)
                self.assertRegex(err, "missing ranks: 1|rank 1")
                job.processes[1].send_signal(signal.SIGCONT)
                job.processes[1].communicate(timeout=20)
                self.assertEqual(job.processes[1].returncode, 3)

    def test_a_host_that_stops_is_named(self):
        """A process stops while it trains, and while the others wait for it to start."""
        def stopped(job, patience, words):
            begin = time.monotonic()
            job.processes[0].send_signal(signal.SIGSTOP)
            _, err = job.processes[1].communicate(timeout=60)
            self.assertLess(time.monotonic() - begin, patience + 10)
            self.assertEqual(job.processes[1].returncode, 3, err)
            self.assertEqual(len(errors_in(err)), 1, err)
            self.assertRegex(err, words)
            job.processes[0].kill()
            job.processes[0].send_signal(signal.SIGCONT)
        job = self.job(2, self.train("h", 2, "--watchdog", 2, steps=1000000))
        self.wait_for_step("h", job.processes[0])
        stopped(job, 2, "rank 0 does not respond|missing ranks: 0")
        waiting = self.job(4, self.train("a", 4), skip=[2], CLEAVE_JOIN_TIMEOUT=6)
        time.sleep(2)
        stopped(waiting, 6, "rank 0 at .* does not respond: it has given no sign of life")

    def test_a_signal_saves(self):
        job = self.job(2, self.train("g", 2, steps=1000000))
        self.wait_for_step("g", job.processes[0])
        for process in job.processes.values():  # as torchrun does
            process.send_signal(signal.SIGTERM)
        codes, out, err = job.join()
        self.assertEqual(set(codes.values()), {0}, err)
        self.assertIn("stopped by a signal", out)


if __name__ == "__main__":
    unittest.main()
