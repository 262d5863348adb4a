"""tools/matrix: its covering set (which tools/check runs itself), random configurations, invalid
ones; and hand-written shardings."""

import pathlib
import sys
import tempfile
import unittest

import support
import matrix_cells
import matrix_faults
import recorded_training

ROOT = support.MODELS.parent.parent
MATRIX = ROOT / "tools" / "matrix"
NAMES = {"gpt2": "transformer\\\\.h\\\\.0\\\\.attn\\\\.c_attn\\\\.weight",
         "llama": ".*q_proj\\\\.weight"}


class Covering(unittest.TestCase):
    """The cells that tools/check skips leave no row, column, model or pair untested."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.tables = []
        for word, make in matrix_cells.TABLES:
            (own := pathlib.Path(folder.name) / (word or "layouts")).mkdir()
            cls.tables.append((word, make(own)))

    def test_every_row_column_and_model_in_the_dear_ways(self):
        for word, cells in self.tables:
            chosen = matrix_cells.covering(cells)
            for ways in (["trained"], ["compiled", "bf16"]):
                # Devices do not train scrambled copies (tools/matrix).
                usable = [cell for cell in cells
                          if ways != ["trained"] or not cell.name.endswith("scrambled")]
                wanted = set().union(*map(matrix_cells.parts, usable))
                taken = [cell for way, cell in chosen if way in ways]
                with self.subTest(table=word, ways=ways):
                    self.assertEqual(set().union(*map(matrix_cells.parts, taken)), wanted)
                    self.assertLess(len(taken), len(usable) / 2)

    def test_every_pair_of_a_row_and_a_column(self):
        for word, cells in self.tables:
            with self.subTest(table=word):
                self.assertEqual({cell[:2] for _, cell in matrix_cells.covering(cells)},
                                 {cell[:2] for cell in cells})

    def test_it_is_the_same_each_time(self):
        for word, cells in self.tables:
            self.assertEqual(matrix_cells.covering(cells), matrix_cells.covering(list(cells)))

    def test_planted_faults_apply_and_name_cells(self):
        """The planted bugs still apply to this code: checked in seconds, while tools/planted takes minutes for each."""
        names = [", ".join(cell[:3]) for _, cells in self.tables
                 for _, cell in matrix_cells.covering(cells)]
        patches = sorted((ROOT / "test" / "planted").glob("*.patch"))
        self.assertGreaterEqual(len(patches), 20)
        for patch in patches:
            with self.subTest(patch=patch.stem):
                support.succeed("git", "apply", "--check", patch, cwd=ROOT)
                first = [line.removeprefix("first: ") for line in patch.read_text().splitlines()
                         if line.startswith("first: ")]
                self.assertTrue(all(any(text in name for name in names) for text in first), first)

    def test_flags_that_do_not_go_together(self):
        for flags, words in ((["--all", "--cover"], "exclude each other"),
                             (["--cover", "--fast"], "their own ways"), (["--list"], "--cover"),
                             (["--all", "--only", "zero"], "--only does not go with them"),
                             (["--faults", "--only", "zero"], "--only does not go with them"),
                             (["--faults", "--cover"], "exclude each other"),
                             (["--train"], "goes with --recorder")):
            done = support.run(sys.executable, MATRIX, *flags, "--build", support.BUILD)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(words, done.stderr)


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class Matrix(unittest.TestCase):
    def random(self, first, count, *flags, **environment):
        said = support.succeed(sys.executable, MATRIX, "--random", count, "--first", first, *flags,
                               "--build", support.CLEAVE.parent.parent, env=environment)
        self.assertIn(f"\n{count} random configurations, {count} passed, 0 were refused, 0 failed",
                      said)

    def test_random_configurations(self):
        self.random(0, 4, "--fast")
        self.random(4, 1)

    @unittest.skipUnless((support.BUILD / "recorder").exists(), "built without the CUDA toolkit")
    def test_random_configurations_on_the_recorder(self):
        self.random(0, 2, "--recorder", **({} if support.ALL else recorded_training.toolkit(support.BUILD)))

    def test_faults(self):
        """One fault of each kind is detected, in a cell of the covering set."""
        said = support.succeed(sys.executable, MATRIX, "--faults", "--build", support.BUILD)
        kinds = matrix_faults.kinds_of(support.CLEAVE)
        self.assertEqual([line.split(":")[0] for line in said.splitlines()[:-1]], kinds)
        self.assertIn(f"\n{len(kinds)} kinds of faults, 0 not caught\n", said)

    def test_a_fault_that_is_not_caught(self):
        """A check that finds nothing wrong, or a cell that crashes, does not count as a detection."""
        cells = [matrix_cells.Cell("row", "column", name, [], []) for name in ("a", "b")]
        for answers, name, code in (([(2, "cannot have the fault x"), (0, "pass")], "b", 0),
                                    ([(3, "killed")], "a", 3), ([(1, "FAIL")], "a", 1)):
            given = iter(answers)
            found = matrix_faults.one(lambda *_, **__: next(given), "cleave", cells, "x")
            self.assertEqual((found[0].name, found[1]), (name, code))
        nothing = matrix_faults.one(lambda *_, **__: (2, "cannot have the fault x"), "cleave", cells, "x")
        self.assertEqual(nothing[:2], (None, 2))

    def test_refused(self):
        said = support.succeed(sys.executable, MATRIX, "--only", "refused",
                               "--build", support.CLEAVE.parent.parent)
        self.assertIn("0 checks, 0 not as expected", said)


@unittest.skipUnless(support.CLEAVE.exists(), "cleave is not built")
class ByHand(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for family in ("gpt2", "llama"):
            support.succeed(sys.executable, support.MODELS / "generate.py",
                            cls.folder / f"{family}.onnx", "--family", family, "--layers", 1,
                            "--batch", 4, "--sequence", 8)

    def check(self, family, config, *flags):
        path = self.folder / f"{family}.onnx"
        extra = self.folder / "by-hand.toml"
        extra.write_text(path.with_suffix(".toml").read_text() + config)
        return support.run(support.CLEAVE, "check", path, "--config", extra, "--interpret",
                           "--steps", 2, *flags)

    def passes(self, *arguments):
        done = self.check(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def refused(self, words, *arguments):
        done = self.check(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(words, done.stderr)

    def entry(self, match, dims, more=""):
        return f'[[shard]]\nmatch = "{match}"\ndims = {dims}\n{more}\n'

    def test_passes(self):
        mesh = "[mesh]\ntensor = 4\n"
        off = "[parallel]\ntensor = false\n"
        fused = self.entry(NAMES["gpt2"], '[[], [], ["tensor:(1)2"], []]',
                           "view = [96, 3, 6, 16]")
        self.passes("gpt2", mesh + off + fused)
        # Overriding a strategy along another dimension, with ZeRO in addition.
        rows = self.entry(".*c_fc\\\\.weight", '[["tensor"], []]')
        self.passes("gpt2", "[mesh]\ntensor = 2\ndata = 2\n" + rows,
                    "--set", "parallel.data.zero=1")
        self.passes("llama", mesh + self.entry(NAMES["llama"], '[["tensor"], []]'))
        # Sharded over the data axis by hand: gradients are reduce-scattered instead of all-reduced.
        self.passes("llama", "[mesh]\ndata = 2\n"
                    + self.entry(".*norm\\\\.weight", '[["data"]]'), "--set",
                    "parallel.data.zero=1")

    def test_microbatches(self):
        """Gradients accumulate before or after they are scattered."""
        def check(family, axes, layout, data):
            names = ",".join(f'"{axis}"' for axis in axes)
            own = ",".join(f'"{axis}"' for axis in axes[1:])
            keys = [f"mesh.axes=[{names}]", *(f"mesh.{axis}=2" for axis in axes),
                    f"parallel.tensor.layout={layout}", f"parallel.tensor.axes=[{own}]",
                    "train.microbatches=2", *(f"parallel.data.{key}" for key in data)]
            self.passes(family, "", *(flag for key in keys for flag in ("--set", key)))

        grid, cube = ["data", "row", "col"], ["data", "i", "j", "k"]
        check("gpt2", grid, "2d", ["zero=1"])
        check("llama", grid, "2d", ["zero=3"])
        check("gpt2", grid, "2d", ["zero=2", "zero2_reduce=per_microbatch"])
        check("gpt2", cube, "3d", ["zero=3", "reshard_after_forward=false"])

    def test_refused(self):
        mesh = "[mesh]\ntensor = 4\n"
        self.refused("matches none of the", "gpt2", mesh + self.entry("none", "[[]]"))
        self.refused("asks for", "gpt2", mesh + self.entry(".*ln_f\\\\.weight", '[["tensor"]]')
                     + self.entry(".*ln_f.*", "[[]]"))
        self.refused('axis "tensor" is used twice', "gpt2",
                     mesh + self.entry(".*wpe\\\\.weight", '[["tensor"], ["tensor"]]'))
        self.refused("did you mean 'tensor'?", "gpt2",
                     mesh + self.entry(".*wpe\\\\.weight", '[["tensr"], []]'))
        self.refused("does not divide", "gpt2",
                     mesh + self.entry(".*wpe\\\\.weight", '[["tensor:(1)3"], []]'))
        self.refused("dims has 1 entries, expected 2", "gpt2",
                     mesh + self.entry(".*wpe\\\\.weight", '[["tensor"]]'))
        self.refused("the program sees the tensor as [96, 3, 6, 16]", "gpt2",
                     mesh + self.entry(NAMES["gpt2"], '[[], ["tensor"]]'))


if __name__ == "__main__":
    unittest.main()
