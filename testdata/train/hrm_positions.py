#!/usr/bin/env python3
"""What of HRM's model makes it learn 6 x 6 Sudokus slower than a trial did that has neither: its learned positions of cells in place of
embeddings of row, column and box, and the second inner pass, for the target of `q_continue`. The model is that of hrm.py, with the sizes
of examples/hrm-sudoku.toml; a row of docs/hrm.md's table a variant. A variant that was trained is read from --out.

  hrm_positions.py --out FOLDER [--seed 0] [--steps 2000] [--variants NAME ...]
  hrm_positions.py --boards FILE [--seed 0]     # its boards as CSV, for data.train_files of `tonnage train`; nothing is trained
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
from hrm import RATES, Twin

SIDE, TALL, WIDE = 6, 2, 3
CELLS = SIDE * SIDE
ALL = (1 << SIDE) - 1
CONFIG = dict(
    vocab_size=SIDE + 2,
    hidden_size=64,
    num_heads=4,
    H_layers=1,
    L_layers=1,
    num_puzzle_identifiers=1,
    puzzle_emb_ndim=0,
    halt_max_steps=6,
    halt_exploration_prob=0.1,
    pos_encodings="learned",
    loss_type="softmax_cross_entropy",
)
ROWS, WARM_UP, TRAINED, HELD_OUT = 64, 100, 4000, 256
# Positions, and whether the model looks a segment ahead.
VARIANTS = {
    "learned positions, q_continue": (False, True),
    "row, column and box, q_continue": (True, True),
    "row, column and box": (True, False),
    "learned positions": (False, False),
}


def box_of(cell):
    return cell // SIDE // TALL * (SIDE // WIDE) + cell % SIDE // WIDE


UNITS = [(cell // SIDE, cell % SIDE, box_of(cell)) for cell in range(CELLS)]


def solutions(board, most, draw=None):
    """Up to `most` solutions of a board, digits as bits and 0 for an open cell; the cell with the fewest candidates first."""
    rows, columns, boxes = [0] * SIDE, [0] * SIDE, [0] * SIDE
    for digit, (row, column, box) in zip(board, UNITS):
        rows[row] |= digit
        columns[column] |= digit
        boxes[box] |= digit
    found, board = [], list(board)

    def go():
        best, fewest, free = None, SIDE + 1, 0
        for cell, (row, column, box) in enumerate(UNITS):
            if not board[cell]:
                left = ALL & ~(rows[row] | columns[column] | boxes[box])
                if left.bit_count() < fewest:
                    best, fewest, free = cell, left.bit_count(), left
        if best is None:
            found.append(list(board))
            return
        row, column, box = UNITS[best]
        digits = [1 << at for at in range(SIDE) if free >> at & 1]
        if draw:
            draw.shuffle(digits)
        for digit in digits:
            board[best] = digit
            rows[row] ^= digit
            columns[column] ^= digit
            boxes[box] ^= digit
            go()
            board[best] = 0
            rows[row] ^= digit
            columns[column] ^= digit
            boxes[box] ^= digit
            if len(found) >= most:
                return

    go()
    return found


def puzzle(draw):
    """A board with one solution and 12 to 18 clues, where so few leave one; and the solution."""
    solved = solutions([0] * CELLS, 1, draw)[0]
    board, target = list(solved), draw.randint(12, 18)
    for cell in draw.sample(range(CELLS), CELLS):
        if CELLS - board.count(0) <= target:
            break
        digit, board[cell] = board[cell], 0
        if len(solutions(board, 2)) > 1:
            board[cell] = digit
    tokens = [1 if not digit else digit.bit_length() + 1 for digit in board]
    return tokens, [digit.bit_length() + 1 for digit in solved]


def in_digits(tokens):
    return "".join("." if token == 1 else str(token - 1) for token in tokens)


class Placed(Twin):
    """With other positions, and with or without a look ahead."""

    def __init__(self, places, looks_ahead):
        self.places, self.looks_ahead = places, looks_ahead
        super().__init__(CONFIG, ROWS, CELLS)

    def make(self):
        super().make()
        with torch.no_grad():
            self.weights["q_head.weight"].zero_()
            self.weights["q_head.bias"].fill_(-5.0)
        if self.places:
            flat = self.weights.pop("embed_pos.embedding_weight")
            noise = torch.Generator().manual_seed(8)
            for kind in ("row", "column", "box"):
                drawn = torch.randn(SIDE, flat.shape[1], generator=noise) / flat.shape[1] ** 0.5
                self.weights[f"embed_{kind}"] = drawn.requires_grad_()

    def table(self, name):
        if name != "embed_pos" or not self.places:
            return super().table(name)
        units = torch.tensor(UNITS)
        tables = [self.weights[f"embed_{kind}"] for kind in ("row", "column", "box")]
        return sum(table[units[:, at]] for at, table in enumerate(tables)).to(self.dtype)

    def think(self, states, data):
        *others, halt, on = super().think(states, data)
        # Without a look ahead a row halts when it is rather right than wrong.
        return *others, halt, on if self.looks_ahead else torch.zeros_like(on)

    def worth_going_on(self, states, data, last):
        return super().worth_going_on(states, data, last) if self.looks_ahead else None


def batch_of(pairs):
    inputs, labels = (torch.tensor(column, dtype=torch.int32) for column in zip(*pairs))
    return dict(inputs=inputs, labels=labels, puzzle_identifiers=torch.zeros(len(pairs), dtype=torch.int32))


@torch.no_grad()
def right_boards(model, held_out):
    """Of the held-out boards the share without a wrong cell, after all segments."""
    model.training, right = False, 0
    for at in range(0, len(held_out), ROWS):
        batch = batch_of(held_out[at : at + ROWS])
        carry = model.first_carry(batch)
        for _ in range(CONFIG["halt_max_steps"]):
            carry, logits, _, _ = model.segment(carry, batch)
        right += (logits.argmax(-1) == batch["labels"]).all(-1).sum().item()
    model.training = True
    return right / len(held_out)


def train(variant, seed, steps, held_out, pairs):
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model, carry, moments, order, curve = Placed(*VARIANTS[variant]), None, {}, [], []
    began, evaluated = time.process_time(), 0.0
    for step in range(1, steps + 1):
        if len(order) < ROWS:
            order = draw.sample(pairs, len(pairs))
        batch, order = batch_of(order[:ROWS]), order[ROWS:]
        RATES["weights"] = 1e-3 * min(1.0, step / WARM_UP)
        carry, _, loss, _ = model.segment(carry or model.first_carry(batch), batch)
        (loss / ROWS).backward()
        model.update(moments, step, [])
        if step % 500 == 0:
            before = time.process_time()
            curve.append((step, right_boards(model, held_out)))
            evaluated += time.process_time() - before
    return dict(curve=curve, cpu_seconds=time.process_time() - began - evaluated)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--out", type=Path)
    to.add_argument("--boards", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    held_out = [puzzle(draw) for _ in range(HELD_OUT)]
    drawn = [puzzle(draw) for _ in range(TRAINED)]
    if options.boards:
        lines = [f"hrm_positions,{in_digits(board)},{in_digits(solved)},0\n" for board, solved in held_out + drawn]
        options.boards.write_text("source,question,answer,rating\n" + "".join(lines))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    known = {tuple(solved) for _, solved in held_out}
    pairs = [pair for pair in drawn if tuple(pair[1]) not in known]
    for at, variant in enumerate(options.variants):
        path = options.out / f"{variant}-{options.seed}-{options.steps}.json"
        if not path.exists():
            path.write_text(json.dumps(train(variant, options.seed, options.steps, held_out, pairs)))
        found = json.loads(path.read_text())
        if at == 0:
            print("| model | " + " | ".join(f"step {step}" for step, _ in found["curve"]) + " | CPU s, evaluations left out |")
            print("|---|" + "---|" * (len(found["curve"]) + 1))
        shares = " | ".join(f"{share:.3f}" for _, share in found["curve"])
        print(f"| {variant} | {shares} | {found['cpu_seconds']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
