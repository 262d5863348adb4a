"""reach.py BASE FOLDER: which tests a change can reach, for tools/check --changed.

The change is all that differs between the working tree and the commit BASE. A test is
reached where it changed itself, where a program that it runs is built from what
changed (ninja knows: sources, headers, precompiled headers), or where it reads a file that
did. What no rule speaks of reaches everything. FOLDER is the build, which must be up to date.

Prints a line a kind: "lit FILE...", "gtest PROGRAM...", "python MODULE...", after "# FILE: what
it reaches" for each file; "all" in place of names means all.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".inc", ".td", ".in")
ALL = "all"
TESTS = ("cleave-unit-", "cleave-fuzz-")  # programs that ctest runs, under their names as labels
# Files that say how everything is built or run.
OF_EVERYTHING = re.compile(r"(^|/)CMakeLists\.txt$|^CMakePresets\.json$|^cmake/|^\.ci/|^tools/common\.sh$"
                           r"|^test/lit\.|^tools/lib/run_tests\.py$|^tools/check$")
# Files that no program and no test reads.
OF_NOTHING = re.compile(r"^(LICENSE|\.gitignore)$")


def output(*command, cwd=ROOT):
    return subprocess.run([str(c) for c in command], cwd=cwd, check=True, capture_output=True,
                          text=True).stdout


def changed_files(base):
    """Paths from the root, deleted ones included."""
    names = output("git", "diff", "--name-only", "--no-renames", base).split("\n")
    return sorted(filter(None, names + output("git", "ls-files", "--others",
                                              "--exclude-standard").split("\n")))


def included(deps):
    """From `ninja -t deps`: the files that each object was compiled from."""
    files, name = {}, None
    for line in deps.splitlines():
        if line.startswith(" "):
            files[name].add(line.strip())
        elif ": #deps" in line:
            name = line.split(": #deps")[0]
            files[name] = set()
    return files


class Programs:
    """What the programs of a build are made from."""

    def __init__(self, folder):
        self.folder = folder
        self.deps = {name: {os.path.normpath(os.path.join(folder, file)) for file in files}
                     for name, files in included(output("ninja", "-t", "deps", cwd=folder)).items()}
        self.inputs = {}

    def names(self):
        return sorted(path.name for path in (self.folder / "bin").iterdir())

    def made_from(self, name):
        """All files that the program is made from, as absolute paths."""
        if name not in self.inputs:
            said = output("ninja", "-t", "inputs", f"bin/{name}", cwd=self.folder).splitlines()
            self.inputs[name] = {os.path.normpath(os.path.join(self.folder, file)) for file in said}
            for file in said:
                self.inputs[name] |= self.deps.get(file, set())
        return self.inputs[name]

    def reached_by(self, path):
        return {name for name in self.names() if str(path) in self.made_from(name)}


class Tests:
    """The tests of a tree: texts of lit tests and Python modules, by name."""

    def __init__(self, root):
        self.root, self.texts = root, {}
        self.lit = {str(path.relative_to(root)): path.read_text(errors="replace")
                    for suffix in ("*.mlir", "*.test") for path in (root / "test").rglob(suffix)
                    if "Inputs" not in path.parts}
        folders = ("test/python", "tools/lib", "test/models", "test")
        self.modules = {path.stem: path.read_text()
                        for folder in folders for path in (root / folder).glob("*.py")}
        self.scripts = {path.name: path.read_text() for path in (root / "tools").glob("*")
                        if path.is_file() and not path.suffix}
        self.python = sorted(name for name in self.modules if name.startswith("test_"))

    def text(self, module):
        """The text of a module and of all that it imports or runs of ours."""
        if module not in self.texts:
            # support.py names every program, for whoever uses one.
            self.texts[module] = "\n".join(self.whole(name) for name in self.used_by(module)
                                           if name != "support")
        return self.texts[module]

    def whole(self, name):
        return self.modules.get(name) or self.scripts[name]

    def used_by(self, module):
        """The modules and scripts of ours that a module imports or runs, itself included."""
        seen, todo = [], [module]
        while todo:
            name = todo.pop()
            if name in seen or not (name in self.modules or name in self.scripts):
                continue
            seen.append(name)
            todo += re.findall(r"^\s*(?:from|import) (\w+)", self.whole(name), re.M)
            todo += re.findall(r"\btools[\"']?\s*/\s*[\"']?(\w[\w-]*)", self.whole(name))
        return seen

    def mention(self, words, names=()):
        """(lit tests, Python modules) whose text has one of the words; Python may say one of
        the names of support.py, too."""
        pattern, of_python = (re.compile(r"(?<![\w-])(" + "|".join(map(re.escape, list_))
                                         + r")(?![\w-])")
                              for list_ in (words, [*words, *names]))
        return ({name for name, text in self.lit.items() if pattern.search(text)},
                {name for name in self.python if of_python.search(self.text(name))})


# Tests that read every source as text: its layout, its includes, the patches that apply to it.
OF_SOURCES = {"test_format", "test_layers", "test_walkthroughs"}
# What support.py calls the programs.
NAMES = {"cleave": "CLEAVE", "cleave-run": "RUN"}


def reach_of(path, tests, programs):
    """(lit tests, programs of GoogleTest, Python modules) that one file reaches."""
    if OF_NOTHING.search(path):
        return set(), set(), set()
    if path == ".clang-format":
        return set(), set(), {"test_format"} & set(tests.python)
    if OF_EVERYTHING.search(path):
        return ALL, ALL, ALL
    name = pathlib.PurePath(path)
    if path in tests.lit:
        return {path}, set(), set()
    if path.startswith("docs/") or name.suffix == ".md":
        lit, python = tests.mention([name.name])
        return lit, set(), python | {"test_docs", "test_examples"} & set(tests.python)
    if name.suffix in SOURCES:
        reached = programs.reached_by(ROOT / path)
        # Programs that tests run, and files that they read as text.
        lit, python = tests.mention([*reached, name.name],
                                    [NAMES[program] for program in reached if program in NAMES])
        gtest = {program for program in reached if program.startswith(TESTS)}
        if not (lit or python or gtest):
            return ALL, ALL, ALL
        return lit, gtest, python | OF_SOURCES & set(tests.python)
    if name.stem in tests.modules or name.name in tests.scripts:
        python = {other for other in tests.python
                  if {name.stem, name.name} & set(tests.used_by(other))}
        lit, more = tests.mention([name.name])
        if lit or more or python:
            return lit, set(), python | more
    # Models, data, scripts: whoever speaks of them.
    lit, python = tests.mention({name.name, name.stem, name.name.split(".")[0]})
    gtest = {program for program in programs.names() if program.startswith(TESTS)
             and path.startswith("test/models/")}
    return (lit, gtest, python) if lit or python else (ALL, ALL, ALL)


def reach(files, tests, programs, say=lambda line: None):
    """The same of several files together."""
    total = [set(), set(), set()]
    for path in files:
        found = reach_of(path, tests, programs)
        counts = ["all" if part == ALL else str(len(part)) for part in found]
        say(f"# {path}: lit {counts[0]}, GoogleTest {counts[1]}, Python {counts[2]}")
        total = [ALL if ALL in (old, new) else old | new for old, new in zip(total, found)]
    return total


def main(base, folder):
    tests, programs = Tests(ROOT), Programs(pathlib.Path(folder).resolve())
    found = reach(changed_files(base), tests, programs, print)
    for kind, names in zip(("lit", "gtest", "python"), found):
        print(kind, *([ALL] if names == ALL else sorted(names)))


if __name__ == "__main__":
    main(*sys.argv[1:])
