"""run_tests.py FOLDER [MODULE...]: runs the unittest modules of a folder, or those that
are named, each in a process of its own, as many at once as there are cores. The last
line is "N passed, N failed, N skipped"; the exit code is 0 only without a failure.

Skipping hides what was not tried: every skipped test is listed with its reason,
and counts as failed where something is not built or where its module skips all
of its tests. "built without X" is a reason where the build in CLEAVE_BUILD_DIR
says so of itself (CLEAVE_BUILT_WITHOUT in its cache), and a failure elsewhere.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SLOWEST = 12  # tests that are named at the end
# Modules that begin first, so that no long one is left alone at the end.
LONGEST = ("test_cuda_recorded", "test_check", "test_bad_input", "test_training_keys",
           "test_matrix", "test_experts", "test_pipeline", "test_mixed_precision",
           "test_cuda_artifacts", "test_mpi", "test_cuda_dnn", "test_cuda_processes",
           "test_pipeline_explain", "test_pipeline_faults", "test_check_faults", "test_sequence",
           "test_training", "test_import_experts", "test_overlap")


def module_of(test):
    return type(test).__module__


class Result(unittest.TextTestResult):
    def __init__(self, *arguments, **keys):
        super().__init__(*arguments, **keys)
        self.passed = 0
        self.run_of = collections.Counter()  # tests by module
        self.seconds_of = {}

    def startTest(self, test):
        super().startTest(test)
        self.run_of[module_of(test)] += 1
        self.seconds_of[test.id()] = -time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.seconds_of[test.id()] += time.monotonic()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def built_without():
    """What the build lacks deliberately: {"cuDNN"}."""
    cache = pathlib.Path(os.environ.get("CLEAVE_BUILD_DIR", "build")) / "CMakeCache.txt"
    said = cache.read_text() if cache.exists() else ""
    found = re.search(r"^CLEAVE_BUILT_WITHOUT:\w+=(.+)$", said, re.MULTILINE)
    return set(found[1].split(";")) if found else set()


def judge(result):
    """(failed, skipped), and a line for each test that was skipped."""
    # A test fails once, however many of its subtests do.
    bad = {getattr(test, "test_case", test).id() for test in
           [test for test, _ in result.failures + result.errors] + result.unexpectedSuccesses}
    skipped_of = collections.Counter(module_of(test) for test, _ in result.skipped)
    lines, failed, lacks = [], len(bad), built_without()
    for test, reason in result.skipped:
        module = module_of(test)
        without = reason.startswith("built without ")
        if without and reason.removeprefix("built without ") in lacks:
            lines.append(f"skipped: {test.id()}: {reason}")
        elif without or "not built" in reason:
            failed += 1
            lines.append(f"failed: {test.id()}: {reason}")
        elif skipped_of[module] >= result.run_of[module]:
            failed += 1
            lines.append(f"failed: {test.id()}: {reason}, as all tests of {module}")
        else:
            lines.append(f"skipped: {test.id()}: {reason}")
    skipped = sum(line.startswith("skipped") for line in lines)
    return failed, skipped, lines


def run_module(folder, name, report):
    """Runs one module, and writes what it found to a file."""
    suite = unittest.defaultTestLoader.discover(folder, pattern=f"{name}.py")
    result = unittest.TextTestRunner(resultclass=Result).run(suite)
    failed, skipped, lines = judge(result)
    report.write_text(json.dumps({"run": result.testsRun, "passed": result.passed,
                                  "failed": failed, "skipped": skipped, "lines": lines,
                                  "seconds": result.seconds_of}))


def in_a_process(folder, name):
    """The same in a process of its own: what it found, what it printed, and the seconds
    that it took. One that ends early has failed."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as own:
        report = pathlib.Path(own) / "report.json"
        done = subprocess.run([sys.executable, __file__, "--module", folder, name, report],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")
        found = json.loads(report.read_text()) if report.exists() else {
            "run": 1, "passed": 0, "failed": 1, "skipped": 0,
            "seconds": {}, "lines": [f"failed: {name} ended with {done.returncode} before its tests did"]}
    return found, done.stdout, time.monotonic() - begin


def main(folder, *chosen):
    # Whoever started the tests may have ignored these (a job in the background), and programs inherit that.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    names = sorted(path.stem for path in pathlib.Path(folder).glob("test*.py"))
    names = [name for name in names if not chosen or name in chosen]
    tests = {}
    names.sort(key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    totals, lines, seconds_of, bad = collections.Counter(), [], collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(in_a_process, folder, name): name for name in names}
        for done in concurrent.futures.as_completed(running):
            name = running[done]
            found, said, seconds_of[name] = done.result()
            lines += found.pop("lines")
            tests |= found.pop("seconds")
            totals.update(found)
            print(f"{name}: {found['passed']} passed, {found['failed']} failed, "
                  f"{found['skipped']} skipped, {seconds_of[name]:.0f} s", flush=True)
            if found["failed"]:
                bad.append(f"{name}:\n{said}")
    print(*bad, sep="\n")  # last, where one looks
    if not totals["run"]:
        totals["failed"] += 1
        lines.append(f"failed: {folder} has no tests")
    for line in sorted(lines):
        print(line)
    print("slowest: " + ", ".join(f"{name} {tests[name]:.0f} s" for name in sorted(
        tests, key=tests.get, reverse=True)[:SLOWEST]))
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--module"]:
        run_module(*sys.argv[2:4], pathlib.Path(sys.argv[4]))
    else:
        sys.exit(main(*sys.argv[1:]))
