"""Finds phrases that a native engineer would not write: `python .ci/vocabulary.py`, part of `make lint`.

Prints file:line, the phrase and what to write instead; exits 1 if there is any.
"""

import re
import subprocess
import sys
from pathlib import Path

PHRASES = {
    r"whoever": "name the reader: 'callers', 'the user', or the imperative",
    r"\b(?:is|are|was|were) told\b": "say who sees what: 'the report shows …', 'the error names …'",
    r"\b(?:be|been|being) told\b|\btold (?:apart|of|that|by)\b": "'distinguished', 'named', 'known'",
    r"\bgoes on\b": "'resumes', 'continues', 'lasts'",
    r"\bbecame of\b": "'what happened to', 'the outcome of'",
    r"\b(?:is|are) to be had\b": "'is available'",
    r"\bof which none\b": "say it in a sentence of its own",
    r"\b(?:is|are) asked of\b": "'requires', 'must'",
    r"\bis no (?:place|such|part|folder|file|name)\b": "'is not a …'",
    r"\blies? (?:in|at|beside|below|outside|there)\b": "'is in', 'is next to'",
    r"\bstands? (?:in|on|at|beside|there|among)\b": "'is in', 'imports', 'depends on'",
    r"\banew\b": "'again'",
    r"\b(?:has|have|had|is|was|were) begun\b": "'started'",
    r"\bof late\b": "'recently'",
    r"\bhowever often\b": "'no matter how often'",
    r"\bupon it\b": "'on it'",
    r"\btaken (?:for another|over)\b": "'substituted', 'reused'",
    r"\bat hand\b": "'available'",
}
CHECKED = (".md", ".py", ".yaml", ".yml", ".toml", ".j2", ".hcl", "Makefile", "Dockerfile")
RULES = {re.compile(phrase, re.IGNORECASE): advice for phrase, advice in PHRASES.items()}


def main() -> int:
    """The exit status: 1 if a phrase was found."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [Path(name) for name in listed if name.endswith(CHECKED)]
    found = 0
    for file in files:
        if file.is_symlink() or not file.is_file() or file.resolve() == Path(__file__).resolve():
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for rule, advice in RULES.items():
                if match := rule.search(line):
                    print(f"{file}:{number}: {match[0]!r}: write {advice}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
