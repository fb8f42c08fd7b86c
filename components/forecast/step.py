"""forecast: whether a training on a dataset is worth it, predicted from the history of runs.

A run whose model would probably be refused ends here, with status 0 and the verdict `skipped`. After so many of them a
run trains all the same: the history would learn nothing else, and nobody would find out that a forecast is wrong.
"""

import itertools
import json
import math
import os
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxline.components.forecast.settings import ForecastSettings
from voxline.data.dataset import Dataset
from voxline.errors import WorkError
from voxline.notify.history import FOLDER, read_runs
from voxline.progress import print_status
from voxline.registry.journal import CANDIDATE
from voxline.registry.registry import Registry
from voxline.store.files import write_json
from voxline.store.finished import check_input
from voxline.store.hashing import hash_value
from voxline.store.objects import open_store
from voxline.store.step_cache import FORCE_ENV, StepOutput, cached_step

if TYPE_CHECKING:
    from voxline.forecast.promotion import PromotionForecast
    from voxline.notify.history import Run
    from voxline.report import Page

EXPECTATION = "forecast.json"
"""The prediction, what it follows from, and whether the run trains."""
REPORT = "report.html"
VALIDATION = "validation.json"


def run(
    dataset: Path | str,
    validation: Path | str,
    store: Path | str,
    settings: ForecastSettings,
    *,
    registry: Path | str,
    model_name: str,
) -> StepOutput:
    """Predicts whether a model of this dataset will be promoted.

    The output is never reused: it depends on the history at the time.

    Args:
      dataset: extract's folder; its shards are not read.
      validation: validate's folder.
      registry: folder or bucket URI of the registry, in which the history of runs is.
      model_name: in the registry.

    Returns:
      Outputs: `forecast` and `report`. The count `skipped` is 1 if nothing is to be trained.
    """
    from voxline.forecast.run_forecast import describe_prediction, predict_promotion_of_run, skipped_in_a_row

    # What is known before a training: hours of audio and drift of this dataset, and the outcomes of earlier runs.
    content = Dataset.read(dataset, shards=False)
    check_input(content.folder)
    hours = content.seconds.get("train", 0.0) / 3600
    drift = _read_drift(validation)
    location = settings.history or (open_store(registry) / FOLDER).uri
    try:
        runs = read_runs(location, model=model_name)
    except WorkError:  # none was recorded yet
        runs = []

    prediction = predict_promotion_of_run(runs, hours, drift)
    skipped = skipped_in_a_row(runs)

    # The first reason to train wins. The last ones do not trust the history: one that misleads, or cannot be written,
    # must not skip every run to come.
    why = _reason_to_train(prediction, skipped, settings)
    if not why and "train" in os.environ.get(FORCE_ENV, "").split(","):
        why = "--force train"
    why = why or _reason_of_registry(Registry(registry, model_name))
    if not why and _is_overdue(runs, settings.max_skipped, datetime.now(UTC)):
        why = "the history has nothing of the time in which forecast.max_skipped runs would have been skipped"

    heading = _headline(prediction, why, settings)
    text = describe_prediction(prediction) if prediction else ""
    print_status(f"forecast: {heading}" + (f" ({text})" if text else ""))

    # forecast.json, whose heading is in the event of the run. None: there was nothing to predict from.
    values: dict[str, Any] = {
        "heading": heading,
        "probability": prediction.probability if prediction else None,
        "train": bool(why),
        "skip_below": settings.skip_below,
        "hours": round(hours, 4),
        "drift": drift,
        "skipped_before": skipped,
        "judged": prediction.runs if prediction else None,
        "promoted": prediction.promoted if prediction else None,
        "brier": prediction.brier if prediction else None,
        "share_brier": prediction.share_brier if prediction else None,
    }

    # The values are in the key, so that a forecast by another history gets a folder of its own, and none is
    # overwritten.
    key = {"dataset": content.key, "forecast": hash_value(values)}
    with cached_step(store, "forecast", settings, key, force=True) as output:
        write_json(output.folder / EXPECTATION, values)
        _page(values, heading, text).write(output.folder / REPORT)
        output.outputs = {"forecast": EXPECTATION, "report": REPORT}
        output.counts = {"skipped": int(not why), "judged": prediction.runs if prediction else 0}
        output.metrics = {"promotion_probability": prediction.probability} if prediction else {}
    return output


def _reason_to_train(prediction: "PromotionForecast | None", skipped: int, settings: ForecastSettings) -> str:
    """Explains why the run trains, in words; empty if it does not."""
    from voxline.forecast.promotion import MINIMUM
    from voxline.report.page import plural

    if prediction is None:
        return f"fewer than {MINIMUM} runs were judged against a model in service"
    if prediction.probability >= settings.skip_below:
        return f"at least {settings.skip_below:.0%}, as forecast.skip_below has it"
    if skipped >= settings.max_skipped:
        return f"{plural(skipped, 'run')} in a row were skipped, as many as forecast.max_skipped allows"
    return ""


def _reason_of_registry(registry: Registry) -> str:
    """Explains why the run trains whatever the history of runs predicts; empty if it need not."""
    if registry.in_service() is None:
        return "no model is in service"

    # Candidates are left out: that a model was put up for a look changes nothing about the one in service.
    last = next((event for event in reversed(registry.journal()) if event.alias != CANDIDATE), None)
    return f"version {last.replaces} was rolled back" if last and last.action == "rollback" else ""


def _is_overdue(runs: "list[Run]", most: int, at: datetime) -> bool:
    """Returns whether more runs than may be skipped are missing from the history, by the usual time between two.

    Skipped runs are counted there. One that cannot be written would otherwise skip every run to come.
    """

    # In the order of the history, which is that of the runs' ends.
    ended = [datetime.fromisoformat(run["run"]["ended"]) for run in runs]
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(ended)]

    # Half a gap more, so that one run that ends late does not count as one that is missing.
    return bool(gaps) and (at - ended[-1]).total_seconds() > (most + 0.5) * statistics.median(gaps)


def _headline(prediction: "PromotionForecast | None", why: str, settings: ForecastSettings) -> str:
    if prediction is None:
        return f"No forecast, so it trains: {why}"
    expected = f"a promotion has a probability of {prediction.probability:.0%}"
    if why:
        return f"It trains: {expected}; {why}"
    return f"Nothing was trained: {expected}, less than {settings.skip_below:.0%} (forecast.skip_below)"


def _read_drift(validation: Path | str) -> int:
    """The features that drifted; 0 if validate did not compare them."""
    checks = json.loads(open_store(validation).read(VALIDATION))["checks"]

    # The value is not finite where validate had nothing to compare with.
    drift = next((check["value"] for check in checks if check["name"] == "drift"), None)
    return int(drift) if drift is not None and math.isfinite(drift) else 0


def _page(values: dict[str, Any], heading: str, text: str) -> "Page":
    from voxline.metrics.evaluation import RUN_DETAILS_SLOT, RUN_SLOT
    from voxline.report import Page, data_table, slot, small_print, verdict_banner

    page = Page("Is this training worth it?", lead="By the history of the model's runs, before anything is trained.")

    # The slots are filled once the run has ended, when its outcome is known.
    banner = verdict_banner(heading, f"{text}." if text else "", "plain" if values["train"] else "caution")
    page.add_opening(slot(RUN_SLOT), banner, slot(RUN_DETAILS_SLOT))

    rows = [
        ("audio to train on", f"{values['hours']:,.4g} h"),
        ("features that drifted", values["drift"]),
        ("runs skipped before it, in a row", values["skipped_before"]),
    ]
    page.add_section("What is known of it", data_table(["", ""], rows, label="What is known of the run"))
    page.add_section(
        "How this was predicted",
        small_print(
            "From the runs before: how much the data have grown, how far the model in service was better than the "
            "latest ones, how many were refused since it was promoted, and drift. The probability is calibrated: of "
            "the runs that get 10%, one in ten is promoted. Brier score: the mean squared error of the probabilities."
        ),
    )
    return page
