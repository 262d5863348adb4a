"""The reference pages of docs/ are what the sources say: TableGen files, the table of keys."""

import os
import re
import subprocess
import sys
import unittest

import support


class Docs(unittest.TestCase):
    def test_up_to_date(self):
        done = subprocess.run([sys.executable, os.path.join(support.ROOT, "tools", "gen-docs"), "--check",
                               "--cleave", support.CLEAVE], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_key_has_a_line(self):
        """The page is of the same table as `cleave config`."""
        page = (support.ROOT / "docs" / "configuration.md").read_text()
        listed = set(re.findall(r"^\| `([\w.*]+)` \| [^|]", page.split("## What other")[0], re.M))
        shown = support.succeed(support.CLEAVE, "config")
        names = set(re.findall(r"^(?:# )?([\w.]+)(?: =|  )", shown, re.M))
        self.assertGreater(len(names), 60)
        for name in names:
            self.assertTrue({name, name.rsplit(".", 1)[0] + ".*"} & listed, name)


if __name__ == "__main__":
    unittest.main()
