"""A person's corrections of transcripts: applied by ingest, kept over refreshes, brought back from Label Studio."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ingest.conftest import Ingested
from voxline.data.corrections import (
    LABEL_CONFIG,
    Correction,
    DoubtfulText,
    label_studio_tasks,
    read_corrections,
    read_label_studio,
    write_corrections,
)
from voxline.errors import WorkError
from voxline.pipelines.cli.main import main


@pytest.fixture
def listed(corpus: Path, record: Callable[..., Path]) -> Callable[..., Path]:
    """Writes the recordings and texts of a manifest."""

    def write(**texts: str) -> Path:
        lines = []
        for id, text in texts.items():
            if not (corpus / f"{id}.wav").exists():
                record(f"{id}.wav")
            lines.append(json.dumps({"id": id, "audio_filepath": f"{id}.wav", "duration": 0.5, "text": text}))
        (corpus / "train.jsonl").write_text("\n".join(lines), "utf-8")
        return corpus

    return write


def test_corrections_survive_a_refresh(
    listed: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "corrections.jsonl"
    write_corrections(
        file,
        [Correction("b", "turn of", "turn off"), Correction("c", "nonsense", None), Correction("d", "was so", "is so")],
    )
    settings = {
        "format": "manifest", "corrections": str(file), "uri": str(listed(a="one", b="turn of", c="nonsense")),
        "max_reject_share": 0.0,  # what a person leaves out is no fault of the corpus
    }  # fmt: skip
    before = Ingested(tmp_path / "store", **{**settings, "corrections": ""})
    first = Ingested(tmp_path / "store", **settings)
    assert {one.id: one.text for one in first.utterances.values()} == {"a": "one", "b": "turn off"}
    assert first.rejects == {"c": "invalidated"}
    assert "corrections.jsonl; its text was 'nonsense'" in first.details["c"]
    assert first.work.counts["corrected"] == 2
    assert "1 correction in" in (printed := capsys.readouterr().out)
    assert "corrections.jsonl of no utterance here: d" in printed
    assert before.work.key != first.work.key
    assert Ingested(tmp_path / "store", **settings).work.reused

    listed(a="one", b="turn of", c="nonsense", d="is new", e="two")  # the corpus grows, and somebody changed d
    second = Ingested(tmp_path / "store", **settings)
    assert {one.id: one.text for one in second.utterances.values()} == {
        "a": "one", "b": "turn off", "d": "is new", "e": "two",
    }  # fmt: skip
    assert "corrections.jsonl of texts that have changed since, not applied: d" in (printed := capsys.readouterr().out)
    assert "of no utterance" not in printed
    moved = file.rename(tmp_path / "moved.jsonl")
    assert Ingested(tmp_path / "store", **{**settings, "corrections": str(moved)}).work.reused


def test_corrections_name_utterances_of_several_corpora(listed: Callable[..., Path], tmp_path: Path) -> None:
    from voxline.components.ingest.settings import CorporaSettings
    from voxline.components.ingest.step import run
    from voxline.data.manifest import read_manifest

    write_corrections(tmp_path / "corrections", [Correction("ours-a", "won", "one")])
    chosen = {"format": "manifest", "corrections": str(tmp_path / "corrections"), "max_reject_share": 0.9}
    one = {"uri": str(listed(a="won", b="two"))}
    work = run(tmp_path / "store", CorporaSettings.of({**chosen, "corpora": {"ours": one}}, "corpus"))
    assert [one.text for one in read_manifest(work.path("manifest"))] == ["one", "two"]


def test_a_corpus_that_is_left_out_whole_is_refused(listed: Callable[..., Path], tmp_path: Path) -> None:
    write_corrections(tmp_path / "corrections", [Correction("a", "one", None)])
    with pytest.raises(WorkError, match="1 of 1 utterances were rejected, so none is left"):
        Ingested(
            tmp_path / "store", format="manifest", corrections=str(tmp_path / "corrections"), uri=str(listed(a="one"))
        )


@pytest.mark.parametrize(
    "line",
    ['{"id": "a"}', "[]", "x", '{"id": "a", "was": "b"}', '{"id": "a", "was": "b", "text": "c", "leave_out": true}'],
)
def test_a_line_that_is_no_correction_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "corrections.jsonl"
    file.write_text('{"id": "z", "was": "b", "text": "c"}\n' + line + "\n")
    with pytest.raises(WorkError, match=r"corrections\.jsonl:2: not a correction"):
        read_corrections(file)
    with pytest.raises(WorkError, match=r"no such file; correct corpus\.corrections"):
        read_corrections(tmp_path / "absent")


def test_label_studio_brings_back_what_a_person_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["turn of the light", "今天很好", "three", "four"]
    tasks = label_studio_tasks(
        DoubtfulText(f"u{number}", f"/data/{number}.wav", text, "heard", 9.0) for number, text in enumerate(texts)
    )
    for name in ("audio", "text", "doubt", "hypothesis"):
        assert f"${name}" in LABEL_CONFIG
        assert name in tasks[0]["data"]
    # As Label Studio 1.x exports a project as JSON: the tasks with annotations, each a list of regions.
    answers = [["turn off  the light"], None, ["three"], ["four"]]
    exported = [{**task, "id": number, "annotations": []} for number, task in enumerate(tasks)]
    for task, answer in zip(exported, answers, strict=True):
        if answer:
            region = {**task["predictions"][0]["result"][0], "value": {"text": answer}, "origin": "manual"}
            task["annotations"] = [{"was_cancelled": False, "result": [region]}]
    leave_out = {"from_name": "verdict", "to_name": "audio", "type": "choices", "value": {"choices": ["leave out"]}}
    exported[3]["annotations"][0]["result"].append(leave_out)
    (tmp_path / "labeled.json").write_text(json.dumps(exported), "utf-8")
    assert read_label_studio(tmp_path / "labeled.json") == [
        Correction("u0", "turn of the light", "turn off the light"),
        Correction("u3", "four", None),
    ]
    write_corrections(
        tmp_path / "corrections", [Correction("u0", "turnof", "turn of the light"), Correction("x", "1", "2")]
    )
    with pytest.raises(SystemExit) as ended:
        main(["transcripts", "correct", str(tmp_path / "labeled.json"), "-o", str(tmp_path / "corrections")])
    assert ended.value.code == 0
    assert "3 corrections, 2 of them" in capsys.readouterr().out
    assert read_corrections(tmp_path / "corrections")["u0"] == Correction("u0", "turnof", "turn off the light")
    (tmp_path / "labeled.json").write_text('[{"data": {}}]')
    with pytest.raises(WorkError, match="not an export of Label Studio"):
        read_label_studio(tmp_path / "labeled.json")
