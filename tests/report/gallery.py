"""Takes the pictures of docs/gallery from a run's folder: `python -m tests.report.gallery RUN_DIR docs/gallery`.

The run should have been compared with a model in service; `make gallery` says how. A part whose section is not on the
page is left out, and named.
"""

import base64
import dataclasses
import sys
import tempfile
from pathlib import Path

from tests.report.conftest import Browser, start_browser

QUALITY = 82
"""Of WebP."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A part of a page.

    Attributes:
      heading: of the section; empty for the top of the page.
      height: at most, in pixels.
      unfolded: folded parts of the section to open, by the start of their summary.
    """

    name: str
    page: str
    heading: str
    height: int
    width: int = 1080
    dark: bool = False
    unfolded: str = ""


PICTURES = [
    Picture("evaluation", "report.html", "", 1180),
    Picture("regressions", "report.html", "Regressions and fixes", 1000),
    Picture("slices", "report.html", "Slices", 900),
    Picture("words", "report.html", "Words", 560),
    Picture("utterances", "report.html", "All utterances", 620, dark=True),
    Picture("training", "report.html", "Training", 460),
    Picture("history", "report.html", "History", 520, dark=True),
    Picture("validation", "validation.html", "", 1000),
    Picture("phone", "report.html", "", 1000, width=400, dark=True),
]

SELECT = """((heading, unfolded) => {
  for (const one of document.querySelectorAll("details"))
    if (unfolded && one.querySelector("summary").textContent.startsWith(unfolded)) one.open = true;
  if (!heading) return [0, document.documentElement.scrollHeight];
  const section = [...document.querySelectorAll("section")]
    .find(one => one.querySelector("h2").textContent === heading);
  if (!section) return null;
  const box = section.getBoundingClientRect();
  return [box.top + scrollY - 4, box.height + 8];
})"""


def take_pictures(run_dir: Path, folder: Path, scratch: Path, browser: Browser) -> list[str]:
    """Writes the pictures; returns the names of those that the run's pages do not have."""
    missing = []
    folder.mkdir(parents=True, exist_ok=True)
    for name in {picture.page for picture in PICTURES}:
        if (run_dir / name).is_file():
            # Without the paths of this machine.
            text = (run_dir / name).read_text(encoding="utf-8").replace(f"{run_dir.resolve().parent}/", "")
            (scratch / name).write_text(text, encoding="utf-8")
    for picture in PICTURES:
        page = scratch / picture.page
        script = f"{SELECT}({picture.heading!r}, {picture.unfolded!r})"
        found = None
        if page.is_file():
            found = browser.open(page, script, width=picture.width, dark=picture.dark).value
        if found is None:
            missing.append(picture.name)
            continue
        top, height = found
        data = browser.screenshot((0, top, picture.width, min(height, picture.height)), "webp", QUALITY)
        (folder / f"{picture.name}.webp").write_bytes(base64.b64decode(data))
    return missing


def main() -> None:
    run_dir, folder = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as scratch, start_browser() as browser:
        missing = take_pictures(run_dir, folder, Path(scratch), browser)
    size = sum(file.stat().st_size for file in folder.glob("*.webp"))
    print(f"gallery: {len(PICTURES) - len(missing)} pictures in {folder}, {size / 1000:,.0f} kB")
    if missing:
        print(f"gallery: not on the pages of {run_dir}: {', '.join(missing)}")


if __name__ == "__main__":
    main()
