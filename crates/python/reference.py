"""docs/python-reference.md, made of the module's own docstrings: `python crates/python/reference.py` writes it; test_api.py holds it."""

import ast
import inspect
import os
import re
import sys
from pathlib import Path

import tonnage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-reference.md"
FOLDER = Path(tonnage.__file__).parent
# In the order of the page.
GROUPS = [
    ("Questions", ["estimate", "Job", "sweep", "compare", "fit", "plan", "cost", "doctor", "replay", "gpus", "models"]),
    ("Answers", ["Answer", "Estimate", "Comparison", "Variant", "Fit", "Plan", "Cost", "Diagnosis", "Replay", "Gpu", "Model"]),
    ("Errors", ["TonnageError", "Place"]),
    ("While it runs", ["measure", "Measured", "Callback", "LightningCallback", "AccelerateCallback"]),
    ("Under `tonnage run`", ["attempt_folder", "told", "log", "lease", "guard", "longest_first", "peaks", "watch_out_of_memory"]),
]


def in_file(path):
    """Every class and function of a file by name, those within functions too: callbacks are made when they are asked for."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name: node for node in reversed([node for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))])}


def definitions():
    """Those of all files but what scripts tell `tonnage run`, whose types stand in its stubs."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        if path.name != "_guard.py":
            found = {**in_file(path), **found}
    guard, stubs = in_file(FOLDER / "_guard.py"), in_file(FOLDER / "_guard.pyi")
    for name in GROUPS[-1][1]:
        stubs[name].body = guard[name].body
        found[name] = stubs[name]
    return found


def signature(node, name):
    arguments = ast.unparse(node.args)
    for bound in ("self, ", "self"):
        arguments = arguments.removeprefix(bound)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None and node.name != "__init__" else ""
    return f"{name}({arguments}){returns}"


def prose(node):
    """A docstring as Markdown: its examples as blocks."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    lines, block = [], False
    for line in text.splitlines():
        begins = line.startswith(">>> ") or line.startswith("    ")
        if begins and not block:
            lines.append("```pycon" if line.startswith(">>>") else "```python")
            block = True
        elif block and not line.strip():
            lines.append("```")
            block = False
        lines.append(re.sub(r"^    ", "", line) if block else line)
    return "\n".join(lines + ["```"] * block)


def fields(node):
    """Public attributes with their types, and what is said below them."""
    rows = []
    for position, part in enumerate(node.body):
        if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name) or part.target.id.startswith("_"):
            continue
        after = node.body[position + 1] if position + 1 < len(node.body) else None
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        kind = ast.unparse(part.annotation).replace("parts.", "").replace("|", "\\|")
        rows.append(f"| `{part.target.id}` | `{kind}` | {said} |")
    return ["| attribute | type | |", "|---|---|---|", *rows] if rows else []


def methods(node):
    lines = []
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and ast.get_docstring(part):
            is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in part.decorator_list)
            shown = f"{part.name}: {ast.unparse(part.returns)}" if is_property and part.returns else signature(part, part.name)
            lines += [f"**`{shown}`**", "", prose(part), ""]
    return lines


def entry(name, node):
    lines = [f"### {name}", ""]
    if isinstance(node, ast.FunctionDef):
        return [*lines, "```python", signature(node, name), "```", prose(node), ""]
    made = next((part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"), None)
    if made is not None and name not in ("Answer", "Measured"):
        lines += ["```python", signature(made, name), "```"]
    return [*lines, prose(node), "", *fields(node), "", *methods(node)]


def page():
    known = definitions()
    listed = [name for _, names in GROUPS for name in names]
    assert sorted(listed) == sorted(set(tonnage.__all__) - {"__version__"}), set(listed) ^ set(tonnage.__all__)
    lines = ["# The module, by name", "", "Made of its docstrings by `crates/python/reference.py`; by what one wants to do: [python.md](python.md).", ""]
    for title, names in GROUPS:
        lines += [f"## {title}", ""]
        for name in names:
            lines += entry(name, known[name])
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{os.path.relpath(PAGE)}: {len(page().splitlines())} lines", file=sys.stderr)
