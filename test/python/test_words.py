"""Code, documentation and messages use the field's words, and the script that says so can fail."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tools" / "check-words"


def run(root):
    done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Words(unittest.TestCase):
    def test_this_tree(self):
        code, output = run(ROOT)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"^\d{4,} files, 0 words that are not the field's$")

    def test_what_is_not_the_fields_is_found(self):
        """Also across the end of a line, in identifiers, messages and pages; other files are not read."""
        private = ["li" + "es", "makesAdd" + "ends", "beh" + "ind", "on\n// pur" + "pose"]
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root)
            (folder / "a.cpp").write_text(f"// It {private[0]} there.\nint {private[1]};\n")
            (folder / "b.md").write_text(f"The gather {private[2]} it: relies, applies, a believer.\n")
            (folder / "c.h").write_text(f"// broken {private[3]}\n")
            (folder / "d.onnx").write_text(private[0])
            subprocess.run(["git", "init", "-q", root], check=True)
            code, output = run(root)
        self.assertEqual(code, 1, output)
        self.assertEqual([line.split(": ")[0] for line in output.splitlines()],
                         ["a.cpp:1", "a.cpp:2", "b.md:1", "c.h:1", "3 files, 4 words that are not the field's"])


if __name__ == "__main__":
    unittest.main()
