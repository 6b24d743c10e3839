#!/usr/bin/env python3
"""The nine kinds of the SAPO paper against reasoning-gym's own definitions (`pip install reasoning-gym`), both ways.

    cargo build --release -p tonnage-verifiable --example check
    reasoning_gym_kinds.py --check target/release/examples/check --questions 200

First our checkers on reasoning-gym's questions: how many they take, and of the answers tried (the right one, with blanks and in capitals,
changed ones, other questions') whom they pay where reasoning-gym pays 1, and whom not. Then our questions by reasoning-gym's definitions.
"""
import argparse
import collections
import contextlib
import datetime
import fractions
import io
import json
import random
import re
import subprocess

import bfi
import reasoning_gym
from reasoning_gym.logic.propositional_logic import Expression

KINDS = ["base_conversion", "basic_arithmetic", "arc_1d", "bf", "propositional_logic", "fraction_simplification", "decimal_arithmetic"]
KINDS += ["calendar_arithmetic", "binary_matrix"]
SIGNS = {"∧": "&", "∨": "|", "→": "->", "↔": "<->", "¬": "~"}


def changed(answer, chance):
    """The answer with one character more, less or another."""
    at = chance.randrange(len(answer))
    other = chance.choice("0123456789") if answer[at].isdigit() else chance.choice("abcdePQR")
    return chance.choice([answer[:at] + other + answer[at + 1:], answer[:at] + answer[at + 1:], answer[:at] + other + answer[at:]])


def foreign(kind, count, check):
    """Questions taken, answers tried, paid by both, by us alone, by reasoning-gym alone with examples of both."""
    chance = random.Random(kind)
    data = reasoning_gym.create_dataset(kind, size=count, seed=20261123)
    # Its compiler of Brainf*ck prints points.
    with contextlib.redirect_stdout(io.StringIO()):
        entries = [data[at] for at in range(count)]
    right = [entry["answer"] or entry["metadata"]["example_answer"] for entry in entries]
    lines, tries = [], []
    for entry, answer in zip(entries, right):
        tried = [answer, f" {answer}\n", answer.upper(), f"It is {answer}", chance.choice(right), chance.choice(right)]
        tried += [changed(answer, chance) for _ in range(6)]
        tries.append(tried)
        lines.append(json.dumps({"kind": kind, "question": entry["question"], "answer": entry["answer"], "tried": tried}))
    run = subprocess.run([check], input="\n".join(lines), capture_output=True, text=True, check=True)
    found = collections.Counter()
    examples = {"ours alone": [], "theirs alone": []}
    for entry, tried, line in zip(entries, tries, run.stdout.splitlines()):
        said = json.loads(line)
        found["taken"] += said["taken"]
        for answer, ours in zip(tried, said["right"]):
            theirs = data.score_answer(answer.strip(), entry) == 1.0
            found["tried"] += 1
            found["both"] += ours and theirs
            alone = "ours alone" if ours and not theirs else "theirs alone" if theirs and not ours else None
            if alone:
                found[alone] += 1
                examples[alone].append((answer, entry["answer"] or entry["metadata"]["premises"]))
    return found, examples


def is_right_calendar(question, answer):
    date = r"([A-Z][a-z]+ \d+, \d+)"
    read = lambda text: datetime.datetime.strptime(text, "%B %d, %Y").date()
    if found := re.match(r"Is (\d+) a leap year", question):
        year = int(found[1])
        return answer == ("Yes" if year % 4 == 0 and (year % 100 or year % 400 == 0) else "No")
    if found := re.match(f"Which day of the week is {date}", question):
        return answer == read(found[1]).strftime("%A")
    if found := re.match(f"How many days are there from {date} to {date}", question):
        return int(answer) == (read(found[2]) - read(found[1])).days
    nth, weekday, month, year = re.match(r"On which day of the month is the (\w+) (\w+) of (\w+) (\d+)", question).groups()
    day = datetime.datetime.strptime(f"{month} 1 {year}", "%B %d %Y").date()
    days = [day + datetime.timedelta(at) for at in range(31)]
    days = [one.day for one in days if one.month == day.month and one.strftime("%A") == weekday]
    at = ["first", "second", "third", "fourth", "fifth"].index(nth)
    return answer == (str(days[at]) if at < len(days) else "None")


def is_right_here(kind, question, answer, data):
    """Whether reasoning-gym's own function, or the definition behind it, gives this answer to our question."""
    if kind == "base_conversion":
        bases = {"binary": 2, "decimal": 10, "hexadecimal": 16}
        source, digits, target = re.search(r"the ([\w-]+) number (\w+) to ([\w-]+)\.", question).groups()
        base = lambda name: bases.get(name) or int(name.removeprefix("base-"))
        return int(answer, base(target)) == int(digits, base(source)) and answer == answer.lower()
    if kind == "basic_arithmetic":
        expression = re.search(r"[-(\d][-+*/() \d]*\d\)*", question)[0]
        return fractions.Fraction(answer) == eval(re.sub(r"\d+", r"fractions.Fraction(\g<0>)", expression))
    if kind == "decimal_arithmetic":
        expression = re.search(r"Calculate (.*) exactly", question)[1]
        return fractions.Fraction(answer) == eval(re.sub(r"[\d.]+", r"fractions.Fraction('\g<0>')", expression))
    if kind == "fraction_simplification":
        value = fractions.Fraction(*map(int, re.search(r"(\d+)/(\d+)", question).groups()))
        metadata = {"simplified_numerator": value.numerator, "simplified_denominator": value.denominator, "numerator": 0, "denominator": 0}
        return data.score_answer(answer, {"metadata": metadata}) == 1.0
    if kind == "bf":
        return bfi.interpret(question.splitlines()[-1], buffer_output=True) == answer
    if kind == "binary_matrix":
        rows = [[int(cell) for cell in line.split()] for line in question.splitlines() if re.fullmatch(r"[01 ]+", line)]
        return data._matrix_to_str(data._get_distances(rows)) == answer
    if kind == "calendar_arithmetic":
        return is_right_calendar(question, answer)
    if kind == "propositional_logic":
        unicode = lambda text: re.sub("<->|->|[&|~]", lambda sign: {ascii: sign for sign, ascii in SIGNS.items()}[sign[0]], text)
        bracket = lambda text: f"({unicode(text)})" if " " in text else unicode(text)
        premises = [bracket(text) for text in re.findall(r"^\d+\. (.*)$", question, re.M)]
        return data._is_valid_conclusion([Expression.from_string(one) for one in premises], Expression.from_string(bracket(answer)))
    return None


def ours(kind, count, check):
    data = reasoning_gym.create_dataset(kind, size=1, seed=1)
    run = subprocess.run([check, kind, str(count)], capture_output=True, text=True, check=True)
    made = [json.loads(line) for line in run.stdout.splitlines()]
    judged = [is_right_here(kind, one["question"], one["answer"], data) for one in made]
    for one, verdict in zip(made, judged):
        if verdict is False:
            print("differs:", kind, json.dumps(one))
    return "-" if None in judged else f"{sum(judged)} of {len(judged)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", required=True)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--examples", type=int, default=0, help="print so many answers on which the two differ")
    arguments = parser.parse_args()
    print(f"reasoning-gym {reasoning_gym.__version__}\n")
    print("| kind | its questions taken | answers tried | paid by both | by us alone | by it alone | our answers right by it |")
    print("|---|---|---|---|---|---|---|")
    differing = []
    for kind in KINDS:
        found, examples = foreign(kind, arguments.questions, arguments.check)
        row = [f"`{kind}`", found["taken"], found["tried"], found["both"], found["ours alone"], found["theirs alone"]]
        print("|", " | ".join(map(str, row + [ours(kind, arguments.questions, arguments.check)])), "|", flush=True)
        differing += [(kind, alone, *one) for alone, some in examples.items() for one in some[:arguments.examples]]
    for one in differing:
        print(*one, sep="\t")


if __name__ == "__main__":
    main()
