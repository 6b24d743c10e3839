"""The composite action and the pre-commit hook, run as the shell that they are."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = shutil.which("tonnage", path=os.path.dirname(sys.executable)) or shutil.which("tonnage")


def steps(text):
    """The scripts of an action's steps, in their order."""
    found = []
    for match in re.finditer(r"^( +)run: \|\n((?:\1 +.*\n|\n)+)", text, re.MULTILINE):
        lines = match[2].splitlines()
        depth = len(lines[0]) - len(lines[0].lstrip())
        found.append("\n".join(line[depth:] for line in lines))
    return found


@unittest.skipIf(os.name == "nt", "runners have bash; this machine may not")
class Action(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "my job.toml").write_text('model = "gpt2"\nseq_len = 64\ngpu = "l4"\n')

    def run_shell(self, script, **environment):
        path = os.path.dirname(PROGRAM) + os.pathsep + os.environ["PATH"]
        environment = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"), **environment}
        # As a runner calls it.
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(words, capture_output=True, text=True, cwd=self.folder, env=environment, check=False)

    def check_job(self, job, tolerance="0"):
        install, check = steps((ROOT / "action.yml").read_text())
        self.assertEqual(self.run_shell(install, ACTION="/nowhere").returncode, 0, "the program is there: nothing is installed")
        return self.run_shell(check, JOB=job, BASELINE="memory.json", TOLERANCE=tolerance)

    def test_it_passes_and_fails_as_the_check_does(self):
        answer = self.check_job('"my job.toml" --update')
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(self.check_job('"my job.toml"').returncode, 0)
        grown = self.check_job('"my job.toml" --seq-len 256')
        self.assertEqual(grown.returncode, 1, grown.stderr)
        self.assertIn("takes more than the baseline", grown.stdout)
        self.assertIn("takes more than the baseline", (self.folder / "summary.md").read_text())
        self.assertEqual(self.check_job('"my job.toml" --seq-len 256', tolerance="900").returncode, 0)

    def test_no_word_of_a_job_is_executed(self):
        self.check_job("$(touch one) `touch two` ; touch three")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["my job.toml"])

    def test_the_hook_is_a_command_of_the_program(self):
        text = (ROOT / ".pre-commit-hooks.yaml").read_text()
        entry = re.search(r"^  entry: (.*)$", text, re.MULTILINE)[1]
        self.assertIn("pass_filenames: false", text)
        arguments = "'my job.toml' --baseline memory.json"
        self.assertEqual(self.run_shell(f"{entry} {arguments} --update").returncode, 0)
        self.assertEqual(self.run_shell(f"{entry} {arguments}").returncode, 0)


if __name__ == "__main__":
    unittest.main()
