"""Every C++ file is formatted by clang-format, and the script that checks this can fail."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tools" / "check-format"


def run(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Format(unittest.TestCase):
    def test_this_tree(self):
        code, output = run(ROOT)
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"^\d{4,} files, 0 not formatted$")

    def test_what_is_not_formatted_is_found_and_mended(self):
        with tempfile.TemporaryDirectory() as root:
            shutil.copy(ROOT / ".clang-format", root)
            for path, text in [("lib/A/Good.cpp", "int good() { return 1; }\n"),
                               ("lib/A/Wide.cpp", f"int {'w' * 50}({'int a, ' * 9}int b);\n"),
                               ("runtime/b.h", "int* b;\n")]:
                (pathlib.Path(root) / path).parent.mkdir(parents=True, exist_ok=True)
                (pathlib.Path(root) / path).write_text(text)
            code, output = run(root)
            self.assertEqual(code, 1, output)
            self.assertEqual([line.split(":")[0] for line in output.splitlines()],
                             ["lib/A/Wide.cpp", "runtime/b.h", "3 files, 2 not formatted"])
            self.assertEqual(run("--fix", root), (0, "3 files, 0 not formatted\n"))
            self.assertEqual(run(root), (0, "3 files, 0 not formatted\n"))
            self.assertEqual((pathlib.Path(root) / "runtime/b.h").read_text(), "int *b;\n")


if __name__ == "__main__":
    unittest.main()
