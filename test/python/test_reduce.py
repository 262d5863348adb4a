"""cleave-reduce: a program with hundreds of operations, one of them wrong, is reduced to a few;
programs that cannot be reduced are rejected with the documented exit codes."""

import os
import pathlib
import re
import tempfile
import unittest

import support

REDUCE, OPT = support.BUILD / "bin" / "cleave-reduce", support.BUILD / "bin" / "cleave-opt"
LAYERS = 25  # with eight operations each


def layers(count):
    """An unpartitioned program: `count` Megatron MLPs, each with a residual and a scale."""
    wide = 'dist.sharding = #dist.sharding<@m, [{}, {"t"}]>'
    high = 'dist.sharding = #dist.sharding<@m, [{"t"}, {}]>'
    arguments, lines, x = ["%x: tensor<8x16xf32>"], [], "%x"
    for i in range(count):
        arguments += [f"%v{i}: tensor<16x32xf32> {{{wide}}}", f"%w{i}: tensor<32x16xf32> {{{high}}}",
                      f"%b{i}: tensor<16xf32>"]
        lines += [
            f'%p{i} = nn.einsum "bi,ih->bh" {x}, %v{i} : tensor<8x16xf32>, tensor<16x32xf32> -> tensor<8x32xf32>',
            f"%g{i} = nn.gelu tanh %p{i} : tensor<8x32xf32>",
            f'%q{i} = nn.einsum "bh,hi->bi" %g{i}, %w{i} : tensor<8x32xf32>, tensor<32x16xf32> -> tensor<8x16xf32>',
            f"%c{i} = nn.broadcast %b{i} dims = [1] : tensor<16xf32> -> tensor<8x16xf32>",
            f"%d{i} = arith.addf %q{i}, %c{i} : tensor<8x16xf32>",
            f"%t{i} = math.tanh %d{i} : tensor<8x16xf32>",
            f"%s{i} = arith.mulf %t{i}, %d{i} : tensor<8x16xf32>",
            f"%x{i} = arith.addf %s{i}, {x} : tensor<8x16xf32>"]
        x = f"%x{i}"
    return ('dist.mesh @m <["d"=2, "t"=2]>\n'
            f"func.func @forward({', '.join(arguments)}) -> tensor<8x16xf32> {{\n  "
            + "\n  ".join(lines) + f"\n  return {x} : tensor<8x16xf32>\n}}\n")


def operations(text):
    return len(re.findall(r"^ +%\S+ = ", text, re.M))


class Reduce(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_a_lost_sum(self):
        logical = self.write("logical.mlir", layers(LAYERS))
        local = support.succeed(OPT, logical, "-dist-propagate", "-dist-plan-ops", "-dist-partition")
        sums = re.findall(r"^ +(%\S+) = dist\.all_reduce sum (%\S+) .*\n", local, re.M)
        self.assertEqual(len(sums), LAYERS)
        # The all-reduce in the middle is removed: its partial sums are read as if complete.
        result, operand = sums[LAYERS // 2]
        wrong = re.sub(rf"^ +{result} = dist\.all_reduce .*\n", "", local, flags=re.M)
        wrong = re.sub(rf"{result}\b", operand, wrong)
        self.assertGreaterEqual(operations(wrong), 200)
        failing, small = self.write("failing.mlir", wrong), self.folder / "small.mlir"
        test = f"{OPT} -dist-verify-variance {{}} 2>&1 | grep -q 'which is partial (sum) over axis'"

        done = support.run(REDUCE, failing, "--test", test, "-o", small)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = small.read_text()
        self.assertGreater(operations(text), 0)
        self.assertLess(operations(text), 10, text)
        self.assertNotIn(" 1 tests", done.stderr)
        self.assertRegex(done.stderr, rf"from 2\d\d to {operations(text)} operations in \d+ tests: ")
        # The reduced program fails in the same way, with smaller sizes and one mesh axis less.
        verified = support.run(OPT, "-dist-verify-variance", small)
        self.assertIn("which is partial (sum) over axis", verified.stderr)
        self.assertIn('@m <["t"=2]>', text)
        self.assertNotIn("x16x", text)

        # A minimal program stays unchanged, and is written to standard output.
        done = support.run(REDUCE, small, "--test", test, "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, text)

    def test_the_path_is_the_last_argument(self):
        # The test is a script with a relative path, and the file has an unusual name.
        program = self.write("a b.mlir", layers(1))
        script = self.write("interesting.sh", '#!/bin/sh\n[ $# = 2 ] && grep -q "$1" "$2"\n')
        os.chmod(script, 0o755)
        done = support.run(REDUCE, program, "--test", "./interesting.sh math.tanh", "-o", "small.mlir",
                           cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.folder / "small.mlir").read_text()
        self.assertIn("math.tanh", text)
        self.assertEqual(operations(text), 1)

    def test_what_hangs_is_ended(self):
        """On a timeout, all processes that the command has started are killed."""
        program = self.write("program.mlir", layers(1))
        script = self.write("hangs.sh", "#!/bin/sh\nsleep 60 &\necho $! > sleeper\nwait\n")
        os.chmod(script, 0o755)
        done = support.run(REDUCE, program, "--test", "./hangs.sh", "--timeout", "1", cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("ran longer than --timeout 1 seconds", done.stderr)
        sleeper = pathlib.Path("/proc") / (self.folder / "sleeper").read_text().strip()
        state = (sleeper / "stat").read_text().split()[2] if sleeper.exists() else "gone"
        self.assertIn(state, ("gone", "Z", "X"))

    def test_bad_input(self):
        good = self.write("good.mlir", layers(1))
        broken = self.write("broken.mlir", "func.func @f(")
        blocks = self.write("blocks.mlir", "func.func @f() {\n  llvm.br ^bb1\n^bb1:\n  return\n}\n")
        empty = self.write("empty.mlir", "module {}\n")
        yes = ["--test", "true"]
        for flags, code, message in [
            ([], 2, "no FILE.mlir is given"),
            ([good], 2, "no --test COMMAND is given"),
            ([self.folder / "none.mlir", *yes], 2, "is not a file"),
            ([self.folder, *yes], 2, "is not a file"),
            ([broken, *yes], 2, "broken.mlir' is no valid program"),
            ([empty, *yes], 2, "it has no function with a body"),
            ([blocks, *yes], 2, "@f has several blocks"),
            ([good, "--test", "exit 1 #"], 2, "ended with 1 on the file itself, expected 0"),
            ([good, "--test", "no-such-program"], 2, "ended with 126 or 127: the shell found no such program"),
            ([good, "--test", "sleep 10 #", "--timeout", "1"], 2, "ran longer than --timeout 1 seconds"),
            ([good, *yes, "--tests", "1"], 2, "--tests"),
            ([good, *yes, "-o", self.folder / "none" / "small.mlir"], 3, "cannot write '"),
        ]:
            with self.subTest(flags=list(map(str, flags))):
                done = support.run(REDUCE, *flags)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
