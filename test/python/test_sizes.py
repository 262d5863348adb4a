"""Files and functions are short enough to be read, and the script that says so can fail."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tools" / "check-sizes"


def run(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def function(name, lines):
    return f"int {name}(int a) {{\n" + "  if (a) { --a; }\n" * (lines - 2) + "}\n"


class Sizes(unittest.TestCase):
    def test_this_tree(self):
        code, output = run(ROOT)
        self.assertEqual(code, 0, output)

    def test_what_is_long_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root)
            (folder / "long.py").write_text("a = 1\n" * 501)
            (folder / "data.csv").write_text("1\n" * 1000)
            (folder / "longest.cpp").write_text("namespace a {\nclass B {\n  " + function("run", 151) + "};\n}\n")
            (folder / "right.cpp").write_text('// a {\nconst char *text = "{";\n' + function("right", 80))
            for i in range(10):
                (folder / f"eighty{i}.h").write_text("#define A {\\\n {\n" + function(f"f{i}", 81))
            subprocess.run(["git", "init", "-q", root], check=True)
            subprocess.run(["git", "-C", root, "add", "."], check=True)
            code, output = run(root)
        self.assertEqual(code, 1, output)
        self.assertEqual([line.split(" ")[0] for line in output.splitlines()],
                         ["long.py:", "longest.cpp:3:", "11", "13"])


if __name__ == "__main__":
    unittest.main()
