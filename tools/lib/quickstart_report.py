"""quickstart_report.py LOG: the losses of a run (log.jsonl) beside those of the
bigram table of the same text and split. Exits 1 unless the model is better."""

import json
import sys

import bigram

TRAIN_LIMIT = 2.0
WINDOW = 20  # steps over which the training loss is averaged


def model_losses(path):
    """The training loss over the last steps, the last held-out loss, and of how
    many samples that one is."""
    with open(path) as file:
        steps = [json.loads(line) for line in file]
    train = [step["loss"] for step in steps if step.get("loss") is not None][-WINDOW:]
    held_out = [step for step in steps if step.get("val_loss") is not None]
    if not train or not held_out:
        raise ValueError(f"{path} has no training or no held-out loss")
    last = held_out[-1]
    return sum(train) / len(train), last["val_loss"], last["val_samples"]


def verdict(model, table):
    """What is wrong with (training, held-out) losses; empty when nothing is."""
    wrong = []
    if not model[0] < TRAIN_LIMIT:
        wrong.append(f"the training loss {model[0]:.3f} is not below {TRAIN_LIMIT}")
    if not model[1] < table[1]:
        wrong.append(f"the held-out loss {model[1]:.3f} is not below the bigram "
                     f"table's {table[1]:.3f}")
    return wrong


def main():
    train, held_out = bigram.split(bigram.read_corpus())
    table = bigram.bigram(train, train), bigram.bigram(train, held_out)
    try:
        model = model_losses(sys.argv[1])
    except (OSError, ValueError) as error:
        sys.exit(f"quickstart_report.py: error: {error}")
    print()
    print("nats per byte      training   held-out")
    print(f"bigram table       {table[0]:8.3f}   {table[1]:8.3f}")
    print(f"trained model      {model[0]:8.3f}   {model[1]:8.3f}   "
          f"(held-out: {model[2]} samples)")
    wrong = verdict(model, table)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
