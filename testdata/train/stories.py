"""Writes examples/stories.txt: small stories from a grammar of our own, for trainings that take a minute.

    python testdata/train/stories.py > examples/stories.txt
"""

import random

ANIMALS = ["fox", "owl", "hare", "mole", "otter", "crow", "hedgehog", "badger"]
NAMES = ["Ada", "Bo", "Cleo", "Dov", "Esme", "Finn", "Gus", "Hana"]
ADJECTIVES = ["small", "old", "brave", "sleepy", "clever", "quiet", "hungry", "patient"]
PLACES = ["by the river", "under the oak", "on the hill", "near the mill", "in the tall grass", "behind the barn"]
THINGS = ["a lantern", "a red kite", "a silver key", "a basket of plums", "a map", "a wooden boat"]
WEATHER = ["It rained", "The sun shone", "The wind blew", "Snow fell", "Fog came in"]
ENDS = [
    "They laughed until the stars came out.",
    "From then on they met there every evening.",
    "Nobody in the village ever knew.",
    "And that is how {name} found a friend.",
    "In the morning everything was well again.",
]


def story(rng):
    name, animal, other = rng.choice(NAMES), rng.choice(ANIMALS), rng.choice(ANIMALS)
    adjective, place, thing = rng.choice(ADJECTIVES), rng.choice(PLACES), rng.choice(THINGS)
    lines = [
        f"Once there was a {adjective} {animal} called {name} who lived {place}.",
        f"{rng.choice(WEATHER)} all day, and {name} looked for {thing}.",
        f"\"Have you seen {thing}?\" {name} asked the {other}.",
        rng.choice([
            f"\"I have not,\" said the {other}, \"but I will help you look.\"",
            f"\"It lies {rng.choice(PLACES)},\" said the {other}.",
            f"The {other} only smiled and pointed to the path.",
        ]),
        f"So they went together, and {rng.choice(PLACES)} they found it.",
        rng.choice(ENDS).format(name=name),
    ]
    return " ".join(lines)


def main():
    rng = random.Random(1)
    print("\n\n".join(story(rng) for _ in range(300)))


if __name__ == "__main__":
    main()
