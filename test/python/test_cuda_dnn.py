"""The graphs of attention and convolutions are given to the real cuDNN, which builds plans for devices described to
it. Nothing runs on a device."""

import re
import unittest

import support

PROGRAM = support.BUILD / "bin" / "cleave-dnn-plans"


@unittest.skipUnless(PROGRAM.exists(), "built without cuDNN")
class CudaDnn(unittest.TestCase):
    def test_plans(self):
        # By default for one device only.
        devices = ("A100", "H100", "B200") if support.ALL else ("H100",)
        own = [] if support.ALL else ["--device", *devices]
        done = support.run(PROGRAM, "--random", 30 if support.ALL else 6, *own, timeout=900)
        if done.returncode == 77:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for device in devices:
            for way in ("forward", "backward"):
                plans = re.findall(rf"^{device} .* {way} +\d+ parts, engine \d+, (\d+) of (\d+) bytes$",
                                   done.stdout, re.MULTILINE)
                self.assertGreaterEqual(len(plans), 12, done.stdout)
                for needed, planned in plans:
                    self.assertLessEqual(int(needed), int(planned))
            self.assertRegex(done.stdout, rf"\n{device} +264 features +backward +refused")
            for kind in ("convolution", "input grad", "filter grad"):
                for precision in ("f32", "tf32", "bf16"):
                    plans = re.findall(rf"^{device} .* {kind} {precision} +engine \d+, (\d+) of (\d+) bytes$",
                                       done.stdout, re.MULTILINE)
                    self.assertGreaterEqual(len(plans), 15, done.stdout)
                    for needed, planned in plans:
                        self.assertLessEqual(int(needed), int(planned))
            self.assertRegex(done.stdout, rf"\n{device} +one window more +convolution +refused")


if __name__ == "__main__":
    unittest.main()
