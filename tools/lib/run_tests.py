"""run_tests.py FOLDER: runs the unittest modules of a folder. The last line is
"N passed, N failed, N skipped"; the exit code is 0 only without a failure.

Skipping hides what was not tried: every skipped test is listed with its reason,
and counts as failed where something is not built or where its module skips all
of its tests. "built without X" is a reason where the build in CLEAVE_BUILD_DIR
says so of itself (CLEAVE_BUILT_WITHOUT in its cache), and a failure elsewhere.
"""

import collections
import os
import pathlib
import re
import sys
import time
import unittest


def module_of(test):
    return type(test).__module__


class Result(unittest.TextTestResult):
    def __init__(self, *arguments, **keys):
        super().__init__(*arguments, **keys)
        self.passed = 0
        self.run_of = collections.Counter()  # tests by module
        self.seconds_of = collections.Counter()
        self.begin = time.monotonic()

    def startTest(self, test):
        super().startTest(test)
        self.run_of[module_of(test)] += 1

    def stopTest(self, test):
        super().stopTest(test)
        now = time.monotonic()  # what comes between two tests is the second one's
        self.seconds_of[module_of(test)] += now - self.begin
        self.begin = now

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def built_without():
    """What the build lacks on purpose: {"cuDNN"}."""
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


def main():
    suite = unittest.defaultTestLoader.discover(sys.argv[1])
    result = unittest.TextTestRunner(resultclass=Result).run(suite)
    failed, skipped, lines = judge(result)
    if not result.testsRun:
        failed += 1
        lines.append(f"failed: {sys.argv[1]} has no tests")
    sys.stderr.flush()
    print("slowest:", ", ".join(f"{module} {seconds:.0f} s" for module, seconds in
                                result.seconds_of.most_common(8)))
    for line in lines:
        print(line)
    print(f"{result.passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
