"""The committed results: tables, figures and the page out of the committed runs; tables inside documents.

    python benchmarks/reproduction.py           # make everything anew, after new runs
    python benchmarks/reproduction.py --check   # say which documents differ from the runs

A document has a line `<!-- table: NAME -->` before each table that is made here, and `<!-- end -->` after it.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from lntrust.experiment.store import read_runs
from lntrust.report.claims import Outcome, signed
from lntrust.report.rows import Row
from lntrust.report.sections import Section, sections_of
from lntrust.report.text import Cell, markdown, paper_of, spread_of, superseded_words, test_cell

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "results" / "reproduction"
RUNS = [FOLDER / f"runs-{name}.parquet" for name in ("tables", "ablations", "hubs")]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs" / "reproduction.md"]
MARK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
MAIN = {"sparse-1": "sparse, CIFAR-10", "sparse-2": "sparse, CIFAR-100", "dense-1": "dense, CIFAR-10",
        "geographic-1": "geographic, EuroSAT"}  # fmt: skip
PAPERS = {"sparse-1": "sparse-3", "sparse-2": "sparse-4", "dense-1": "dense-2",
          "geographic-1": "geographic-4"}  # the paper's reading of each  # fmt: skip
FURTHER = ("geographic-2", "geographic-3", "weighting", "validation", "budget", "frequency", "gate",
           "teachers", "confidence")  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = ("holds", "undecided", "does not hold")
OLD = "‡"  # superseded


def table(section: Section) -> str:
    """The table of a section, what of it is superseded and its verdicts, without the words around them."""
    lines = markdown(section).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    verdicts = [line for line in lines if line.startswith("- **")]
    old = [line for words in superseded_words(section) for line in ("", words)]
    return "\n".join([*rows, *old, "", *verdicts]).strip() + "\n"


def main_table(sections: dict[str, Section]) -> str:
    """README's: all methods on the paper's four settings."""
    labels = [row.label for row in sections["sparse-1"].rows]
    out = ["| method | " + " | ".join(MAIN.values()) + " |", "| :-- |" + " --: |" * len(MAIN)]
    by_name = {name: {row.label: row for row in sections[name].rows} for name in MAIN}
    best = {name: max(rows.values(), key=_mean).label for name, rows in by_name.items()}
    for label in labels:
        cells = []
        for name, rows in by_name.items():
            row = rows.get(label)
            text = "" if row is None else str(test_cell(row))
            cells.append(f"**{text}**" if label == best[name] else text)
        old = any(label in rows and rows[label].superseded for rows in by_name.values())
        out.append(f"| {label}{OLD * old} | " + " | ".join(cells) + " |")
    paper = [f".{round(1000 * by_name[name]['LNTrust'].paper['test'])}" for name in MAIN]
    out.append("| *LNTrust in the paper* | " + " | ".join(f"*{number}*" for number in paper) + " |")
    gains = [by_name[name]["LNTrust"].difference for name in MAIN]
    told = ["" if gain is None else signed(gain) for gain in gains]
    out.append("| LNTrust − Independent | " + " | ".join(told) + " |")
    return "\n".join(out) + "\n"


def _mean(row: Row) -> float:
    return row.test.mean if row.test else 0.0


def readings_table(sections: dict[str, Section]) -> str:
    """Independent and LNTrust as the paper prints them, under its reading and under ours."""
    out = ["| | the paper prints | the paper's reading | ours | ours, best round on test |",
           "| :-- | --: | --: | --: | --: |"]  # fmt: skip
    for name, title in MAIN.items():
        ours, papers = (
            {row.label: row for row in sections[each].rows} if each in sections else {}
            for each in (name, PAPERS[name])
        )
        for label in ("Independent", "LNTrust"):
            row = ours[label]
            there = test_cell(papers[label]) if label in papers else "not run yet"
            best = spread_of("best_round_test_selected")(row) if label == "LNTrust" else Cell()
            cells = (paper_of("test")(row), there, test_cell(row), best)
            out.append(f"| {label}, {title} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(out) + "\n"


def further_table(sections: dict[str, Section]) -> str:
    """The other tables, a line each: every row's Test, the paper's beside it; what became of the claims."""
    out = ["| table | Test, in brackets the paper's | claims |", "| :-- | :-- | :-- |"]
    for section in [sections[name] for name in FURTHER]:
        rows = [_short(row) for row in section.rows]
        counts = Counter(verdict.outcome for verdict in section.verdicts)
        claims = ", ".join(f"{counts[each]} {each}" for each in OUTCOMES if counts[each])
        about = section.title.removeprefix("Geographic setting: ") + (f" ({section.x})" if section.x else "")
        cells = (f"`{section.reproduction}`, {section.place}: {about}", "; ".join(rows), claims or "none")
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def _short(row: Row) -> str:
    printed = f" ({paper_of('test')(row).value})" if "test" in row.paper else ""
    return f"{row.label}{OLD * row.superseded} {test_cell(row).value}{printed}"


def claims_table(sections: dict[str, Section]) -> str:
    """How many claims hold."""
    counts = Counter(verdict.outcome for section in sections.values() for verdict in section.counted)
    numbers = " | ".join(str(counts[outcome]) for outcome in OUTCOMES)
    rows = (f"of the paper's claims | {' | '.join(OUTCOMES)}", ":-- | --: | --: | --:", f"ours | {numbers}")
    return "".join(f"| {row} |\n" for row in rows)


def renewed(text: str, sections: dict[str, Section]) -> str:
    """A document with its tables as the runs have them."""
    made = {
        "main": main_table, "claims": claims_table, "readings": readings_table, "further": further_table
    }  # fmt: skip

    def replace(match: re.Match[str]) -> str:
        name = match[2]
        if name.startswith("beyond-"):  # of beyond_tables.py
            return match[0]
        body = made[name](sections) if name in made else table(sections[name])
        return f"{match[1]}\n{body}\n{match[3]}"

    return MARK.sub(replace, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    sections = {section.name: section for section in sections_of(read_runs(RUNS))}
    stale = []
    for path in DOCUMENTS:
        text = path.read_text("utf-8")
        new = renewed(text, sections)
        if new != text:
            stale.append(str(path))
            if not check:
                path.write_text(new, "utf-8")
    if check:
        sys.exit(f"differ from the runs: {', '.join(stale)}" if stale else 0)
    given = [f"--from={path}" for path in RUNS]
    lntrust = [sys.executable, "-m", "lntrust.cli"]
    subprocess.run([*lntrust, "reproduce", "all", *given, "--to", str(FOLDER)], check=True)
    for path in [*FOLDER.glob("*.pdf"), *FOLDER.glob("*.tex"), *FOLDER.glob("*.md")]:
        path.unlink()  # made in a second from the same runs; the repository keeps what can be looked at
    relative = [str(path.relative_to(ROOT)) for path in RUNS]
    report = ["report", *relative, "-o", str((FOLDER / "report.html").relative_to(ROOT))]
    subprocess.run([*lntrust, *report], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
