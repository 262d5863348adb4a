"""Perfetto's requirements on traces in the Trace Event Format: named processes and threads, nested
slices, and arrows whose ends are inside slices.

Perfetto silently drops events that break a rule, so each rule is checked here.
"""

import json
import math


def nanoseconds(microseconds):
    return round(microseconds * 1000)


def read(test, path):
    """The events of a file, by phase; each is well-formed."""
    whole = json.loads(path.read_text())
    test.assertIn(whole["displayTimeUnit"], ("ms", "ns"))
    phases = {"M": [], "X": [], "s": [], "f": []}
    for event in whole["traceEvents"]:
        test.assertIn(event["ph"], phases, event)
        for key in ("pid", "tid"):
            test.assertIsInstance(event[key], int, event)
        test.assertTrue(event["name"], event)
        for key in {"X": ("ts", "dur"), "s": ("ts",), "f": ("ts",)}.get(event["ph"], ()):
            test.assertTrue(math.isfinite(event[key]) and event[key] >= 0, event)
        phases[event["ph"]].append(event)
    return phases


def check(test, path, ranks):
    """Slices by thread, and arrows as pairs of the slices that they connect."""
    phases = read(test, path)
    # Names: a process for each rank, with two threads of its own.
    names = {"process_name": {}, "thread_name": {}}
    for event in phases["M"]:
        key = (event["pid"], event["tid"])[:1 + (event["name"] == "thread_name")]
        test.assertNotIn(key, names[event["name"]], "named twice")
        names[event["name"]][key] = event["args"]["name"]
    test.assertEqual(sorted(names["process_name"]), [(rank,) for rank in range(ranks)])
    for (rank,), name in names["process_name"].items():
        test.assertRegex(name, rf"^rank {rank}\b")
    test.assertEqual([tid for _, tid in sorted(names["thread_name"])], list(range(2 * ranks)))
    for rank in range(ranks):
        test.assertEqual([names["thread_name"][rank, 2 * rank + i] for i in range(2)],
                         ["compute", "send/recv"])

    # Slices of a thread are disjoint or nested.
    threads = {key: [] for key in names["thread_name"]}
    for event in phases["X"]:
        test.assertIn((event["pid"], event["tid"]), threads, event)
        threads[event["pid"], event["tid"]].append(event)
    def span(event):
        begin = nanoseconds(event["ts"])
        return begin, begin + nanoseconds(event["dur"])
    for events in threads.values():
        events.sort(key=lambda e: (span(e)[0], -span(e)[1]))
        opened = []
        for event in events:
            begin, end = span(event)
            while opened and opened[-1] <= begin:
                opened.pop()
            if opened:
                test.assertLessEqual(end, opened[-1], event)
            opened.append(end)

    # Arrows: each id has one start and one later end, both inside a slice.
    def around(event):
        at = nanoseconds(event["ts"])
        found = [e for e in threads[event["pid"], event["tid"]]
                 if span(e)[0] <= at < max(span(e)[1], span(e)[0] + 1)]
        test.assertTrue(found, event)
        return found[-1]
    ends = {}
    for event in phases["f"]:
        test.assertEqual(event["bp"], "e", event)
        test.assertNotIn(event["id"], ends, "two ends")
        ends[event["id"]] = event
    arrows = []
    for event in phases["s"]:
        test.assertIsInstance(event["id"], int) # Perfetto accepts no strings
        end = ends.pop(event["id"])
        test.assertEqual((event["name"], event["cat"]), (end["name"], end["cat"]))
        test.assertLessEqual(event["ts"], end["ts"])
        test.assertNotEqual(event["pid"], end["pid"])
        arrows.append((around(event), around(end)))
    test.assertFalse(ends, "ends without a beginning")
    return threads, arrows
