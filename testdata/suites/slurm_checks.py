"""Suites on a real SLURM: what `tonnage suite submit`, `status`, `stop` and `retry` do, and what every fault leaves.

    DIR=$(mktemp -d); export SLURM_CONF=$(testdata/suites/slurm_loopback.sh start $DIR)
    TONNAGE=target/release/tonnage SLURM_DIR=$DIR python3 testdata/suites/slurm_checks.py [TEST...]
    testdata/suites/slurm_loopback.sh stop $DIR

The bar, 30 runs with 5 scancel and 2 restarts of the controller: TONNAGE_SLURM_RUNS=30 ... slurm_checks.py Checks.test_bar
(the lane runs it with fewer). Nothing is asserted of how long anything takes.
"""

import json
import os
import random
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
TONNAGE = str(Path(os.environ.get("TONNAGE", "target/release/tonnage")).resolve())
SLURM_DIR = os.environ["SLURM_DIR"]
RUNS = int(os.environ.get("TONNAGE_SLURM_RUNS", "8"))
PATIENCE = 240.0  # seconds until a state that must come is given up


def controller(what):
    subprocess.run([HERE / "slurm_loopback.sh", "controller", SLURM_DIR, what], check=True, timeout=120)


def squeue(*words):
    found = subprocess.run(["squeue", "--noheader", "--array", *words], capture_output=True, text=True, timeout=60, check=False)
    return [line for line in found.stdout.splitlines() if line.strip()]


# What a shell, sbatch, TOML or JSON would read as its own.
PIECES = ["$(touch pwned)", "`touch pwned`", "a b\n-c", "'\\\"'", "--", "-n", "ü😀", ";touch pwned", "", "*", "~", "%j %A", "#SBATCH --uid=0",
          "\n#SBATCH --wrap=x\n", "EOF", "!!", "${HOME}", "\\", "\t", "&& touch pwned", "|| touch pwned", "> pwned", "\r"]


def hostile(chance, count):
    """Each piece, and as many words of pieces and of any characters."""
    def anything():
        return "".join(chr(chance.choice([chance.randrange(1, 128), chance.randrange(160, 0x3000), chance.randrange(0x1F000, 0x1FFFF)]))
                       for _ in range(chance.randrange(1, 12)))
    words = ["".join(chance.choices([*PIECES, anything()], k=chance.randrange(1, 5))) for _ in range(count)]
    # Doubled braces are the suite's own: `{name}` itself.
    return list(dict.fromkeys(word.replace("{{", "{ {").replace("}}", "} }") for word in PIECES + words))


def toml(text):
    """A basic string of TOML: JSON's, but for characters beyond 16 bits and for DEL."""
    plain = "".join(c if 0x20 <= ord(c) < 0x7F and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{plain}"'


class Checks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tonnage slurm $x;'")
        self.path = Path(self.folder.name)
        self.environment = {**os.environ, "TONNAGE_HOME": str(self.path / "home"), "TONNAGE_SLURM_POLL_SECONDS": "0", "TONNAGE_SLURM_PAUSE_SECONDS": "1"}

    def tearDown(self):
        subprocess.run(["scancel", "--user=root", "--full"], timeout=60, check=False)
        self.until(lambda: not squeue("--user=root"))
        self.folder.cleanup()

    def until(self, is_so):
        end = time.monotonic() + PATIENCE
        while not (found := is_so()):
            self.assertLess(time.monotonic(), end, "it does not come")
            time.sleep(0.3)
        return found

    def suite(self, script, *, seeds=2, slurm="", command='["sh", "t.sh", "{a}", "{seed}"]', more=""):
        (self.path / "t.sh").write_text(script)
        (self.path / "s.toml").write_text(
            f'name = "s"\ncommand = {command}\ncode = ["t.sh"]\nseeds = {seeds}\nmetrics = ["step {{step}} loss {{loss}}"]\n{more}\n'
            f'[parameters]\na = 0\n[[configuration]]\nname = "c"\n[slurm]\ncpus_per_gpu = 1\n{slurm}\n'
        )

    def tonnage(self, *words, code=0):
        done = subprocess.run(
            [TONNAGE, *words], cwd=self.path, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        text = done.stdout + done.stderr
        if code is not None:
            self.assertEqual(done.returncode, code, text)
        return text

    def submit(self, *words, code=0):
        return self.tonnage("suite", "submit", "s.toml", *words, code=code)

    def status(self):
        return json.loads(subprocess.run(
            [TONNAGE, "suite", "status", "--json"], cwd=self.path, env=self.environment, capture_output=True, text=True, check=True, timeout=300
        ).stdout)

    def settled(self):
        """The status once nothing is queued, runs, or is unknown."""
        def is_settled():
            self.free_leaked_gpus()
            found = self.status()
            return None if any(found[key] for key in ("running", "queued", "unknown")) else found

        return self.until(is_settled)

    def settled_at_once(self):
        """The same, where SLURM would let what is requeued wait for two minutes: its node may still refuse a second start, and then again."""
        def is_settled():
            for job in squeue("--states=PENDING", "--format=%i"):
                subprocess.run(["scontrol", "update", f"jobid={job.strip()}", "starttime=now"], timeout=60, check=False, stderr=subprocess.DEVNULL)
            found = self.status()
            self.free_leaked_gpus()
            return None if any(found[key] for key in ("running", "queued", "unknown")) else found

        return self.until(is_settled)

    def results(self):
        path = self.path / "results"
        return sorted(path.read_text().splitlines()) if path.exists() else []

    def logs(self):
        return "".join(log.read_text(errors="replace") for log in sorted((self.path / "home/suites/s/slurm/logs").glob("*.log")))

    def test_array_is_sent_once_and_reported(self):
        self.suite('echo step 1 loss 0.5; sleep 4; echo step 2 loss 0.25; echo "$CUDA_VISIBLE_DEVICES" >> gpus; echo "$1 $2" >> results\n', seeds=4)
        self.assertIn("SLURM would take it", self.submit("--test-only"))
        self.assertEqual(self.results(), [])
        self.assertIn("4 sent", self.submit("--throttle", "2"))
        again = self.submit()
        self.assertIn("suite s: 0 sent", again, "what waits or runs is not sent again")
        found = self.settled()
        self.assertEqual((found["succeeded"], found["failed"], found["waiting"]), (4, 0, 0), self.logs())
        self.assertEqual(self.results(), ["0 0", "0 1", "0 2", "0 3"])
        self.assertTrue(all(line.isdigit() for line in (self.path / "gpus").read_text().split()), "each has a GPU of its own")
        self.assertIn("4 done", self.submit())
        report = self.tonnage("report", "s")
        self.assertIn("4 runs of 1 configuration", report)
        self.assertIn("`loss`", report)
        self.assertRegex(report, r"c +4 +0\.00\d+", "GPU-hours are counted")
        self.tonnage("suite", "export", "s", "--to", "csv", "--out", "tables")
        self.assertIn('"loss",0.25', (self.path / "tables/metrics.csv").read_text())
        # What ran there is done here, too.
        self.assertIn("4 done, 0 failed, 0 missing", self.tonnage("suite", "run", "s.toml"))
        self.assertEqual(len(self.results()), 4)

    def test_two_nodes_meet_on_the_first(self):
        launcher = self.path / "torchrun"
        launcher.write_text('#!/bin/sh\necho "$SLURM_NODEID $SLURMD_NODENAME $SRUN_CPUS_PER_TASK $*" >> results\n')
        launcher.chmod(0o755)
        self.suite("", seeds=1, slurm='gpus = 8\ngpus_per_node = 4\n', command=f'["{launcher}", "--standalone", "train.py", "--standalone", "{{seed}}"]')
        self.submit()
        found = self.settled()
        self.assertEqual(found["succeeded"], 1, self.logs())
        first, second = self.results()
        self.assertTrue(first.startswith("0 n1 4 ") and second.startswith("1 n2 4 "), (first, second))
        for line in (first, second):
            self.assertRegex(line, r"--nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-id=\d+ --rdzv-endpoint=n1:\d+ train.py --standalone 0$")
        self.assertEqual(first.split()[3:], second.split()[3:], "both are told the same")

    def test_warned_run_goes_on_in_its_own_job(self):
        script = (
            "trap 'echo saved >> saved; exit 9' USR2\n: > ready\n"
            '[ ! -e saved ] || { echo "$1 $2 $SLURM_RESTART_COUNT" >> results; exit 0; }\n'
            "for i in $(seq 600); do sleep 0.2; done\n"
        )
        self.suite(script, seeds=1, more="[limits]\nhours = 0.0167\n[run]\ngrace_seconds = 60\n")
        self.submit()
        self.until(lambda: (self.path / "ready").exists())
        # A minute is the least that a limit can be: the warning is sent by hand.
        subprocess.run(["scancel", "--signal=USR2", "--batch", "--user=root"], check=True, timeout=60)
        self.until(lambda: (self.path / "saved").exists())
        found = self.settled_at_once()
        self.assertEqual((found["succeeded"], self.results()), (1, ["0 0 1"]), self.logs())
        end = found["runs"][0]["end"]
        self.assertEqual((end["attempts"], end["lost_seconds"]), (2, 0.0), "what was saved is not lost")

    def test_chain_goes_on_in_the_next_job(self):
        script = 'trap "exit 9" USR2\nif [ -e again$2 ]; then echo "$1 $2" >> results; exit 0; fi\n: > again$2\nfor i in $(seq 600); do sleep 0.2; done\n'
        self.suite(script, seeds=2, slurm='goes_on = "chain"\nlinks = 2\n')
        self.submit()
        self.until(lambda: len(list(self.path.glob("again*"))) == 2)
        subprocess.run(["scancel", "--signal=USR2", "--batch", "--state=RUNNING", "--user=root"], check=True, timeout=60)
        found = self.settled()
        self.assertEqual((found["succeeded"], self.results()), (2, ["0 0", "0 1"]), self.logs())
        self.assertEqual({run["end"]["attempts"] for run in found["runs"]}, {2})

    def wait_for(self, *names):
        """Until commands wrote these files: a script that has begun is not yet a command that runs."""
        self.until(lambda: all((self.path / name).exists() for name in names))

    def test_stop_cancels_what_is_ours_only(self):
        self.suite(": > up$2\nfor i in $(seq 3000); do sleep 0.2; done\n", seeds=3)
        other = subprocess.run(["sbatch", "--parsable", "--job-name=other", "--wrap", "sleep 300"], check=True, capture_output=True, text=True, timeout=60, cwd="/tmp")
        self.submit("--throttle", "2")
        self.wait_for("up0", "up1")
        self.assertIn("asked to cancel", self.tonnage("suite", "stop", "s"))
        found = self.settled()
        self.assertEqual((found["succeeded"], found["failed"], found["waiting"]), (0, 0, 3), "what was cancelled waits: " + self.logs())
        # A cancelled job is shown as completing until its node has cleaned up.
        self.assertEqual([line.strip() for line in squeue("--format=%i", "--states=PENDING,RUNNING")], [other.stdout.strip()])
        self.assertEqual(self.tonnage("suite", "stop", "s", code=1).count("cancel"), 0)
        self.assertIn("3 sent", self.submit(), "and is sent again")

    def test_what_slurm_did_not_start_is_tried_again(self):
        """A real refusal of srun's, as after a restart of the controller that has not heard of its nodes' GPUs yet."""
        # Long enough for all tries together that a slow machine comes to allow it.
        self.environment["TONNAGE_SLURM_PAUSE_SECONDS"] = "5"
        refusing = 'srun() { if [ -e go ]; then command srun "$@"; else : > refused; command srun --gres=gpu:99 "$@"; fi; }'
        self.suite('echo "$1 $2" >> results\n', seeds=2, slurm=f"setup = [{json.dumps(refusing)}]\n")
        self.submit()
        self.until(lambda: (self.path / "refused").exists())
        self.until(lambda: "SLURM did not start c seed" in self.logs())
        self.assertEqual(self.status()["failed"], 0)
        (self.path / "go").touch()
        found = self.settled()
        self.assertEqual((found["succeeded"], self.results()), (2, ["0 0", "0 1"]), self.logs())
        self.assertEqual({run["end"]["attempts"] for run in found["runs"]}, {1})
        self.assertRegex(self.logs(), "srun: error: .*(nvalid|not available)")

    def test_containers_are_told_command_and_folders(self):
        (self.path / "bin").mkdir()
        # What stands in for the program reads its options as apptainer does, and runs the rest.
        stand_in = (
            "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"words-$SLURM_ARRAY_TASK_ID\"\n[ \"$1\" = exec ] || exit 9\nshift\n"
            'while :; do case $1 in --nv) shift ;; --bind|--pwd) [ -d "$2" ] || exit 8; shift 2 ;; *) break ;; esac; done\n'
            '[ "$1" = docker://image:1 ] || exit 7\nshift\nexec "$@"\n'
        )
        (self.path / "bin/apptainer").write_text(stand_in)
        (self.path / "bin/apptainer").chmod(0o755)
        self.suite('printf "%s\\n" "$1 $2" >> results\n', slurm='container = "image:1"\nsetup = ["PATH=$PWD/bin:$PATH"]\n')
        self.submit()
        found = self.settled()
        self.assertEqual((found["succeeded"], self.results()), (2, ["0 0", "0 1"]), self.logs())
        words = (self.path / "words-0").read_text().splitlines()
        self.assertEqual(words[:4], ["exec", "--nv", "--bind", str(self.path)])
        self.assertIn("docker://image:1", words)

    def test_pyxis_is_told_image_and_mounts(self):
        # Without the plugin srun does not know the options: what stands in for it takes them, and hands the rest to the real one.
        stand_in = (
            'srun() { local words=() word; for word; do case $word in --container-*) printf "%s\\n" "$word" >> "pyxis-$SLURM_ARRAY_TASK_ID" ;;'
            ' *) words+=("$word") ;; esac; done; command srun "${words[@]}"; }'
        )
        self.suite('echo "$1 $2" >> results\n', seeds=1, slurm=f'container = "image:1"\ncontainer_engine = "pyxis"\nsetup = [{json.dumps(stand_in)}]\n')
        self.submit()
        found = self.settled()
        self.assertEqual((found["succeeded"], self.results()), (1, ["0 0"]), self.logs())
        said = (self.path / "pyxis-0").read_text()
        self.assertIn("--container-image=image:1\n", said)
        self.assertIn(f"--container-mounts={self.path}:{self.path},", said)

    def test_failures_have_classes_and_are_retried(self):
        script = (
            "[ -e mended ] || { [ $2 = 0 ] && echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
            " capacity of 23.50 GiB of which 1.00 GiB is free.' >&2 || echo 'ValueError: no' >&2; exit 1; }\necho $1 $2 >> results\n"
        )
        self.suite(script, seeds=2)
        self.submit()
        found = self.settled()
        self.assertEqual(found["failed"], 2, self.logs())
        self.assertEqual(found["failures"].get("gpu_memory"), 1, found["failures"])
        self.assertIn("2 failed", self.submit(code=1))
        (self.path / "mended").touch()
        self.assertIn("1 sent", self.tonnage("suite", "retry", "--class", "gpu_memory", code=None))
        self.assertEqual(self.settled()["succeeded"], 1)
        self.assertEqual(self.results(), ["0 0"])
        self.tonnage("suite", "retry")
        self.assertEqual((self.settled()["succeeded"], self.results()), (2, ["0 0", "0 1"]))

    def test_too_much_is_refused_before_anything_is_sent(self):
        self.suite("", slurm="gpus = 9\n")
        said = self.submit(code=1)
        self.assertIn("Requested node configuration is not available", said)
        self.assertIn("gpus_per_node", said)
        self.assertEqual(squeue("--state=PENDING,RUNNING"), [])
        self.assertEqual(self.submit("--partition", "nowhere", code=1).count("nvalid partition"), 1 + 1)

    def test_silent_controller_is_unknown_and_never_gone(self):
        self.suite(': > up$2; until [ -e go ]; do sleep 0.2; done; echo "$1 $2" >> results\n', seeds=2)
        self.submit()
        self.wait_for("up0", "up1")
        controller("down")
        try:
            found = self.status()
            self.assertEqual((found["unknown"], found["waiting"], found["failed"]), (2, 0, 0), found)
            self.assertTrue(found["silence"], "it is said")
            self.assertIn("SLURM does not answer", self.submit(code=1))
            self.assertIn("does not answer", self.tonnage("suite", "stop", "s", code=1))
            # What the runs themselves say holds without a controller.
            (self.path / "go").touch()
            self.until(lambda: len(self.results()) == 2)
            self.until(lambda: self.status()["succeeded"] == 2)
        finally:
            controller("up")
        found = self.settled()
        self.assertEqual((found["succeeded"], len(self.results())), (2, 2))

    def test_controller_that_forgot_all_loses_no_run(self):
        self.suite('[ -e second ] || { : > first; for i in $(seq 300); do sleep 0.2; done; }\necho "$1 $2" >> results\n', seeds=2)
        self.submit("--throttle", "1")
        self.wait_for("first")
        controller("lost")
        self.until(lambda: self.status()["waiting"] == 2)
        # The same numbers are given out again: another's job is not taken for ours.
        other = subprocess.run(["sbatch", "--parsable", "--array=0-1", "--job-name=other", "--wrap", "sleep 300"], check=True, capture_output=True, text=True, timeout=60, cwd="/tmp")
        self.assertEqual(self.status()["waiting"], 2, other.stdout)
        (self.path / "second").touch()
        self.submit()
        found = self.settled_beside(other.stdout.strip())
        self.assertEqual((found["succeeded"], self.results()), (2, ["0 0", "0 1"]), self.logs())

    def settled_beside(self, other):
        return self.until(lambda: (lambda found: found if found["succeeded"] + found["failed"] == 2 else None)(self.status()))

    def test_killed_job_is_stopped_and_sent_again(self):
        self.suite('[ -e second ] || { : > first; for i in $(seq 3000); do sleep 0.2; done; }\necho "$1 $2" >> results\n', seeds=1)
        self.submit()
        self.until(lambda: (self.path / "first").exists())
        subprocess.run(["scancel", "--signal=KILL", "--full", "--user=root"], check=True, timeout=60)
        found = self.settled()
        self.assertEqual(found["succeeded"], 0)
        self.assertEqual(found["failed"] + found["waiting"], 1, found)
        (self.path / "second").touch()
        self.submit(code=None) if found["waiting"] else self.tonnage("suite", "retry")
        self.assertEqual((self.settled()["succeeded"], self.results()), (1, ["0 0"]))

    def test_hostile_values_are_words_and_nothing_else(self):
        seed = int(os.environ.get("TONNAGE_SLURM_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
        print(f"TONNAGE_SLURM_SEED={seed}")
        values = hostile(random.Random(seed), 40)
        (self.path / "t.sh").write_text("printf '%s\\0' \"$2\" > \"out$1\"\n")
        table = "".join(f"[[configuration]]\nname = {toml(value)}\nv = {toml(value)}\nat = {at}\n" for at, value in enumerate(values))
        (self.path / "s.toml").write_text(
            'name = "s"\ncommand = ["sh", "t.sh", "{at}", "{v}"]\ncode = ["t.sh"]\n[parameters]\nv = ""\nat = 0\n'
            + table + "[slurm]\ncpus_per_gpu = 1\n"
        )
        self.submit()
        found = self.settled()
        self.assertEqual(found["failed"], 0, self.tonnage("suite", "status") + self.logs())
        for at, value in enumerate(values):
            self.assertEqual((self.path / f"out{at}").read_bytes(), value.encode() + b"\0", value)
        for place in (self.path, self.path / "home/suites/s/slurm/logs", Path.cwd()):
            self.assertFalse((place / "pwned").exists(), place)

    def test_two_submissions_at_once_send_once(self):
        self.suite('echo "$1 $2" >> results\n', seeds=3)
        both = [subprocess.Popen([TONNAGE, "suite", "submit", "s.toml"], cwd=self.path, env=self.environment, stderr=subprocess.DEVNULL) for _ in range(2)]
        for one in both:
            one.wait(timeout=120)
        self.submit()
        self.assertEqual((self.settled()["succeeded"], self.results()), (3, ["0 0", "0 1", "0 2"]))

    def free_leaked_gpus(self):
        """What an administrator does: GPUs of a job that began between a restart of the controller and its nodes' registration stay taken (22.05),
        so that nothing runs and all wait for `Resources`."""
        waits = [line.strip() for line in squeue("--states=PENDING", "--format=%r")]
        if "Resources" in waits and not squeue("--states=RUNNING,COMPLETING"):
            controller("mend")

    def test_bar(self):
        """Runs with scancel and restarts of the controller: as many results, none twice, none lost."""
        chance = random.Random(int(os.environ.get("TONNAGE_SLURM_SEED", "3")))
        cancels, restarts = (5, 2) if RUNS >= 30 else (2, 1)
        # A third ends while faults strike, the others once they have.
        self.suite('sleep 0.$2\n[ $(($2 % 3)) = 0 ] || until [ -e go ]; do sleep 0.2; done\necho "$1 $2" >> results\n', seeds=RUNS)
        faults = ["cancel"] * cancels + ["restart"] * restarts
        chance.shuffle(faults)
        self.submit("--throttle", "6", code=None)
        end = time.monotonic() + 4 * PATIENCE
        while True:
            self.assertLess(time.monotonic(), end, self.tonnage("suite", "status") + self.logs()[-2000:])
            if faults and (waiting := squeue("--user=root", "--format=%i", "--states=PENDING,RUNNING")):
                if faults.pop() == "restart":
                    controller("down")
                    self.tonnage("suite", "submit", "s.toml", code=None)
                    controller("up")
                else:
                    subprocess.run(["scancel", chance.choice(waiting).strip()], timeout=60, check=False)
            if not faults:
                (self.path / "go").touch()
            self.free_leaked_gpus()
            self.submit(code=None)
            if not faults and self.status()["succeeded"] == RUNS:
                break
            time.sleep(1)
        self.assertEqual(self.results(), sorted(f"0 {seed}" for seed in range(RUNS)), "none twice, none lost")
        print(f"\n{RUNS} runs, {cancels} scancel, {restarts} restarts of the controller: {len(self.results())} results, none twice, none lost")


if __name__ == "__main__":
    unittest.main()
