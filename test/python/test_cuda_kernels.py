"""The runtime's CUDA kernels at random sizes against sums in double precision, on the recorder
that stands in for a device."""

import re
import unittest

import support

PROGRAM = support.BUILD / "bin" / "cleave-gpu-kernels"
RECORDER = support.BUILD / "recorder"


@unittest.skipUnless(RECORDER.exists(), "built without the CUDA toolkit")
class CudaKernels(unittest.TestCase):
    def run_program(self, *flags, **settings):
        return support.run(PROGRAM, *flags, env={"LD_LIBRARY_PATH": str(RECORDER), **settings})

    def test_small(self):
        done = self.run_program("--small")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = re.findall(r"^(.+?) +(\d+) +\S+ +\S+ s  pass$", done.stdout, re.MULTILINE)
        self.assertGreaterEqual(sum(int(cases) for _, cases in lines), 300, done.stdout)
        self.assertIn(f"\n{len(lines)} families, 0 failed\n", done.stdout)
        for name in ("gemm", "attention", "attention backward", "convolution",
                     "convolution input grad", "convolution filter grad", "grouped", "sort rows",
                     "plan rows", "position in expert", "copy", "fill", "reduce"):
            self.assertTrue(any(line.startswith(name) for line, _ in lines), name)

    def test_families_after_a_failure_are_run(self):
        names = re.findall(r"^(.+?)  .* pass$", self.run_program("--small", "--only", "reduce").stdout,
                           re.MULTILINE)
        self.assertGreater(len(names), 1)
        done = self.run_program("--small", "--only", "reduce", CLEAVE_RECORDER_MEMORY="100")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(re.findall(r"^(.+?)  +FAILED: .*left", done.stdout, re.MULTILINE), names)

    def worst(self, seed):
        said = self.run_program("--small", "--only", "attention, f32", "--cases", "2", "--seed", seed).stdout
        return re.search(r"^attention, f32 +2 +(\S+)", said, re.MULTILINE).group(1)

    def test_a_seed_is_its_cases(self):
        self.assertEqual(self.worst(7), self.worst(7))
        self.assertNotEqual(self.worst(7), self.worst(8))

    def test_refused(self):
        for flag in ("--bandwidth", "--ceilings"):
            done = self.run_program(flag)
            self.assertEqual(done.returncode, 3)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            self.assertIn("the driver is the recorder", done.stderr)
        self.assertEqual(self.run_program("--only", "no such family").returncode, 2)
        self.assertEqual(self.run_program("--cases", "none").returncode, 2)


if __name__ == "__main__":
    unittest.main()
