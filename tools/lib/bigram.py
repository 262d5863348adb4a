#!/usr/bin/python3
"""The yardstick of the quickstart: a byte bigram table on the licence texts.

    bigram.py [--corpus OUT.txt] [--folder DIR] [--json]

Joins the regular files of /usr/share/common-licenses (package base-files) by
name, takes the first 90 % to train and the rest to validate, and prints the
cross entropy, in nats per byte, of a table of byte pairs with 0.1 added to
every count. --corpus also writes the joined text.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

FOLDER = "/usr/share/common-licenses"
SMOOTHING = 0.1
SYMBOLS = 256


def read_corpus(folder=FOLDER):
    files = [p for p in pathlib.Path(folder).iterdir() if p.is_file() and not p.is_symlink()]
    if not files:
        raise ValueError(f"{folder} has no regular files")
    return b"".join(p.read_bytes() for p in sorted(files, key=lambda p: p.name))


def split(corpus):
    cut = len(corpus) * 9 // 10
    return corpus[:cut], corpus[cut:]


def bigram(train, text):
    """Mean of -log p(byte | byte before) over `text`, counts from `train`."""
    counts = np.zeros((SYMBOLS, SYMBOLS))
    a = np.frombuffer(train, np.uint8)
    np.add.at(counts, (a[:-1], a[1:]), 1)
    counts += SMOOTHING
    log_p = np.log(counts / counts.sum(axis=1, keepdims=True))
    b = np.frombuffer(text, np.uint8)
    return float(-log_p[b[:-1], b[1:]].mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--corpus", type=pathlib.Path, metavar="OUT.txt")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        corpus = read_corpus(args.folder)
        if args.corpus:
            args.corpus.write_bytes(corpus)
    except (ValueError, OSError) as error:
        print(f"bigram.py: error: {error}", file=sys.stderr)
        return 2
    train, held_out = split(corpus)
    result = {"bytes": len(corpus), "train": bigram(train, train),
              "held_out": bigram(train, held_out)}
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{len(corpus)} bytes; bigram table: training {result['train']:.4f} nats, "
              f"held-out {result['held_out']:.4f} nats")
    return 0


if __name__ == "__main__":
    sys.exit(main())
