"""`cleave completion bash`, run in bash; zsh completion offers the same names; `cleave --version`
names the commit of the checkout in which it was built."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import support

COMMANDS = ["import", "check", "compile", "train", "infer", "explain", "config", "schedule", "ops",
            "cache", "completion"]


def completed(line, folder="."):
    """The completions that bash offers for the last word of a line."""
    words = line.split(" ")
    script = (support.succeed(support.CLEAVE, "completion", "bash")
              + f"COMP_WORDS=({' '.join(repr(word) for word in words)})\n"
              + f"COMP_CWORD={len(words) - 1}\n_cleave\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n")
    return support.succeed("bash", "-uc", script, cwd=folder).split()


def flags_of(*command):
    shown = support.succeed(support.CLEAVE, *command, "--help")
    return set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", shown, re.M))


class Completion(unittest.TestCase):
    def test_commands(self):
        self.assertEqual(set(completed("cleave ")), set(COMMANDS))
        self.assertEqual(completed("cleave ex"), ["explain"])
        self.assertEqual(set(completed("cleave --")), {"--help", "--version"})
        self.assertEqual(set(completed("cleave cache ")), {"show", "clear"})

    def test_flags_are_those_of_help(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                expected = flags_of(command)
                self.assertIn("--help", expected)
                self.assertEqual(set(completed(f"cleave {command} --")), expected)
        self.assertEqual(set(completed("cleave cache show --")), flags_of("cache", "show"))
        self.assertEqual(completed("cleave check model.onnx --inj"), ["--inject", "--inject-index"])

    def test_values(self):
        self.assertEqual(completed("cleave check m.onnx --against i"), ["interpreter"])
        self.assertEqual(set(completed("cleave train m.onnx --resume ")), {"latest", "auto"})
        # If nothing is offered, bash completes file names: `complete -o default`.
        self.assertEqual(completed("cleave compile mo"), [])
        self.assertEqual(completed("cleave compile m.onnx --config "), [])
        self.assertEqual(completed("cleave config --set train.l"), ["train.loss=", "train.lr=", "train.logits="])
        self.assertIn("mesh.", completed("cleave train m.onnx --set "))

    def test_zsh_names_the_same(self):
        script = support.succeed(support.CLEAVE, "completion", "zsh")
        self.assertTrue(script.startswith("#compdef cleave\n"))
        for command in COMMANDS:
            self.assertRegex(script, rf"\n      '{command}:\w")
            arm = re.search(rf"\n  '{command}'\)\n(.*?)\n    ;;\n", script, re.S)[1]
            self.assertEqual(set(re.findall(r"^      '(--[\w-]+):", arm, re.M)), flags_of(command))

    def test_an_unknown_shell(self):
        done = support.run(support.CLEAVE, "completion", "fish")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected bash or zsh", done.stderr)


class Version(unittest.TestCase):
    def header(self, source):
        output = pathlib.Path(source) / "commit.h"
        done = support.run("cmake", f"-DSOURCE={source}", f"-DOUTPUT={output}", "-P",
                           support.ROOT / "cmake" / "WriteCommit.cmake")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return output.read_text()

    def git(self, folder, *arguments):
        return support.succeed("git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments,
                               cwd=folder).strip()

    def test_the_commit_of_a_checkout(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.header(folder), '#define CLEAVE_COMMIT ""\n')
            self.git(folder, "init", "-q")
            (pathlib.Path(folder) / ".gitignore").write_text("commit.h\n")
            self.git(folder, "add", ".")
            self.git(folder, "commit", "-qm", "first")
            commit = self.git(folder, "rev-parse", "--short=12", "HEAD")
            self.assertEqual(self.header(folder), f'#define CLEAVE_COMMIT "{commit}"\n')
            (pathlib.Path(folder) / ".gitignore").write_text("commit.h\nother\n")
            self.assertEqual(self.header(folder), f'#define CLEAVE_COMMIT "{commit}-dirty"\n')
            # Sources unpacked inside another checkout do not use its commit.
            inner = pathlib.Path(folder) / "inner"
            inner.mkdir()
            self.assertEqual(self.header(inner), '#define CLEAVE_COMMIT ""\n')

    def test_the_tools_name_the_version(self):
        version = support.succeed(support.CLEAVE, "--version").split(" (")[0].strip()
        for tool in ("cleave-opt", "cleave-reduce", "cleave-lsp-server"):
            shown = support.succeed(support.BUILD / "bin" / tool, "--version")
            self.assertIn(version, shown.splitlines(), tool)

    def test_the_program_names_it(self):
        shown = support.succeed(support.CLEAVE, "--version").strip()
        found = re.fullmatch(r"cleave \d+\.\d+\.\d+(?: \(([0-9a-f]{12})(?:-dirty)?\))?", shown)
        self.assertTrue(found, shown)
        if (support.ROOT / ".git").exists():
            self.assertEqual(self.git(support.ROOT, "cat-file", "-t", found[1]), "commit")
        else:
            self.assertIsNone(found[1])


if __name__ == "__main__":
    unittest.main()
