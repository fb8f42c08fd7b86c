"""validate as a step: its verdict, what it leaves behind, its report."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.validate.takes import RATE, SMALL, failed, fit, judged, report_of, speech, written
from tests.validate.test_checks import a_recording_of_train_in_test, a_tone_that_passes_for_speech
from voxline.components.validate.checks import CHECKS, TFDV_CHECKS
from voxline.components.validate.settings import ValidateSettings
from voxline.components.validate.step import run
from voxline.data.manifest import Utterance, write_manifest
from voxline.errors import RefusedInputError, SettingsError, WorkError

HOSTILE = "<script>alert(1)</script> </p><img src=x onerror=alert(2)>"


def test_a_fit_corpus_passes_every_check(tmp_path: Path) -> None:
    work = run(written(tmp_path / "corpus", fit()), tmp_path / "store", ValidateSettings.of(SMALL))
    validation = json.loads(work.path("validation").read_text())
    ours, tfx = {one.name: "passed" for one in CHECKS}, {one.name: "not checked" for one in TFDV_CHECKS}
    assert {one["name"]: one["outcome"] for one in validation["checks"]} == {**ours, **tfx}
    assert validation["passed"] is True
    assert validation["utterances"] == {"train": 40, "dev": 10, "test": 10}
    assert work.counts == {"utterances": 60, "checks": len(CHECKS), "failed": 0, "warnings": 0}


def test_a_failed_check_leaves_all_outputs_but_no_done(tmp_path: Path) -> None:
    takes = fit()
    a_recording_of_train_in_test(takes)
    manifest = written(tmp_path / "corpus", takes)
    for _ in range(2):  # nothing is remembered: it is judged again
        with pytest.raises(WorkError) as stopped:
            run(manifest, tmp_path / "store", ValidateSettings.of(SMALL))
        (folder,) = (path for path in (tmp_path / "store" / "validate").iterdir() if path.is_dir())
        assert sorted(path.name for path in folder.iterdir()) == ["report.html", "statistics.html", "validation.json"]
        message = str(stopped.value)
        assert "recording_overlap is 1, at most 0 accepted" in message
        assert str(folder / "report.html") in message
        assert "\n" not in message


def test_a_warning_is_reported_and_the_step_finishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    takes = fit()
    a_recording_of_train_in_test(takes)
    manifest = written(tmp_path / "corpus", takes)
    chosen = ValidateSettings.of({**SMALL, "recording_overlap": {"severity": "warning"}})
    work = run(manifest, tmp_path / "store", chosen)
    assert (work.folder / "done.json").is_file()
    assert work.counts == {"utterances": 60, "checks": len(CHECKS), "failed": 0, "warnings": 1}
    assert "warning: recording_overlap is 1" in capsys.readouterr().out
    assert run(manifest, tmp_path / "store", chosen).reused


def test_the_verdict_belongs_to_the_content_not_to_the_place(tmp_path: Path) -> None:
    written(tmp_path / "here", fit())
    shutil.copytree(tmp_path / "here", tmp_path / "über dort")
    first = run(tmp_path / "here", tmp_path / "store", ValidateSettings.of(SMALL))
    again = run(tmp_path / "über dort" / "manifest.jsonl", tmp_path / "store", ValidateSettings.of(SMALL))
    assert again.reused
    assert again.key == first.key


def test_other_rejects_are_validated_again(tmp_path: Path) -> None:
    first = run(written(tmp_path / "corpus", fit()), tmp_path / "store", ValidateSettings.of(SMALL))
    again = run(written(tmp_path / "corpus", fit(), rejects=1), tmp_path / "store", ValidateSettings.of(SMALL))
    assert again.key != first.key


def test_a_check_that_cannot_run_is_reported_and_fails_nothing(tmp_path: Path) -> None:
    bare = [Utterance(f"u{n}", f"{n}.wav", 1.0, f"word {n}", split="train") for n in range(3)]
    write_manifest(tmp_path / "manifest.jsonl", bare)
    chosen = ValidateSettings.of({"empty_splits": {"required": ["train"]}})
    work = run(tmp_path, tmp_path / "store", chosen)
    validation = json.loads(work.path("validation").read_text())
    unmade = {one["name"]: one["detail"] for one in validation["checks"] if one["outcome"] == "not checked"}
    assert {"clipping", "level", "silence", "constant_audio", "ctc_feasibility", "speaker_overlap"} <= set(unmade)
    assert all(unmade.values())
    assert "not checked" in work.path("report").read_text()


def test_an_empty_manifest_fails_by_its_empty_splits(tmp_path: Path) -> None:
    assert failed(judged(tmp_path / "checked", [])) == {"empty_splits"}
    assert "Not fit: 1 check failed: empty_splits" in report_of(tmp_path, [])


def test_personal_data_is_counted_hidden_and_can_be_refused(tmp_path: Path) -> None:
    takes = fit()
    takes[2].samples, takes[5].samples = speech(2, 4.0), speech(5, 4.0)
    takes[2].text = "call me at 555-0199"
    takes[5].text = "my name is grace and it is 555-0188"
    manifest = written(tmp_path / "corpus", takes)
    refusing = ValidateSettings.of({**SMALL, "personal_data": {"severity": "error", "threshold": 1}})
    with pytest.raises(RefusedInputError, match=r"personal_data is 2, at most 1 accepted") as refused:
        run(manifest, tmp_path / "store", refusing)
    message = str(refused.value)
    assert "2 of 60 transcripts have any: phone number 2, name 1; such as train-2: 'call me at •••'" in message

    # Neither the page nor validation.json says or plays what it hides.
    (report,) = (tmp_path / "store").glob("validate/*/report.html")
    page = report.read_text()
    assert "call me at •••" in page
    section = page[page.index("personal_data: 2 utterances") :]
    assert "<audio" not in section[: section.index("</details>")]
    for text in (message, page, report.with_name("validation.json").read_text()):
        assert not any(hidden in text for hidden in ("555-01", "grace"))

    assert run(manifest, tmp_path / "store", ValidateSettings.of(SMALL)).counts["warnings"] >= 1


def test_the_report_plays_the_offenders_and_escapes_what_they_say(tmp_path: Path) -> None:
    takes = fit()
    takes[5].samples = np.full(RATE, 0.25)
    takes[5].text, takes[5].speaker, takes[5].id = HOSTILE, HOSTILE, HOSTILE
    takes[6].split = "<b>odd"
    page = report_of(tmp_path, takes)
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>odd" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "data:audio/wav;base64," in page


def test_a_recording_that_has_gone_does_not_stop_the_report(tmp_path: Path) -> None:
    takes = fit()
    a_tone_that_passes_for_speech(takes)
    manifest = written(tmp_path / "corpus", takes)
    (manifest / "5.wav").unlink()
    with pytest.raises(WorkError, match="constant_audio"):
        run(manifest, tmp_path / "store", ValidateSettings.of(SMALL))
    (report,) = (tmp_path / "store").glob("validate/*/report.html")
    assert "5.wav cannot be read" in report.read_text()


def test_the_same_corpus_makes_the_same_files(tmp_path: Path) -> None:
    manifest = written(tmp_path / "corpus", fit())
    one, other = (run(manifest, tmp_path / store, ValidateSettings.of(SMALL)) for store in ("a", "b"))
    for output in ("validation", "report", "statistics_page"):
        assert one.path(output).read_bytes() == other.path(output).read_bytes()


def test_a_manifest_seen_before_is_parsed_only_to_be_judged(tmp_path: Path) -> None:
    manifest, store = written(tmp_path / "corpus", fit()), tmp_path / "store"
    first = run(manifest, store, ValidateSettings.of(SMALL))
    again = run(manifest, store, ValidateSettings.of({**SMALL, "max_listed": 3}))
    assert (again.reused, again.counts, again.key == first.key) == (False, first.counts, False)
    parsing_fails = {"runner": "NoRunner", "beam_from_megabytes": 0}
    with pytest.raises(SettingsError, match="NoRunner"):
        run(manifest, tmp_path / "empty store", ValidateSettings.of({**SMALL, **parsing_fails}))
    assert run(manifest, store, ValidateSettings.of({**SMALL, **parsing_fails})).reused


def test_a_manifest_that_names_no_recording_by_content_is_not_noted_for_steps_that_need_that(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text(
        '{"id": "a", "audio_filepath": "a.wav", "duration": 1.0, "text": "one", "split": "train"}\n'
    )
    with pytest.raises(WorkError, match="empty_splits"):
        run(tmp_path, tmp_path / "store", ValidateSettings())
    assert not (tmp_path / "store/fingerprints").exists()
