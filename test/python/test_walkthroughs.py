"""CONTRIBUTING.md and test/walkthroughs agree: the patches apply, and the code and the commands on
the page are those of the files. test/walkthroughs/run executes them in a build of its own."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import support

FOLDER = support.ROOT / "test" / "walkthroughs"
PAGE = support.ROOT / "CONTRIBUTING.md"
PLACES = 8  # parts of the compiler that a new operation may need


def added(patch):
    return "".join(line[1:] + "\n" for line in patch.splitlines()
                   if line.startswith("+") and not line.startswith("+++"))


def files_of(patch):
    return re.findall(r"^diff --git a/(\S+)", patch, re.M)


def commands(script):
    return [line for line in script.splitlines() if line and not line.startswith("#")]


class Walkthroughs(unittest.TestCase):
    def setUp(self):
        self.texts = {f"test/walkthroughs/{path.name}": path.read_text()
                      for suffix in ("*.patch", "*.sh") for path in FOLDER.glob(suffix)}
        self.blocks = re.findall(r"<!-- of (\S+) -->\n```\w+\n(.*?)^```$", PAGE.read_text(), re.M | re.S)

    def test_the_page_shows_what_the_files_say(self):
        self.assertGreaterEqual(len(self.blocks), 10)
        for path, block in self.blocks:
            with self.subTest(path=path, block=block):
                text = self.texts[path]
                self.assertIn(block, added(text) if path.endswith(".patch") else text)
        # All code blocks of the page are marked.
        self.assertEqual(len(re.findall(r"^```\w", PAGE.read_text(), re.M)), len(self.blocks))

    def test_every_command_is_on_the_page(self):
        for path, text in self.texts.items():
            shown = "".join(block for of, block in self.blocks if of == path)
            self.assertTrue(shown, path)
            if path.endswith(".sh"):
                for command in commands(text):
                    self.assertIn(command + "\n", shown, path)

    def test_the_patches_apply(self):
        operation, passes = (self.texts[f"test/walkthroughs/{name}.patch"] for name in ("operation", "pass"))
        places = [file for file in files_of(operation) if not file.startswith("test/")]
        self.assertLessEqual(len(places), PLACES)
        with tempfile.TemporaryDirectory() as copy:
            copy = pathlib.Path(copy)
            for name in {*files_of(operation), *files_of(passes), ".clang-format"}:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                if (support.ROOT / name).exists():
                    shutil.copy(support.ROOT / name, copy / name)
            support.succeed("git", "init", "-q", cwd=copy)
            for name in ("operation", "pass"):  # the pass matches the operation
                support.succeed("git", "apply", FOLDER / f"{name}.patch", cwd=copy)
            support.succeed(support.ROOT / "tools" / "check-format", copy)

    def test_a_wrong_number_is_found(self):
        """The walk-through without a patch runs on the existing build."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            os.symlink(support.ROOT / "test", folder / "test")
            (folder / "build").mkdir()
            os.symlink(support.BUILD / "bin", folder / "build" / "bin")
            said = support.succeed("bash", "-e", FOLDER / "number.sh", cwd=folder)
        page = PAGE.read_text()
        shown = re.findall(r"^    ((?:exact|first difference).*)$", page, re.M)
        self.assertEqual(len(shown), 4)
        for line in shown:
            # Results may differ in their last digits on processors that round differently.
            words = re.split(r"\s+\d\.\d+e[-+]\d+", line)
            self.assertRegex(said, r"\s+\d\.\d+e[-+]\d+".join(map(re.escape, words)))

    def test_what_is_asked_for(self):
        self.assertEqual(support.run(FOLDER / "run", "--help").returncode, 0)
        self.assertEqual(support.run(FOLDER / "run", "nothing").returncode, 2)
        for name in ("operation", "pass", "number"):
            self.assertEqual(subprocess.run(["bash", "-n", FOLDER / f"{name}.sh"]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
