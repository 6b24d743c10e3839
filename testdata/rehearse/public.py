"""Rehearses unmodified scripts of public repositories, as `public/scripts.toml` lists them, and writes docs/rehearsed-scripts.md.

    python testdata/rehearse/public.py --tonnage target/release/tonnage --work FOLDER [--only nanoGPT,trl] [--again] [--forced] [--write]

Nothing of the repositories is kept here: they are cloned at the listed commit into `--work` (or read from `--source`, a place
of git folders with `{owner}` and `{name}` in it). Data, vocabularies and weights are small substitutes (`public/substitutes.py`).
Answers are kept in `--work`, so that a run can be continued; `--again` runs the scripts of `--only` anew, `--pin` writes the
newest commit of repositories that have none into the list. Run with the Python whose PyTorch is to be rehearsed.

`--forced` runs the scripts of `--only` that have an answer once more for as many steps with true values in place of the
rehearsal's (`public/python/forced.py`), so that nothing that a value decides is guessed. A row's `smaller` command takes the place of
its own there, with true values and in the rehearsal beside it.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "public"))
import substitutes  # noqa: E402

DOCUMENT = HERE.parent.parent / "docs" / "rehearsed-scripts.md"
LIST = HERE / "public" / "scripts.toml"
BEGIN, END = "<!-- rows -->", "<!-- /rows -->"
FORCED = ("<!-- forced -->", "<!-- /forced -->")
NOT_OF_VALUES = {"steady", "buckets", "convolution", "recurrent", "unused", "longest"}
"""Caveats that do not say that a value or the sizes of batches decided something."""
OF_DATA = {"shapes", "not_again"}
"""Those that say what of the data or of the script was not seen: no value of the device decided it, or another caveat would say so."""
DECIDES = "decide nothing"
TRUE = {"equal": "equal when true", "less": "less when true", "more, told": "more when true, told", "MORE, SILENT": "MORE WHEN TRUE, SILENT"}
"""What came of a run with true values -> what the table says of the values."""
VERDICTS = ("fits", "tight", "does not fit")
LIMIT = 900
"""Seconds after which a rehearsal is ended."""
HEAVY = 1 << 29
"""Bytes of a peak above which a run with true values keeps no large tensors of fractions (`light` in forced.py): the host has neither the
memory nor the time."""
OFFLINE = dict(
    HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", WANDB_MODE="offline", WANDB_SILENT="true", OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false", MPLBACKEND="agg", PYTHONUNBUFFERED="1", SDL_VIDEODRIVER="dummy", ACCELERATE_USE_CPU="false",
)  # fmt: skip


def git(folder, *words, **more):
    return subprocess.run(["git", f"--git-dir={folder}", *words], check=True, capture_output=True, **more).stdout


def checked_out(repository, commit, work, source):
    """The folder with a repository's files at a commit. Files that a clone lacks (large pictures) are left out. Of a release, whose program
    the environment has, an empty one."""
    owner, name = repository.split("/")
    place = work / "repositories" / f"{owner}+{name}"
    if "==" in commit:
        place.mkdir(parents=True, exist_ok=True)
        return place, commit
    if commit and (place / ".commit").exists() and (place / ".commit").read_text() == commit:
        return place, commit
    store = pathlib.Path(source.format(owner=owner, name=name)) if source else work / "git" / f"{owner}+{name}"
    if not source and not store.exists():
        subprocess.run(["git", "clone", "--quiet", "--bare", f"https://github.com/{repository}", str(store)], check=True)
    store = store / ".git" if (store / ".git").exists() else store
    commit = commit or git(store, "rev-parse", "HEAD", text=True).strip()
    if (place / ".commit").exists() and (place / ".commit").read_text() == commit:
        return place, commit
    listed = git(store, "ls-tree", "-r", "-z", commit, text=True).split("\0")[:-1]
    for line in listed:
        (mode, kind, sha), path = line.split("\t")[0].split(), line.split("\t")[1]
        has = kind == "blob" and subprocess.run(["git", f"--git-dir={store}", "cat-file", "blob", sha], capture_output=True)
        if not has or has.returncode:
            continue
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == "120000":
            target.unlink(missing_ok=True)
            target.symlink_to(has.stdout.decode())
        else:
            target.write_bytes(has.stdout)
    (place / ".commit").write_text(commit)
    return place, commit


def prepared(place, row, work):
    """Puts the row's data where its script looks for it."""
    for where, wanted in row.get("data", {}).items():
        target, made = place / row.get("in", ".") / where, substitutes.made(work / "data", wanted)
        # A folder that the repository has too keeps its other files.
        both = target.is_dir() and not target.is_symlink() and made.is_dir()
        for link, source in [(target / one.name, one) for one in made.iterdir()] if both else [(target, made)]:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(source)


def installed(wanted, work):
    """A folder with packages of other versions than the environment's."""
    folder = work / "packages" / hashlib.sha1(wanted.encode()).hexdigest()[:12]
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *wanted.split()], check=True)
    return str(folder)


def rehearsed(tonnage, place, row, work, steps=0, forced="values"):
    """The answer of `tonnage rehearse` for a row, and what the script said last; with `steps`, so many as `forced.py` has them."""
    gpus, options = str(row.get("gpus", 1)), row.get("options", "").split()
    folders = [str(place / row["path"])] if "path" in row else []
    others = [installed(row["packages"], work)] if "packages" in row else []
    path = os.pathsep.join([str(HERE / "public" / "python"), *folders, *others])
    environment = {**os.environ, **OFFLINE, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": path}
    if steps:
        # What asks for the true values reads the device all the time, which is no loop that waits.
        options, environment["TONNAGE_FORCED"] = [*options, "--steps", str(steps), "--patience", str(LIMIT)], forced
    command = [tonnage, "rehearse", "--gpu", row.get("gpu", "h100"), "--gpus", gpus, *options, "--json", "--", "sh", "-c", row["run"]]
    began = time.time()
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place / row.get("in", "."), env=environment, errors="replace")
    try:
        out, said = running.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)
        out, said = running.communicate()
    document = json.loads(out) if out.startswith("{") else None
    return {"document": document, "seconds": time.time() - began, "code": running.returncode, "said": said[-6000:], "told": told_of(said)}


def told_of(said):
    """What `forced.py` says of its operators, of the process that had most."""
    # A bar of progress may stand before it in its line.
    told = [json.loads(found) for found in re.findall(r"forced: (\{.*\})$", said, re.MULTILINE)]
    return max(told, key=lambda one: one["computed"] + sum(one["random"].values()), default=None)


def true_row(row):
    """The row as it is run with true values: with its `smaller` command, where it has one."""
    return {**row, "run": row["smaller"], "key": f"{row['key']}-smaller"} if "smaller" in row else row


def wording(row, answer):
    """Verdict, peak, caveats and remark of a row of the table."""
    if answer is None:
        return "not started" if "needs" in row else "not tried", "", "", row.get("needs", "")
    document = answer["document"]
    if document is None or not document["gpus"]:
        return "none", "", "", last_line(answer["said"])
    verdict = document["gpus"][0]["verdict"] or "not known"
    peaks = [device["peak_allocated_bytes"] for process in document["processes"] for device in process["devices"]]
    codes = sorted({caveat["code"] for process in document["processes"] for caveat in process["caveats"]} - {"steady"})
    failed = [f"{one['type']}: {one['message']}" for one in (process["failure"] for process in document["processes"]) if one]
    remark = "" if verdict != "not known" else failed[0] if failed else last_line(answer["said"])
    return verdict.replace("_", " "), f"{max(peaks):,}" if peaks else "", ", ".join(codes), remark


def last_line(said):
    lines = [line.strip() for line in said.splitlines() if re.match(r"\s*(error:|[\w.]*(Error|Exception|Interrupt)\b)", line)]
    return (lines or [line for line in said.splitlines() if line.strip()] or [""])[-1]


def steps_of(answer):
    """Optimizer steps of a rehearsal that came to a verdict."""
    return max((process["steps"] for process in answer["document"]["processes"]), default=0) if answer["document"] else 0


def peak_of(answer):
    processes = answer["document"]["processes"] if answer["document"] else []
    return max((device["peak_allocated_bytes"] for process in processes for device in process["devices"]), default=0)


def forced_answer(tonnage, place, row, work, answer):
    """The answer with true values; where it is another than the rehearsal's, beside one that is only looked at in the same way (and is
    by this very program: the kept answer may be of an older one)."""
    steps = max(steps_of(answer), 1)
    truth = rehearsed(tonnage, place, row, work, steps, "light" if peak_of(answer) > HEAVY else "values")
    if truth["document"] and came(row, truth) and peak_of(truth) != peak_of(answer):
        control = rehearsed(tonnage, place, row, work, steps, "nothing")
        if control["document"] and came(row, control) and steps_of(control) == steps_of(truth):
            truth["control"] = control
    return truth


def compared(row, answer, forced):
    """What a rehearsal says beside the same script with true values: `equal`, `less`, `more, told` or `MORE, SILENT`, and by how much."""
    if not answer["document"] or not came(row, answer):
        return "not compared", f"the rehearsal itself: {last_line(answer['said'])}"
    codes = {caveat["code"] for process in answer["document"]["processes"] for caveat in process["caveats"]} - NOT_OF_VALUES
    reached = steps_of(forced)
    if not forced["document"] or not came(row, forced) or reached < steps_of(answer):
        why = last_line(forced["said"])
        why = f"the run was ended at {forced['seconds']:.0f} s" if why == "KeyboardInterrupt" else why
        return "not compared", f"after {reached} steps: {why}"
    more = peak_of(forced) - peak_of(forced.get("control", answer))
    told = ", ".join(sorted(codes))
    if more <= 0:
        return ("less" if more else "equal"), told
    return ("more, told" if codes else "MORE, SILENT"), told


def computed(truth):
    """How many of a run's operators ran on the CPU, in percent; rounded down, so that 100 are all of them."""
    told = truth.get("told")
    every = told["computed"] + sum(told["random"].values()) if told else 0
    return f"{100 * told['computed'] // every}%" if every else ""


def short(commit):
    """As the table names a commit, or a release."""
    return commit if "==" in commit else commit[:8]


def told_before(page, marks):
    """The lines that a table of the page had: first two cells -> all of them."""
    return lines_of(page.split(marks[0])[1].split(marks[1])[0])


def lines_of(told):
    """A table's lines: first two cells -> all of them."""
    return {tuple(line.split(" | ")[:2]): line for line in told.splitlines() if line.startswith("| ")}


def shown_of(row):
    """A row's folder and command."""
    return f"{row['in']}: {row['run']}" if "in" in row else row["run"]


def forced_cells(row):
    """The first two cells of a row among those with true values; what was made smaller is shown whole."""
    return f"| {row['repository']}", f"`{shown_of(row)[: None if 'smaller' in row else 120]}`"


def forced_table(rows, answers, forced, before):
    """Every script that was run with true values beside its rehearsal, and how many came out how; those that were not run this
    time keep their lines."""
    lines, counts = [], {}
    for row in map(true_row, rows):
        if row["key"] not in forced or row["key"] not in answers:
            kept = before.get(forced_cells(row))
            if kept:
                lines.append(kept)
                counts[kept.split(" | ")[5]] = counts.get(kept.split(" | ")[5], 0) + 1
            continue
        answer, truth = answers[row["key"]], forced[row["key"]]
        what, why = compared(row, answer, truth)
        counts[what] = counts.get(what, 0) + 1
        why = " ".join(why.split()).replace("|", "\\|").replace(str(pathlib.Path.home()), "~")[:120]
        lines.append(f"{' | '.join(forced_cells(row))} | {steps_of(answer)} | {peak_of(truth.get('control', answer)):,} | {peak_of(truth):,} | {what} | {why} | {computed(truth)} |")
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    head = ["| repository | folder: command | steps | rehearsed (bytes) | with true values | this is | caveats of the rehearsal | computed |", "|---|---|---|---|---|---|---|---|"]
    return f"{len(lines)} scripts were run with true values: {told}.\n\n" + "\n".join(head + lines)


def came(row, answer):
    """Whether a row that could start came to a verdict."""
    return wording(row, answer)[0] in VERDICTS


def table(rows, answers, versions, before, true_lines):
    """The page's table and the counts above it; scripts that were not run this time keep their lines."""
    lines = [table_line(row, answers.get(row["key"]), before, true_lines) for row in rows]
    verdicts = [(row["repository"], line.split(" | ")[2]) for row, line in zip(rows, lines)]
    started = [repository for repository, verdict in verdicts if not verdict.startswith("not ") or verdict == "not known"]
    reached = sum(verdict in VERDICTS for _, verdict in verdicts)
    values = collections.Counter(line.split(" | ")[5] for line in lines) - collections.Counter({"": len(lines)})
    counts = (
        f"{len(started)} scripts of {len(set(started))} repositories were started; {reached} came to a verdict. "
        f"{sum('needs' in row for row in rows)} more need what cannot be had here. {versions}\n\n"
        f"Values of the device: {'; '.join(f'{count} {word}' for word, count in sorted(values.items()))}."
    )
    head = ["| repository at commit | folder: command | verdict | peak allocated (bytes) | caveats | values of the device | seconds | remark |", "|---|---|---|---|---|---|---|---|"]
    return f"{counts}\n\n" + "\n".join(head + lines)


def table_line(row, answer, before, true_lines):
    """A script's line."""
    kept = before.get((f"| {row['repository']} {short(row['commit'])}", f"`{shown_of(row)}`"))
    if answer is None and kept:
        _, _, verdict, peak, codes, *_, seconds, remark = kept.removesuffix(" |").split(" | ")
    else:
        verdict, peak, codes, remark = wording(row, answer)
        seconds = f"{answer['seconds']:.0f}" if answer else ""
        remark = " ".join(remark.split()).replace("|", "\\|").replace(str(pathlib.Path.home()), "~")[:160]
    values = of_values(codes, true_lines.get(forced_cells(true_row(row))), "smaller" in row) if verdict in VERDICTS else ""
    return f"| {row['repository']} {short(row['commit'])} | `{shown_of(row)}` | {verdict} | {peak} | {codes} | {values} | {seconds} | {remark} |"


def of_values(codes, true_line, smaller):
    """What a run with true values says of the device's values; without one, whether the rehearsal's caveats say that any decided something:
    where none did, true values take the same way. A smaller command says nothing of caveats that only the whole one has."""
    decided = set(filter(None, codes.split(", "))) - NOT_OF_VALUES - OF_DATA
    compared = TRUE.get(true_line.split(" | ")[5]) if true_line else None
    if not compared:
        return "not compared" if decided else DECIDES
    missing = sorted(decided - set(true_line.split(" | ")[6].split(", "))) if smaller else []
    return f"{compared}{', smaller' if smaller else ''}{' without ' * bool(missing)}{' and '.join(missing)}"


def listed():
    """Every row of the list with its repository, commit and key."""
    rows = []
    for repository, entry in tomllib.loads(LIST.read_text()).items():
        for row in entry["scripts"]:
            own = {name: value for name, value in row.items() if name != "smaller"}
            key = hashlib.sha1(json.dumps([repository, own], sort_keys=True).encode()).hexdigest()[:16]
            rows.append({**row, "repository": repository, "commit": entry.get("commit", entry.get("release", "")), "key": key})
    return rows


def pin(found):
    """Writes commits into the list where a repository has none."""
    text = LIST.read_text()
    for repository, commit in found.items():
        text = text.replace(f'["{repository}"]\nscripts', f'["{repository}"]\ncommit = "{commit}"\nscripts')
    LIST.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", type=os.path.abspath)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--source")
    parser.add_argument("--only", default="", help="parts of a repository's name or of a command")
    for flag in "--again", "--forced", "--pin", "--write":
        parser.add_argument(flag, action="store_true")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    (work / "answers").mkdir(parents=True, exist_ok=True)
    rows, answers, forced = listed(), {}, {}
    only = [part for part in arguments.only.split(",") if part]
    for row in rows:
        wanted = arguments.tonnage and (not only or any(part in f"{row['repository']} {row['run']}" for part in only))
        for one in [row, true_row(row)] if "smaller" in row else [row]:
            kept = work / "answers" / f"{one['key']}.json"
            compares = arguments.forced and "smaller" in row
            if wanted and "needs" not in row and (one is row) != compares and (arguments.again or not kept.exists()):
                place, _ = checked_out(row["repository"], row["commit"], work, arguments.source)
                prepared(place, row, work)
                kept.write_text(json.dumps(rehearsed(arguments.tonnage, place, one, work)))
                answer = json.loads(kept.read_text())
                print(row["repository"], one["run"], *wording(row, answer), f"{answer['seconds']:.0f} s", sep=" | ", flush=True)
            if kept.exists():
                answers[one["key"]] = json.loads(kept.read_text())
        one = true_row(row)
        truth = work / "answers" / f"{one['key']}-forced.json"
        if arguments.forced and wanted and one["key"] in answers and (arguments.again or not truth.exists()):
            place, _ = checked_out(row["repository"], row["commit"], work, arguments.source)
            prepared(place, row, work)
            truth.write_text(json.dumps(forced_answer(arguments.tonnage, place, one, work, answers[one["key"]])))
            made = json.loads(truth.read_text())
            print("forced", row["repository"], one["run"], *compared(one, answers[one["key"]], made), computed(made), sep=" | ", flush=True)
        if truth.exists():
            forced[one["key"]] = json.loads(truth.read_text())
    if arguments.pin:
        pin({row["repository"]: checked_out(row["repository"], row["commit"], work, arguments.source)[1] for row in rows})
        rows = listed()
    if arguments.write:
        import torch
        import transformers

        page = DOCUMENT.read_text()
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        rows_before, forced_before = told_before(page, (BEGIN, END)), told_before(page, FORCED)
        versions = f"PyTorch {torch.__version__}, transformers {transformers.__version__}."
        true_table = forced_table(rows, answers, forced, forced_before)
        after = after.split(FORCED[0])[0] + f"{FORCED[0]}\n{true_table}\n{FORCED[1]}" + after.split(FORCED[1])[1]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table(rows, answers, versions, rows_before, lines_of(true_table))}\n{END}{after}")


if __name__ == "__main__":
    main()
