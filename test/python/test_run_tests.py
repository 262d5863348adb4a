"""The counts of tools/lib/run_tests.py: no test is skipped silently."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import support

RUNNER = support.ROOT / "tools" / "lib" / "run_tests.py"
BODY = """
import unittest
{decorator}
class Some(unittest.TestCase):
    def test_good(self): pass
    def test_other(self): {statement}
"""


class Counts(unittest.TestCase):
    def run_on(self, lacks="", **modules):
        """Exit code, last line, and the output. A module is given by its class's decorator and the
        statement of its second test. `lacks` lists features that the build lacks."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as build:
            (pathlib.Path(build) / "CMakeCache.txt").write_text(
                f"A:STRING=b\nCLEAVE_BUILT_WITHOUT:INTERNAL={lacks}\n")
            for name, (decorator, statement) in modules.items():
                (pathlib.Path(folder) / f"test_{name}.py").write_text(
                    BODY.format(decorator=decorator, statement=statement))
            done = subprocess.run([sys.executable, RUNNER, folder], capture_output=True, text=True,
                                  env=os.environ | {"CLEAVE_BUILD_DIR": build})
            return done.returncode, done.stdout.splitlines()[-1], done.stdout

    def test_all_good(self):
        self.assertEqual(self.run_on(a=("", "pass"), b=("", "pass"))[:2],
                         (0, "4 passed, 0 failed, 0 skipped"))

    def test_subtests_of_one_test_fail_once(self):
        statement = """
        for i in range(3):
            with self.subTest(i=i): self.fail()"""
        self.assertEqual(self.run_on(a=("", statement))[:2],
                         (1, "1 passed, 1 failed, 0 skipped"))

    def test_skipped_tests_are_listed(self):
        code, last, text = self.run_on(a=("", "self.skipTest('no mounts')"))
        self.assertEqual((code, last), (0, "1 passed, 0 failed, 1 skipped"))
        self.assertIn("skipped: test_a.Some.test_other: no mounts", text)

    def test_a_module_that_skips_everything_fails(self):
        code, last, text = self.run_on(a=("@unittest.skip('no reason')", "pass"), b=("", "pass"))
        self.assertEqual((code, last), (1, "2 passed, 2 failed, 0 skipped"))
        self.assertIn("failed: test_a.Some.test_good: no reason, as all tests of test_a", text)

    def test_a_missing_binary_fails(self):
        code, last, _ = self.run_on(a=("", "self.skipTest('cleave is not built')"))
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"))

    def test_what_the_build_lacks_may_be_skipped(self):
        """All tests of a module may be skipped, but only if the build confirms the reason."""
        module = {"a": ("@unittest.skip('built without the CUDA toolkit')", "pass"), "b": ("", "pass")}
        code, last, text = self.run_on(lacks="the CUDA toolkit;cuDNN", **module)
        self.assertEqual((code, last), (0, "2 passed, 0 failed, 2 skipped"))
        self.assertIn("skipped: test_a.Some.test_good: built without the CUDA toolkit", text)
        self.assertEqual(self.run_on(lacks="cuDNN", **module)[:2],
                         (1, "2 passed, 2 failed, 0 skipped"))
        self.assertEqual(self.run_on(**module)[:2], (1, "2 passed, 2 failed, 0 skipped"))

    def test_no_tests_and_broken_modules_fail(self):
        self.assertEqual(self.run_on()[:2], (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.run_on(a=("syntax error", "pass"))[:2],
                         (1, "0 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
