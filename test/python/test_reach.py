"""What tools/check --changed runs: what a change can reach, on a small tree."""

import pathlib
import tempfile
import types
import unittest

import support  # noqa: F401 (puts tools/lib on the path)
import reach

FILES = {
    "test/Partition/reshard.mlir": "// RUN: cleave-opt %s",
    "test/Commands/train.test": "# RUN: cleave train %models/gpt2.onnx",
    "test/python/support.py": "CLEAVE = 1",
    "test/python/test_train.py": "import support\nsupport.CLEAVE\n'gpt2'",
    "test/python/test_run.py": "import support\nsupport.RUN",
    "test/python/test_alone.py": "import unittest",
    "test/python/test_docs.py": "import unittest",
    "test/python/test_format.py": "'.clang-format'",
    "test/python/test_examples.py": "import unittest",
    "test/python/test_matrix.py": "MATRIX = 'tools' / 'matrix'",
    "tools/lib/onnxwire.py": "x = 1",
    "tools/lib/matrix_cells.py": "import onnxwire",
    "tools/matrix": "import matrix_cells",
    "test/models/reference.py": "import onnxwire",
}
# What programs are made from.
MADE = {"cleave": ["lib/Partition/Reshard/Reshard.cpp", "runtime/src/rank.cpp"],
        "cleave-opt": ["lib/Partition/Reshard/Reshard.cpp"],
        "cleave-run": ["runtime/src/rank.cpp"],
        "cleave-unit-reshard": ["lib/Partition/Reshard/Reshard.cpp", "test/unit/Partition/ReshardTest.cpp"],
        "cleave-unit-import": ["lib/Import/ONNX/Model.cpp"]}


class Reach(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, text in FILES.items():
            path = pathlib.Path(folder.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.tests = reach.Tests(pathlib.Path(folder.name))
        self.programs = types.SimpleNamespace(
            names=lambda: sorted(MADE),
            reached_by=lambda path: {name for name, files in MADE.items()
                                     if str(path.relative_to(reach.ROOT)) in files})

    def of(self, *paths):
        return [part if part == reach.ALL else sorted(part)
                for part in reach.reach(paths, self.tests, self.programs)]

    def test_a_source_reaches_what_runs_its_programs(self):
        lit = ["test/Commands/train.test", "test/Partition/reshard.mlir"]
        self.assertEqual(self.of("lib/Partition/Reshard/Reshard.cpp"),
                         [lit, ["cleave-unit-reshard"], ["test_format", "test_train"]])
        self.assertEqual(self.of("runtime/src/rank.cpp"),
                         [lit[:1], [], ["test_format", "test_run", "test_train"]])
        self.assertEqual(self.of("test/unit/Partition/ReshardTest.cpp"),
                         [[], ["cleave-unit-reshard"], ["test_format"]])

    def test_the_style_reaches_the_check_of_it(self):
        self.assertEqual(self.of(".clang-format"), [[], [], ["test_format"]])

    def test_a_test_reaches_itself(self):
        self.assertEqual(self.of("test/Partition/reshard.mlir", "test/python/test_alone.py"),
                         [["test/Partition/reshard.mlir"], [], ["test_alone"]])

    def test_a_module_reaches_what_imports_it(self):
        self.assertEqual(self.of("test/python/support.py")[2], ["test_run", "test_train"])

    def test_a_script_reaches_what_runs_it(self):
        for path in ("tools/matrix", "tools/lib/matrix_cells.py", "tools/lib/onnxwire.py"):
            self.assertEqual(self.of(path), [[], [], ["test_matrix"]], path)

    def test_a_model_reaches_who_speaks_of_it(self):
        self.assertEqual(self.of("test/models/gpt2.onnx"),
                         [["test/Commands/train.test"], ["cleave-unit-import", "cleave-unit-reshard"],
                          ["test_train"]])

    def test_documents(self):
        self.assertEqual(self.of("docs/check.md", "LICENSE"),
                         [[], [], ["test_docs", "test_examples"]])

    def test_what_no_rule_knows_reaches_everything(self):
        for path in ("CMakeLists.txt", "lib/Partition/CMakeLists.txt", "cmake/pch/mlir.h",
                     "lib/Partition/Deleted.cpp", "tools/unknown"):
            with self.subTest(path):
                self.assertEqual(self.of(path), [reach.ALL] * 3)

    def test_deps_of_ninja(self):
        said = ("a.o: #deps 2, deps mtime 1 (VALID)\n    ../a.cpp\n    ../a.h\n\n"
                "b.o: #deps 1, deps mtime 1 (VALID)\n    ../b.cpp\n")
        self.assertEqual(reach.included(said), {"a.o": {"../a.cpp", "../a.h"}, "b.o": {"../b.cpp"}})


if __name__ == "__main__":
    unittest.main()
