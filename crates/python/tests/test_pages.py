"""Every block of Python in README.md and docs/*.md is executed. The reference is made of doctests and signatures: test_api holds it."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from . import test_torch

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "python-reference.md")]
# What each block needs, in a page's order.
ALONE, SCRIPT, PYTEST = "nothing", "a script with PyTorch", "pytest"
BLOCKS = {"python.md": [ALONE, SCRIPT, SCRIPT, PYTEST], "run.md": [SCRIPT]}


def blocks(page):
    return re.findall(r"```(?:python|py)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


class Pages(unittest.TestCase):
    def test_it_is_known_how_each_block_is_executed(self):
        found = {page.name: len(blocks(page)) for page in PAGES if blocks(page)}
        self.assertEqual(found, {page: len(needs) for page, needs in BLOCKS.items()})

    def test_what_needs_nothing_runs(self):
        for page in PAGES:
            for block, needs in zip(blocks(page), BLOCKS.get(page.name, []), strict=True):
                if needs is ALONE:
                    subprocess.run([sys.executable, "-c", block], check=True, stdout=subprocess.DEVNULL)


class OverThePhantom(test_torch.Phantom):
    def check_script(self, page):
        numbers = [str(number) for number, needs in enumerate(BLOCKS[page]) if needs is SCRIPT]
        script = (str(Path(__file__).with_name("page_blocks.py")), str(ROOT / "docs" / page), *numbers)
        answer = self.run_program(test_torch.PROGRAM, "rehearse", "--gpu", "h100", "--whole", "--", test_torch.PYTHON, *script)
        self.assertIn("callbacks:", answer.stdout + answer.stderr, answer.stderr[-3000:])
        return answer.stdout + answer.stderr

    def test_the_page_of_the_module(self):
        said = self.check_script("python.md")
        self.assertRegex(said, r"callbacks:.* Callback")
        self.assertIn("measured", said)

    def test_the_page_of_runs(self):
        self.assertRegex(self.check_script("run.md"), r"callbacks:.* Callback")

    @unittest.skipUnless(os.environ.get("TONNAGE_PYTEST"), "TONNAGE_PYTEST names the folder of pytest")
    def test_the_pages_test_is_rehearsed(self):
        test = next(block for block, needs in zip(blocks(ROOT / "docs/python.md"), BLOCKS["python.md"], strict=True) if needs is PYTEST)
        (self.folder / "test_page.py").write_text("import pytest\n" + test)
        answer = self.run_program(test_torch.PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-q")
        self.assertIn("1 passed", answer.stdout, answer.stdout + answer.stderr)
