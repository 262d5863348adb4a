#!/usr/bin/env python3
"""Draws comments and sentences of the documentation at random, to be read by someone who has not seen the tree: how many
are understood at first reading says whether the words are the field's.

Each is shown as a reader meets it: a comment with the code that it stands on (up to an empty line, at most six lines), a
sentence of a page with the heading of its section and the paragraph up to it.

usage: draw_sentences.py [--count N] [--seed TEXT] [--bare]    (default: 40, the hash of the current commit)"""

import argparse
import pathlib
import random
import re
import subprocess
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LEAST = 8  # words
SHOWN = 6  # lines of code


def files(*patterns):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", *patterns], capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split()]


def comments(text):
    """(whole block of `//` lines, the lines of code after it)."""
    for found in re.finditer(r"(?:^[ \t]*//[^\n]*\n)+", text, re.M):
        lines = [re.sub(r"^[ \t]*//[/!<]*-? ?", "", line) for line in found.group().splitlines()]
        block = text[found.end():].lstrip("\n").split("\n\n", 1)[0]
        after = "\n".join(textwrap.dedent(block).splitlines()[:SHOWN])
        yield " ".join(line.strip() for line in lines
                       if not re.match(r"=+|-+$|RUN|[A-Z-]*CHECK|expected-", line)), after


def sentences(text):
    """(sentence of a page, heading and the paragraph up to it), without tables and code."""
    text = re.sub(r"^(```.*?^```|    .*?$|\|.*?$|<!--.*?$|<table>.*?^</table>)", "", text, flags=re.M | re.S)
    heading = ""
    for paragraph in re.split(r"\n\s*\n|^(?=#)|^(?:-|\d+\.) ", text, flags=re.M):
        if paragraph.startswith("#"):
            heading, _, paragraph = paragraph.partition("\n")
        before = ""
        for sentence in re.split(r"(?<=[.:]) (?=[A-Z`*])", " ".join(paragraph.split())):
            yield sentence, " / ".join(filter(None, [heading.strip("# "), before]))
            before = f"{before} {sentence}".strip()


def words(text):
    """How many words a text has, without what it quotes as code."""
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"`[^`]*`", "", text)))


def drawn(count, seed):
    """[(path, text, context)]"""
    found = []
    for path in files("*.cpp", "*.h", "*.cu", "*.td"):
        found += [(path, *comment) for comment in comments(path.read_text())]
    for path in files("*.md"):
        found += [(path, *sentence) for sentence in sentences(path.read_text())]
    found = [one for one in found if words(one[1]) >= LEAST]
    return random.Random(seed).sample(found, count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed")
    parser.add_argument("--bare", action="store_true", help="without the context")
    args = parser.parse_args()
    seed = args.seed or subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True,
                                       check=True).stdout.strip()
    for number, (path, text, context) in enumerate(drawn(args.count, seed), 1):
        print(f"{number}. {path.relative_to(ROOT)}: {text}")
        if context and not args.bare:
            print("    after:" if path.suffix == ".md" else "    above:")
            print(textwrap.indent(context, "    "))
        print()


if __name__ == "__main__":
    main()
