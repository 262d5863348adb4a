"""A cache of compiled programs that many processes share."""

import fcntl
import random
import socket
import subprocess
import time
import unittest

import support  # finds the others
from guarded import SETS, Guarded
from support import CLEAVE, RUN

MANY = 48 if support.ALL else 6
DAMAGES = 200 if support.ALL else 12


class SharedCache(Guarded):
    def entries(self, cache="cache"):
        return sorted(path for path in (self.folder / cache).iterdir())

    def test_many_start_at_once(self):
        started = [subprocess.Popen(self.begin("--out", self.folder / f"many{i}", cache="many"),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for i in range(MANY)]
        for process in started:
            said = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 0, said)
        weights = {(self.folder / f"many{i}" / "checkpoint-000004" / "model.safetensors").read_bytes()
                   for i in range(MANY)}
        self.assertEqual(len(weights), 1)
        self.assertEqual(len([path for path in self.entries("many") if not path.name.startswith(".")]), 1)
        self.assertEqual([path.name for path in self.entries("many") if ".new" in path.name], [])

    def test_a_damaged_entry_is_compiled_again(self):
        draw = random.Random(3)
        support.succeed(*self.begin("--out", self.folder / "damaged"))
        right = (self.folder / "damaged" / "checkpoint-000004" / "model.safetensors").read_bytes()
        for turn in range(DAMAGES):
            entry, = self.entries()
            files = sorted(path for path in entry.iterdir())
            file = files[turn % len(files)]
            kind = draw.choice(["byte", "cut", "gone", "longer", "folder"])
            if kind == "gone" or (kind != "folder" and not file.stat().st_size):
                file.unlink()
            elif kind == "folder":
                file.unlink()
                file.mkdir()
            else:
                content = bytearray(file.read_bytes())
                at = draw.randrange(len(content))
                if kind == "byte":
                    content[at] ^= 1 << draw.randrange(8)
                file.write_bytes(bytes(content[:at]) if kind == "cut" else
                                 bytes(content) + b"x" * (kind == "longer"))
            out = self.folder / f"damaged{turn}"
            done = support.run(*self.begin("--out", out))
            where = f"{file.name}, {kind}: {done.stdout}{done.stderr}"
            self.assertEqual(done.returncode, 0, where)
            self.assertEqual((out / "checkpoint-000004" / "model.safetensors").read_bytes(), right, where)
            # What is in no file that is read may be longer.
            if not (file.name == "lock" and kind == "longer"):
                self.assertIn("the model is compiled again", done.stderr, where)

    def test_a_limit_and_what_is_in_use(self):
        cache = ["--cache", self.folder / "limit"]
        for i in (1, 2):
            support.succeed(*self.begin("--out", self.folder / f"limit{i}", "--set", f"train.lr=0.0{i}", cache="limit"),
                            env={"CLEAVE_CACHE_GIB": "0"})
        # The first went when the second came, which is its own process's.
        entry, = (path for path in self.entries("limit") if not path.name.startswith("."))
        shown = support.succeed(CLEAVE, "cache", "show", *cache)
        self.assertIn(entry.name, shown)
        self.assertIn("1 program,", shown)
        running = subprocess.Popen([RUN, entry, "train", "--data", self.folder / "data.npz", "--steps", "100000",
                                    "--out", self.folder / "in_use"], stdout=subprocess.PIPE, text=True)
        try:
            while "step" not in running.stdout.readline():
                self.assertIsNone(running.poll())
            self.assertIn("(in use)", support.succeed(CLEAVE, "cache", "show", *cache))
            self.assertIn("0 programs removed, 0.0 MiB; 1 program in use", support.succeed(CLEAVE, "cache", "clear", *cache))
        finally:
            running.kill()
            running.communicate()
        self.assertIn("1 program removed", support.succeed(CLEAVE, "cache", "clear", *cache))
        self.assertEqual([path for path in self.entries("limit") if not path.name.startswith(".")], [])
        self.refused(2, "CLEAVE_CACHE_GIB is 'much'", CLEAVE, "cache", "show", *cache, env={"CLEAVE_CACHE_GIB": "much"})

    def test_what_else_is_in_the_folder_stays(self):
        """Also what looks a little like an entry; what killed processes left goes with the next start."""
        cache = self.folder / "shared"
        for name in ("mydb", "model-12", "m-0123456789abcdeg"):
            (cache / name).mkdir(parents=True)
            (cache / name / "lock").write_text("")
            (cache / name / "data").write_text("mine")
        self.refused(2, "CLEAVE_CACHE_GIB", *self.begin("--out", self.folder / "shared0", cache="shared"),
                     env={"CLEAVE_CACHE_GIB": "much"})
        support.succeed(*self.begin("--out", self.folder / "shared1", cache="shared"), env={"CLEAVE_CACHE_GIB": "0"})
        gone = subprocess.Popen(["true"])
        gone.wait()
        left = [cache / f".m-1.{kind}-{socket.gethostname()}-{gone.pid}" for kind in ("new", "gone", "tmp")]
        for path in left:
            path.mkdir()
        (cache / ".m-0123456789abcdef.lock").write_text("")
        support.succeed(*self.begin("--out", self.folder / "shared2", cache="shared"))  # a hit
        self.assertEqual(sorted(path.name for path in cache.iterdir() if path.name.startswith(".")), [])
        support.succeed(CLEAVE, "cache", "clear", "--cache", cache)
        self.assertEqual(sorted(path.name for path in cache.iterdir()), ["m-0123456789abcdeg", "model-12", "mydb"])
        # Nor does a program's folder keep what a killed compilation left beside it.
        beside = self.folder / f".beside.tmp-{socket.gethostname()}-{gone.pid}"
        beside.mkdir()
        support.succeed(CLEAVE, "compile", self.folder / "m.mlir", "-o", self.folder / "beside",
                        *(w for s in SETS for w in ("--set", s)))
        self.assertFalse(beside.exists())

    def test_who_looks_for_a_moment(self):
        """Who holds an entry's lock alone to look at it keeps nobody from locking it."""
        support.succeed(*self.begin("--out", self.folder / "look1", cache="look"))
        entry, = self.entries("look")
        with open(entry / "lock") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            running = subprocess.Popen(self.begin("--out", self.folder / "look2", "--set", "train.steps=1000000",
                                                  cache="look", steps=1000000)[:], stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, text=True)
            time.sleep(0.3)
        try:
            while "step" not in running.stdout.readline():
                self.assertIsNone(running.poll())
            self.assertIn("in use, or another user's, kept", support.succeed(CLEAVE, "cache", "clear", "--cache",
                                                                              self.folder / "look"))
        finally:
            running.kill()
            running.communicate()

    def test_without_a_home(self):
        """A folder of the user's own, and never one that others may write to."""
        temporary = self.folder / "temporary"
        temporary.mkdir()
        env = {key: value for key, value in support.environment().items() if key not in ("HOME", "XDG_CACHE_HOME")}
        env["TMPDIR"] = str(temporary)
        work = self.folder / "work"
        work.mkdir()

        def train(out):
            return subprocess.run(self.begin("--out", self.folder / out, cache=None), env=env, cwd=work,
                                  capture_output=True, text=True, timeout=600)
        done = train("homeless")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(work.iterdir()), [])
        cache, = temporary.iterdir()
        self.assertEqual(cache.stat().st_mode & 0o777, 0o700)
        cache.chmod(0o777)
        done = train("homeless2")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is not a folder of yours alone (mode 700)", done.stderr)




if __name__ == "__main__":
    unittest.main()
