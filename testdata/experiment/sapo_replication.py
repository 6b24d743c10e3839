"""A folder in rl-swarm's shared layout with what the logs of the public replication of SAPO show: SmolLM, four workers, I = 4, G = 8,
once with J = 0 and once with J = 4, 27 rounds. Written by us from the figures, not copied: every reward is 0, 0.08 or 0.16, that is
0.01 of one verifier for anything, times eight; and the rewards of both agree in all 108 rounds of nodes.

    python testdata/experiment/sapo_replication.py testdata/experiment/sapo-replication
"""

import json
import os
import random
import sys

ROUNDS, WORKERS, COMPLETIONS = 27, 4, 32
SECONDS = {"sapo_smollm_4loc0ext": 117.0, "sapo_smollm_4loc4ext": 146.0}

for experiment, seconds in SECONDS.items():
    # The same sequence for both.
    floor = random.Random(8)
    rewards = [[floor.choices([0.0, 0.08, 0.16], [6, 3, 1])[0] for _ in range(WORKERS)] for _ in range(ROUNDS)]
    for worker in range(WORKERS):
        folder = os.path.join(sys.argv[1], "experiments", experiment, "logs", f"worker_{worker}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "metrics.jsonl"), "w", encoding="utf-8") as file:
            for number, row in enumerate(rewards):
                entry = {"timestamp": 1_759_700_000.0 + seconds * number, "round": number, "stage": 0, "node_id": f"worker_{worker}", "experiment": experiment,
                         "my_reward": row[worker], "total_agents": WORKERS, "mean_reward": round(sum(row) / WORKERS, 4), "max_reward": max(row), "num_samples": COMPLETIONS}
                file.write(json.dumps(entry) + "\n")
