#!/usr/bin/env python3
"""Draws comments and sentences of the documentation at random, to be read by someone who has not seen the tree: how many
are understood at first reading says whether the words are the field's.

usage: draw_sentences.py [--count N] [--seed TEXT]    (default: 40, the hash of the current commit)"""

import argparse
import pathlib
import random
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LEAST = 8  # words


def files(*patterns):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", *patterns], capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split()]


def comments(text):
    """Blocks of `//` lines, whole."""
    for block in re.findall(r"(?:^[ \t]*//[^\n]*\n)+", text, re.M):
        lines = [re.sub(r"^[ \t]*//[/!<]*-? ?", "", line) for line in block.splitlines()]
        yield " ".join(line.strip() for line in lines if not re.match(r"=+|-+$|RUN|[A-Z-]*CHECK|expected-", line))


def sentences(text):
    """The sentences of a page, without tables, code and headings."""
    text = re.sub(r"^(```.*?^```|    .*?$|\|.*?$|#.*?$|<!--.*?$|<table>.*?^</table>)", "", text, flags=re.M | re.S)
    for paragraph in re.split(r"\n\s*\n|^- ", text, flags=re.M):
        yield from re.split(r"(?<=[.:]) (?=[A-Z`*])", " ".join(paragraph.split()))


def words(text):
    """How many words a text has, without what it quotes as code."""
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"`[^`]*`", "", text)))


def drawn(count, seed):
    found = []
    for path in files("*.cpp", "*.h", "*.cu", "*.td"):
        found += [(path, text) for text in comments(path.read_text())]
    for path in files("*.md"):
        found += [(path, text) for text in sentences(path.read_text())]
    found = [(path, text) for path, text in found if words(text) >= LEAST]
    return random.Random(seed).sample(found, count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed")
    args = parser.parse_args()
    seed = args.seed or subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True,
                                       check=True).stdout.strip()
    for number, (path, text) in enumerate(drawn(args.count, seed), 1):
        print(f"{number}. {path.relative_to(ROOT)}: {text}\n")


if __name__ == "__main__":
    main()
