"""Writes examples/sums.jsonl: prompts with completions, for a fine-tuning that can be looked at.

    python testdata/train/sums.py > examples/sums.jsonl
"""

import json
import random


def main():
    rng = random.Random(1)
    for _ in range(400):
        first, second = rng.randrange(100), rng.randrange(100)
        print(json.dumps({"prompt": f"How much is {first} plus {second}?\n", "completion": f"{first + second}"}))


if __name__ == "__main__":
    main()
