"""`cleave compile --emit exe`: a single executable that contains the program."""

import pathlib
import subprocess
import tempfile
import unittest

import support

MODEL = support.ROOT / "test" / "models" / "quickstart.onnx"
FLAGS = ["--set", "dims.batch=4", "--set", "dims.sequence=32", "--set", "mesh.data=2"]


class Executable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.exe = cls.folder / "model"
        support.succeed(support.CLEAVE, "compile", MODEL, *FLAGS, "--emit", "exe", "-o", cls.exe)
        cls.text = cls.folder / "text.txt"
        cls.text.write_bytes((support.ROOT / "README.md").read_bytes()[:20000])
        (cls.folder / "scratch").mkdir()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def start(self, exe, *flags):
        environment = support.environment() | {"TMPDIR": str(self.folder / "scratch")}
        return subprocess.run([exe, *map(str, flags)], cwd=self.folder, env=environment,
                              capture_output=True, text=True, timeout=900)

    def nothing_left(self):
        self.assertEqual(list((self.folder / "scratch").iterdir()), [])

    def test_trains_as_the_folder_does(self):
        done = self.start(self.exe, "train", "--data", self.text, "--steps", 3, "--out", "a")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.nothing_left()
        support.succeed(support.CLEAVE, "compile", MODEL, *FLAGS, "-o", self.folder / "program")
        support.succeed(support.RUN, self.folder / "program", "train", "--data", self.text,
                        "--steps", 3, "--out", self.folder / "b")
        weights = [self.folder / run / "checkpoint-000003" / "model.safetensors" for run in "ab"]
        self.assertEqual(*(file.read_bytes() for file in weights))

    def test_equal_programs_give_equal_bytes(self):
        again = self.folder / "again"
        support.succeed(support.CLEAVE, "compile", MODEL, *FLAGS, "--emit", "exe", "-o", again)
        self.assertEqual(self.exe.read_bytes(), again.read_bytes())

    def test_wrong_flag(self):
        done = self.start(self.exe, "train", "--bogus")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--bogus", done.stderr)
        self.nothing_left()

    def test_damaged(self):
        bytes_ = bytearray(self.exe.read_bytes())
        program = bytes_.rindex(b"cleave-program")  # in the manifest
        for name, at in (("table", len(bytes_) - 30), ("program", program)):
            with self.subTest(name):
                damaged = self.folder / f"damaged-{name}"
                damaged.write_bytes(bytes_[:at] + b"#" + bytes_[at + 1:])
                damaged.chmod(0o755)
                done = self.start(damaged, "train", "--data", self.text, "--steps", 1)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("damaged" if name == "table" else "manifest.json", done.stderr)
                self.nothing_left()

    def test_cut(self):
        cut = self.folder / "cut"
        cut.write_bytes(self.exe.read_bytes()[:-1])
        cut.chmod(0o755)
        done = self.start(cut, "train", "--data", self.text, "--steps", 1)
        self.assertEqual((done.returncode, done.stderr),
                         (2, f"cleave-run: error: {cut}: carries no program, or was cut; copy it again, or give the folder of "
                             "a program: cleave-run DIR train\n"))

    def test_folder_that_cannot_be_written(self):
        environment = support.environment() | {"TMPDIR": str(self.folder / "missing")}
        done = subprocess.run([self.exe, "train"], env=environment, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("TMPDIR", done.stderr)

    def test_what_cannot_be_written_is_said_first(self):
        for tmpdir, out, words in ((self.folder / "missing", "p", "missing: cannot be written to: No such file or directory; "
                                    "set TMPDIR to a folder that can be written"),
                                   (self.folder / "scratch", "text.txt/p", "text.txt: is no folder; give another output path (-o)")):
            done = support.run(support.CLEAVE, "compile", MODEL, *FLAGS, "-o", self.folder / out, env={"TMPDIR": str(tmpdir)})
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_output_is_a_folder(self):
        done = support.run(support.CLEAVE, "compile", MODEL, *FLAGS, "--emit", "exe", "-o", self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is a folder", done.stderr)


if __name__ == "__main__":
    unittest.main()
