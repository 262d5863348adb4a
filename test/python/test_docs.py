"""The reference pages of docs/ are what the TableGen files say."""

import os
import subprocess
import sys
import unittest

import support


class Docs(unittest.TestCase):
    def test_up_to_date(self):
        done = subprocess.run([sys.executable, os.path.join(support.ROOT, "tools", "gen-docs"), "--check"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
