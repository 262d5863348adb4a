"""test/gpu/run without a device: its output for parts that pass, fail, are skipped or miss a
goal. NVIDIA's programs, CMake and the built programs are replaced by small stand-in scripts."""

import contextlib
import importlib.util
import io
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import types
import unittest
from unittest import mock

import support

GPU = support.ROOT / "test" / "gpu"
RUN = GPU / "run"

BANDWIDTH = """\
H100, sm_90
what (medians of 20; bytes read and written)         time          rate  of copy
copy by the driver, 1 GiB                        0.800 ms     2684 GB/s  100.0 %
fill, 1 GiB                                      0.400 ms     2684 GB/s   {fill} %
gemm, bf16, 8192 x 8192 x 8192                   1.600 ms    687.0 TFLOP/s
"""
SANITIZED = {"memcheck": "========= ERROR SUMMARY: 0 errors",
             "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"}


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def is_alive(pid):
    """Whether a process runs; zombies do not count."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Machine(unittest.TestCase):
    """A folder of stand-in scripts, and one of rows."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.tools, self.built, self.rows = (self.folder / name for name in ("tools", "built", "rows"))
        for folder in (self.tools, self.built):
            folder.mkdir()
        self.devices("9.0")
        self.tool("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.1'")
        self.tool("cmake", f"""
            if [ "$1" = --build ]; then mkdir -p "$2/bin"; cp {self.built}/* "$2/bin/"; fi""")
        self.tool("python3", f"""
            case $1 in
            -c) exit 0 ;;
            -u) shift; echo "$@" >{self.folder}/compared; exit 0 ;;
            *) exec {sys.executable} "$@" ;;
            esac""")
        self.tool("compute-sanitizer", f"""
            tool=$2
            shift 4
            "$@" || exit
            case $tool in
            memcheck) echo '{SANITIZED["memcheck"]}' ;;
            racecheck) echo '{SANITIZED["racecheck"]}' ;;
            esac""")
        self.program("cleave-gpu-kernels", f"""
            [ "$1" != --bandwidth ] || cat {self.folder}/bandwidth""")
        self.program("cleave-replay", "echo 'one_rank  pass'; echo 'tensor_2  pass'")
        (self.folder / "bandwidth").write_text(BANDWIDTH.format(fill=" 99.0"))
        for row in ("one_rank", "tensor_2"):
            self.row(row)
        self.row("bench/gpt2", "bench.json", ".")
        self.names("one_rank", "tensor_2", "bench/gpt2")

    def script(self, path, text):
        path.write_text("#!/bin/sh\n" + textwrap.dedent(text) + "\n")
        path.chmod(0o755)

    def tool(self, name, text):
        self.script(self.tools / name, text)

    def program(self, name, text):
        self.script(self.built / name, text)

    def devices(self, *capabilities):
        lines = "\n".join(f"NVIDIA, {version}, 580.1, 80000 MiB" for version in capabilities)
        self.tool("nvidia-smi", f"echo '{lines}'")

    def row(self, name, file="data.bin", program="exact-sharded"):
        (self.rows / name / program).mkdir(parents=True, exist_ok=True)
        (self.rows / name / file).touch()
        (self.rows / name / program / "kernels.sm_90.cubin").touch()

    def names(self, *lines):
        (self.rows / "rows.txt").write_text("".join(line + "\n" for line in lines))

    def settings(self, **settings):
        return {"PATH": f"{self.tools}:/usr/bin:/bin", "CUDA_HOME": str(self.folder / "none"),
                "CUDA_VISIBLE_DEVICES": "", "CLEAVE_GPU_BUILD": str(self.folder / "build"),
                "CLEAVE_GPU_SECONDS": "480", **settings}

    def run_all(self, *words, **settings):
        """The exit code, {row: verdict} and the printed text."""
        done = support.run(RUN, *words, self.rows, env=self.settings(**settings))
        said = done.stdout + done.stderr
        table = dict(re.findall(r"^(\S.*?) +\d+ s  (.*)$", done.stdout, re.MULTILINE))
        self.assertTrue(done.returncode == 2 or f"exit code {done.returncode}\n" in done.stdout, said)
        return done.returncode, table, said


class Parts(Machine):
    def test_all_pass(self):
        self.devices("9.0", "9.0")
        code, table, said = self.run_all()
        self.assertEqual(code, 0, said)
        self.assertEqual(set(table.values()), {"pass"}, said)
        for part in ("kernel families", "checks, ranks share", "the same without cuDNN",
                     "checks, a device for each of up to 2 ranks", "bandwidth", "beside PyTorch",
                     "compute-sanitizer, memcheck (one_rank tensor_2)", "compute-sanitizer, racecheck"):
            self.assertEqual(sum(row.startswith(part) for row in table), 1, said)
        self.assertIn(" 0 left out", said)
        self.assertIn("0 of 2 below 85 %", said)

    def test_what_a_machine_cannot_do(self):
        """An unsupported tool fails only if it was requested by name."""
        self.tool("compute-sanitizer", "echo '========= Error: Device not supported'; exit 1")
        code, table, said = self.run_all()
        self.assertEqual(code, 0, said)
        self.assertEqual(table["checks, a device for each rank"], "left out: there is one device, nccl needs two")
        for tool in SANITIZED:
            self.assertEqual(table[f"compute-sanitizer, {tool} (one_rank tensor_2)"],
                             "left out: this machine does not admit it")
        self.assertIn(" 3 left out", said)
        for part in ("nccl", "sanitizer"):
            code, table, said = self.run_all("--only", part)
            self.assertEqual(code, 3, said)
            self.assertTrue(table and all(verdict.startswith("left out") for verdict in table.values()), said)

    @unittest.skipIf(shutil.which("compute-sanitizer", path="/usr/bin:/bin"), "there is a compute-sanitizer")
    def test_without_a_sanitizer(self):
        (self.tools / "compute-sanitizer").unlink()
        for words, expected in ((), 0), (("--only", "sanitizer"), 3):
            code, table, said = self.run_all(*words)
            self.assertEqual(code, expected, said)
            self.assertEqual(table["compute-sanitizer"], "left out: compute-sanitizer is not there")

    def test_without_torch(self):
        self.tool("python3", "echo no torch >&2; exit 1")
        code, table, said = self.run_all()
        self.assertEqual(code, 3, said)
        self.assertEqual(table["beside PyTorch (torch.compile, bf16)"],
                         "left out: python3 cannot import torch and transformers")

    def test_folders_without_rows(self):
        shutil.rmtree(self.rows)
        self.rows.mkdir()
        code, table, said = self.run_all("--only", "checks,nccl,bench,sanitizer")
        self.assertEqual(code, 3, said)
        self.assertEqual(len(table), 5, said)
        for row, verdict in table.items():
            self.assertRegex(verdict, "^left out: .*prepare again$", row)

    def test_no_time(self):
        code, table, said = self.run_all(CLEAVE_GPU_SECONDS="14")
        self.assertEqual(code, 3, said)
        self.assertNotIn("pass", table.values())
        for part in ("kernel", "checks, ranks", "the same", "bandwidth", "beside", "compute-san"):
            self.assertTrue(any(row.startswith(part) and verdict == "left out: CLEAVE_GPU_SECONDS=14 are over"
                                for row, verdict in table.items()), said)

    def test_failures(self):
        for program, words, code, verdict in (
                ("exit 1", ("--only", "kernels"), 1, "FAIL"),
                ("exit 3", ("--only", "kernels"), 3, "failed, exit code 3"),
                ("kill -SEGV $$", ("--only", "kernels"), 3, "failed, exit code 139"),
                ("exit 1", ("--only", "bandwidth"), 1, "FAIL"),
                ("echo no table", ("--only", "bandwidth"), 3, "failed, exit code 3")):
            with self.subTest(program, words=words):
                self.program("cleave-gpu-kernels", program)
                found, table, said = self.run_all(*words)
                self.assertEqual((found, list(table.values())), (code, [verdict]), said)

    def test_what_misses_a_goal(self):
        """The worse of two verdicts counts."""
        for fill in (" 84.9", "  nan", " -nan"):
            (self.folder / "bandwidth").write_text(BANDWIDTH.format(fill=fill))
            code, table, said = self.run_all("--only", "bandwidth,kernels")
            self.assertEqual(code, 4, said)
            self.assertEqual(table["bandwidth"], "misses the goal")
            self.assertRegex(said, r"1 of 2 below 85 % .*misses the goal:\n  fill, 1 GiB")
        self.program("cleave-replay", "exit 1")
        self.assertEqual(self.run_all("--only", "checks,bandwidth")[0], 1)

    def test_of_the_sanitizer(self):
        """An error of the program is not blamed on the machine, and no output is not a pass."""
        for text, code in (
                ("echo 'cleave-replay: error: f64 is not supported'; exit 3", 3),
                ("echo '========= Program hit CUDA_ERROR_NOT_SUPPORTED due to \"device not supported\"'; exit 1", 1),
                ("echo '========= ERROR SUMMARY: 0 errors'", 3),  # the tool never ran the program
                ("echo 'one_rank  pass'; echo 'tensor_2  pass'", 3)):
            with self.subTest(text):
                self.tool("compute-sanitizer", text)
                found, table, said = self.run_all("--only", "sanitizer")
                self.assertEqual(found, code, said)
                self.assertFalse(any("left out" in verdict or verdict == "pass" for verdict in table.values()), said)
        shutil.rmtree(self.rows / "tensor_2")
        self.program("cleave-replay", "echo \"$3  pass\"")
        self.tool("compute-sanitizer", f"shift 4; \"$@\"; echo '{SANITIZED['memcheck']}'")
        code, table, said = self.run_all("--only", "sanitizer")
        self.assertEqual((code, set(table)), (0, {f"compute-sanitizer, {tool} (one_rank)" for tool in SANITIZED}), said)

    def test_rows_that_are_missing(self):
        self.names("one_rank", "tensor_2", "ring_2", "later open: not done yet", "bench/gpt2", "bench/llama")
        code, table, said = self.run_all()
        self.assertEqual(code, 3, said)
        for row, verdict in (("ring_2", "FAILED: not prepared"), ("bench/llama", "FAILED: not prepared"),
                             ("later", "open: not done yet"), ("checks, ranks share the devices", "pass")):
            self.assertEqual(table[row], verdict, said)
        code, table, said = self.run_all("--only", "kernels")
        self.assertEqual((code, len(table)), (0, 1), said)
        (self.rows / "rows.txt").unlink()
        self.assertEqual(self.run_all("--only", "checks")[0], 3)

    def test_one_model(self):
        code, table, said = self.run_all("--only", "bench:gpt")
        self.assertEqual((code, list(table.values())), (0, ["pass"]), said)
        self.assertRegex((self.folder / "compared").read_text(), r" --only gpt --seconds 4\d\d$")
        self.assertEqual(self.run_all("--only", "bench:llama")[0], 3)

    def refused(self, pattern, *words):
        done = support.run(RUN, *words, self.rows, env=self.settings())
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        self.assertRegex(done.stderr, "^test/gpu/run: error: " + pattern)

    def test_refused(self):
        self.refused("unknown part 'none'", "--only", "none")
        self.refused("--only needs parts", "--only", ",")
        for capability, remedy in (("8.0", r"sm_80"), ("10.3", "sm_100"), ("12.0", "sm_100 --keep-ptx")):
            self.devices(capability)
            self.refused(rf"the device is sm_{capability.replace('.', '')}, but '.*/one_rank/exact-sharded' has only "
                         rf"kernels.sm_90.cubin; prepare again with --architectures {remedy}$")
        for folder in self.rows.glob("*/exact-sharded"):
            (folder / "kernels.sm_80.ptx").touch()
        self.refused("the device is sm_120, but '.*/bench/gpt2' has only")
        self.assertEqual(self.run_all("--only", "checks")[0], 0)  # PTX runs on all later devices
        self.devices("7.5")
        self.refused(".*has only kernels.sm_80.ptx, kernels.sm_90.cubin; run on a device of sm_80 or newer",
                     "--only", "checks")
        self.assertEqual(self.run_all("--only", "kernels")[0], 0)  # these are built on the machine

    def end_early(self, *words):
        """Ends the script as soon as a stand-in has written its process ids."""
        script = subprocess.Popen([RUN, *words, self.rows], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  env=support.environment() | self.settings())
        self.addCleanup(script.wait)
        self.addCleanup(script.kill)
        pids = self.folder / "pids"
        deadline = time.monotonic() + 20
        while not pids.exists() or len(pids.read_text().split()) < 2:
            self.assertLess(time.monotonic(), deadline, "it did not begin")
            time.sleep(0.02)
        script.send_signal(signal.SIGTERM)
        self.assertEqual(script.wait(20), 128 + signal.SIGTERM)
        # Processes that were killed last may take a moment to disappear.
        began = [int(pid) for pid in pids.read_text().split()]
        while any(map(is_alive, began)) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse([pid for pid in began if is_alive(pid)])
        pids.unlink()

    def test_nothing_is_left_running(self):
        # The child ignores the signal.
        text = f"""
            (trap '' TERM; exec sleep 100) &
            echo $! $$ >{self.folder}/pids
            wait"""
        self.program("cleave-gpu-kernels", text)
        for part in ("kernels", "bandwidth"):
            self.end_early("--only", part)
        self.tool("compute-sanitizer", text)
        self.end_early("--only", "sanitizer")
        self.tool("cmake", text)
        self.end_early()


class Compare(Machine):
    """The verdicts for synthetic results."""

    @classmethod
    def setUpClass(cls):
        cls.compare = module(GPU / "bench" / "compare.py")

    def result(self, ms=10.0, peak=2**30, losses=(3.0, 2.0, 1.0)):
        return {"ms": ms, "peak_bytes": peak, "losses": list(losses)}

    def verdict(self, ours, theirs, plain=None):
        *_, code, said = self.compare.verdicts(ours, plain or ours, theirs)
        return code, said

    def test_verdicts(self):
        result, nan = self.result, float("nan")
        good = result()
        passes = "losses pass, time pass, memory pass"
        self.assertEqual(self.verdict(good, good), (0, passes))
        self.assertEqual(self.verdict(good, result(losses=(3.02, 2, 1))), (0, passes))
        self.assertEqual(self.verdict(result(ms=12.0), good), (4, "losses pass, time misses the goal, memory pass"))
        self.assertEqual(self.verdict(result(peak=2**30 + 1), good),
                         (4, "losses pass, time pass, memory misses the goal"))
        wrong = (1, "losses FAIL, time pass, memory pass")
        self.assertEqual(self.verdict(good, result(losses=(3, 2, 1.02))), wrong)
        for bad in ((3, nan, 1), (nan, 2, 1), (3, 2, float("inf")), (3, 2), ()):
            with self.subTest(bad):
                self.assertEqual(self.verdict(result(losses=bad), good), wrong)
                self.assertEqual(self.verdict(good, result(losses=bad)), wrong)
                self.assertEqual(self.verdict(result(losses=bad), result(losses=bad)),
                                 (0, passes) if bad == (3, 2) else wrong)
        # Without cuDNN fewer steps run.
        self.assertEqual(self.verdict(good, good, result(losses=(3, 2))), (0, passes))
        self.assertEqual(self.verdict(good, good, result(losses=(3, nan))), wrong)
        self.assertEqual(self.verdict(result(ms=12.0), good, result(losses=(4, 2))),
                         (1, "losses FAIL, time misses the goal, memory pass"))
        self.assertEqual(self.compare.verdicts(good, good, None)[3:], (0, ""))

    def table(self, *words, ours=None, theirs=None):
        """The exit code and the output, if programs print these results."""
        (self.rows / "bench" / "gpt2" / "bench.json").write_text(
            json.dumps({"family": "gpt2", "sizes": {"vocab": 5}, "steps": 3}))
        self.program("cleave-gpu-kernels", "echo '{\"copy_gb_per_s\": 1, \"bf16_tflop_per_s\": 1}'")
        self.program("cleave-device-bench", f"echo '{ours or json.dumps(self.result())}'")
        self.script(self.folder / "python", theirs or f"echo '{json.dumps(self.result())}'")
        out, argv = io.StringIO(), ["compare.py", str(self.built), str(self.rows), *words]
        with mock.patch.object(sys, "argv", argv), mock.patch.object(sys, "executable", str(self.folder / "python")), \
                contextlib.redirect_stdout(out):
            return self.compare.main(), out.getvalue()

    def test_table(self):
        code, said = self.table()
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"gpt2 .* 1\.000 .* 1\.000 +0\.0000   losses pass, time pass, memory pass\n")
        code, said = self.table(ours=json.dumps(self.result(ms=12.0)))
        self.assertEqual(code, 4, said)
        self.assertRegex(said, r" 1\.200 .*time misses the goal")
        # NaN as C prints it.
        code, said = self.table(ours='{"ms": 9, "peak_bytes": 1, "losses": [-nan, 2, inf]}')
        self.assertEqual(code, 1, said)
        self.assertIn("losses FAIL, time pass", said)
        code, said = self.table(theirs="echo no room >&2; exit 1")
        self.assertEqual(code, 3, said)
        self.assertRegex(said, r"gpt2 .*   FAILED: torch: no room\n")
        code, said = self.table("--seconds", "1")
        self.assertEqual(code, 3, said)
        self.assertRegex(said, r"gpt2 +left out: no time is left\n")
        with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(io.StringIO()):
            self.table("--only", "no such model")
        self.assertEqual(refused.exception.code, 2)


class Reference(unittest.TestCase):
    def test_grouped_products_of_another_name(self):
        stand_ins = {"torch": types.ModuleType("torch"), "transformers": types.ModuleType("transformers")}
        stand_ins["transformers"].__version__ = "9.0"
        with mock.patch.dict(sys.modules, stand_ins):
            reference = module(GPU / "bench" / "reference.py")
            moe = types.ModuleType("transformers.integrations.moe")
            exec("def _grouped_mm(): pass", moe.__dict__)
            with self.assertRaisesRegex(SystemExit, "of transformers 9.0 calls _grouped_mm"):
                reference.replace_grouped_product(moe)
            exec("def linear(): return _grouped_mm()", moe.__dict__)
            reference.replace_grouped_product(moe)
            self.assertIs(moe._grouped_mm, reference.multiply_groups)
            del moe._grouped_mm
            with self.assertRaises(SystemExit):
                reference.replace_grouped_product(moe)


class Prepare(unittest.TestCase):
    def test_rows(self):
        prepare = module(GPU / "prepare.py")
        lines = prepare.wanted([""], True)
        self.assertEqual(len(lines), len(prepare.ROWS) + len(prepare.BENCHES))
        self.assertIn("data_2-tensor_2-zero_1", lines)
        self.assertIn("bench/gpt2-124m", lines)
        self.assertEqual(len(set(lines)), len(lines))
        with mock.patch.object(prepare, "OPEN", [("later, much", "not done")]):
            self.assertEqual(prepare.wanted(["later"], True), ["later-much open: not done"])

    def prepare(self, compiler, *flags):
        """The exit code, and the folder that a stand-in compiler creates for a row: $row."""
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        (folder / "bin").mkdir()
        cleave = folder / "bin" / "cleave"
        cleave.write_text("#!/bin/sh\nfor row; do :; done\n" + compiler + "\n")
        cleave.chmod(0o755)
        prepare = module(GPU / "prepare.py")
        argv = ["prepare.py", str(folder / "rows"), "--build", str(folder), "--only", "tensor 2d", "--checks-only",
                *flags]
        with mock.patch.object(sys, "argv", argv), mock.patch.object(prepare, "models", lambda _: {"gpt2": []}), \
                contextlib.redirect_stdout(io.StringIO()):
            code = prepare.main()
        self.assertEqual((folder / "rows" / "rows.txt").read_text(), "tensor_2d\n")
        return code, folder / "rows" / "tensor_2d"

    def test_a_row_that_fails_is_named(self):
        code, row = self.prepare("mkdir -p $row; echo no >&2; exit 3")
        self.assertEqual(code, 1)
        self.assertFalse(row.exists())

    def test_ptx_beside_code(self):
        compiler = "mkdir -p $row/one; touch $row/one/kernels.sm_90.cubin $row/one/kernels.sm_80.ptx"
        for flags, expected in (((), 1), (("--keep-ptx",), 2)):
            code, row = self.prepare(compiler, *flags)
            self.assertEqual(code, 0)
            self.assertEqual(len(list(row.glob("one/kernels.*"))), expected)


if __name__ == "__main__":
    unittest.main()
