"""The examples in the TableGen files parse and verify: those of passes unchanged,
those of operations with declarations of their operands added. So do the programs in
README.md and docs.

Needs build/bin/cleave-opt (or CLEAVE_BUILD_DIR)."""

import os
import pathlib
import re
import subprocess
import textwrap
import unittest

import support

OPT = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", support.ROOT / "build")) / "bin" / "cleave-opt"
FENCE = re.compile(r"```mlir\n(.*?)```", re.S)
# The mesh that examples refer to as @m.
MESH = 'dist.mesh @m <["data"=2, "tensor"=2, "x"=4, "y"=2]>\n'


def parse(text):
    done = subprocess.run([OPT, "-allow-unregistered-dialect", "-"], input=text,
                          capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def symbols(text):
    """The example with the mesh and the kernels to which it only refers."""
    result = MESH if "@m" in text and "dist.mesh" not in text else ""
    for kernel, signature in re.findall(r"rt\.launch @(\w+)\(.*? : (\(.*\) -> .*)", text):
        result += f"func.func private @{kernel}{signature}\n"
    return result


def errors(text):
    """The errors of an example that has only operations, or a whole program.

    To operations alone it adds a definition for each value that the example only uses, with
    the type of that use: a first definition of another type, after the use in the module's
    graph region, causes an error that names the type."""
    if "func.func" in text:
        return parse(text)
    text = symbols(text) + text
    defined = set()
    for results in re.findall(r"^\s*((?:%[\w]+(?::\d+)?(?:, )?)+) =", text, re.M):
        defined.update(re.findall(r"%\w+", results))
    free = []
    for name in re.findall(r"%\w+", text):
        if name not in defined and name not in free:
            free.append(name)
    types = dict.fromkeys(free, "none")
    for _ in range(len(free) + 1):
        whole = text + "".join(f'\n{name} = "t.def"() : () -> {kind}' for name, kind in types.items())
        error = parse(whole)
        wrong = re.search(r"definition of SSA value '(%\w+)#?\d*' has type.*?previously used here with type '([^\n]*)'\n",
                          error, re.S)
        if not wrong:
            return error
        types[wrong.group(1)] = wrong.group(2)
    return error


@unittest.skipUnless(OPT.exists(), "cleave-opt is not built")
class Examples(unittest.TestCase):
    def blocks(self, pattern, folder=support.ROOT / "include" / "cleave"):
        for path in sorted(folder.glob(pattern)):
            for block in FENCE.findall(path.read_text()):
                yield path.name, textwrap.dedent(block)

    def test_passes(self):
        for file, block in self.blocks("**/*Passes.td"):
            with self.subTest(file=file, block=block):
                self.assertEqual(errors(block), "")

    def test_operations(self):
        for file, block in self.blocks("Dialect/*/IR/*Ops.td"):
            with self.subTest(file=file, block=block):
                self.assertEqual(errors(block), "")

    def test_pages(self):
        """Whole programs; other blocks of pages are of the TableGen files."""
        found = [*self.blocks("README.md", support.ROOT), *self.blocks("*.md", support.ROOT / "docs")]
        self.assertGreaterEqual(len(found), 2)
        for file, block in found:
            with self.subTest(file=file, block=block):
                self.assertIn("func.func", block)
                self.assertEqual(parse(block), "")


if __name__ == "__main__":
    unittest.main()
