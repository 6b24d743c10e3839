"""A small experiment that really was run: a linear policy learns, by group-relative advantages, which of four numbers is the largest.

    python examples/experiment/make.py examples/experiment

Three configurations, five seeds each; nothing but Python. `eight` samples eight answers of a question, `two` only two (a quarter
of the generation), `eight-no-std` leaves out the division by the group's spread. It takes seconds and writes the records
that `tonnage report` reads.
"""

import json
import math
import os
import random
import sys
import time

CHOICES, QUESTIONS, ROUNDS, EVERY, RATE = 4, 8, 240, 10, 0.05
CONFIGURATIONS = {"eight": (8, True), "eight-no-std": (8, False), "two": (2, True)}


def question(rng):
    return [rng.gauss(0, 1) for _ in range(CHOICES)]


def probabilities(weights, x):
    scores = [sum(w * v for w, v in zip(row, x, strict=True)) for row in weights]
    top = max(scores)
    exps = [math.exp(score - top) for score in scores]
    return [value / sum(exps) for value in exps]


def drawn(rng, p):
    at = rng.random()
    for index, share in enumerate(p):
        at -= share
        if at < 0:
            return index
    return len(p) - 1


def accuracy(weights, questions):
    return sum(probabilities(weights, x)[x.index(max(x))] for x in questions) / len(questions)


def run(name, seed, out):
    group, divides = CONFIGURATIONS[name]
    asked, rng = random.Random(f"questions {seed}"), random.Random(f"answers {name} {seed}")
    held_out = random.Random("held out, the same for all")
    test = [question(held_out) for _ in range(200)]
    weights = [[0.0] * CHOICES for _ in range(CHOICES)]
    began, generated, trained, live, groups, rewards = time.time(), 0, 0, 0, 0, []

    def say(record, **fields):
        out.write(json.dumps({"record": record, **fields}) + "\n")

    say("run", format=1, suite="largest-of-four", configuration=name, seed=seed, command=["python", "examples/experiment/make.py", "examples/experiment"],
        versions={"python": sys.version.split()[0]}, parameters={"G": group, "learning_rate": RATE}, shares_data_order=True,
        reward={"of_completions": "mean", "max": 1.0, "min": 0.0})
    for step in range(ROUNDS + 1):
        if step % EVERY == 0:
            metrics = {"eval/accuracy": round(accuracy(weights, test), 5)}
            if step:
                metrics |= {"reward/on_policy": round(sum(rewards) / len(rewards), 5), "groups": groups, "groups_with_variance": live}
            say("point", step=step, seconds=round(time.time() - began, 3), tokens_generated=generated, tokens_trained=trained, metrics=metrics)
            live, groups, rewards = 0, 0, []
        for _ in range(QUESTIONS):
            x = question(asked)
            p = probabilities(weights, x)
            answers = [drawn(rng, p) for _ in range(group)]
            scores = [float(x[answer] == max(x)) for answer in answers]
            mean = sum(scores) / group
            spread = math.sqrt(sum((score - mean) ** 2 for score in scores) / (group - 1))
            generated, groups, rewards = generated + group, groups + 1, rewards + scores
            if spread == 0:
                continue
            live, trained = live + 1, trained + group
            for answer, score in zip(answers, scores, strict=True):
                advantage = (score - mean) / (spread if divides else 1.0)
                for row in range(CHOICES):
                    gradient = (row == answer) - p[row]
                    for column in range(CHOICES):
                        weights[row][column] += RATE * advantage * gradient * x[column] / group
    answering = random.Random(f"evaluation {name} {seed}")
    for index, x in enumerate(test[:24]):
        first, second = sorted(x)[-1], sorted(x)[-2]
        answers = [drawn(answering, probabilities(weights, x)) for _ in range(8)]
        correct = sum(x[answer] == first for answer in answers)
        difficulty = "hard" if first - second < 0.5 else "easy"
        item = {"item": f"q{index}", "split": "eval", "kind": "largest of four", "difficulty": difficulty, "samples": 8, "correct": correct}
        if correct == 0:
            given = x[answers[0]]
            item["failure"] = "second largest" if given == second else "smaller"
            item["example"] = f"{[round(v, 2) for v in x]} answered {given:.2f}"
        say("item", **item)
    say("end", outcome="succeeded", attempts=1, seconds=round(time.time() - began, 3))


def main():
    for name in CONFIGURATIONS:
        for seed in range(5):
            path = os.path.join(sys.argv[1], name, f"seed{seed}.jsonl")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as out:
                run(name, seed, out)


main()
