"use strict";
const element = (id) => document.getElementById(id);
const say = (text) => { element("status").textContent = text; };

// A proxy or a server that ends may answer with a page that is not JSON.
async function fault(answer) {
  const body = await answer.json().catch(() => null);
  return body?.error?.message ?? `the server answered ${answer.status} ${answer.statusText}`;
}

// A server with keys wants one with each request. The page forgets it when it is closed.
function call(path, options = {}) {
  const key = element("key").value;
  return fetch(path, key ? { ...options, headers: { authorization: `Bearer ${key}` } } : options);
}

const LEAST_CONFIDENCE = 0.5; // a word below it is underlined
const models = {};

async function listModels() {
  const answer = await call("/v1/models");
  element("locked").hidden = answer.status != 401;
  if (!answer.ok) { say(await fault(answer)); return; }
  const served = (await answer.json()).data;
  say("");
  if (!served.length) say("no model is served yet; reload this page when one is");
  element("served").textContent = served.length ? `serves ${served.length == 1 ? "one model" : `${served.length} models`}` : "";
  for (const model of served) {
    models[model.id] = model;
    const [section, list] = model.family == "tts" ? ["speak", "voice"] : ["listen", "model"];
    element(list).add(new Option(`${model.id} (version ${model.version})`, model.id));
    element(section).hidden = false;
  }
  listSpeakers();
}

function listSpeakers() {
  const speakers = models[element("voice").value]?.speakers ?? [];
  element("speaker").replaceChildren(...speakers.map((name) => new Option(name)));
  element("speakers").hidden = !speakers.length;
}

function show(audio, recording) {
  URL.revokeObjectURL(audio.src);
  audio.src = URL.createObjectURL(recording);
  audio.hidden = false;
}

// The text as it is, with the words underlined of which the model is not sure.
function showText({ text, words = [] }) {
  const parts = [];
  let place = 0;
  for (const { word, start, end, confidence } of words) {
    const begin = text.indexOf(word, place);
    if (begin < 0) continue;
    const shown = document.createElement(confidence < LEAST_CONFIDENCE ? "mark" : "span");
    shown.textContent = word;
    shown.title = `${start.toFixed(2)} to ${end.toFixed(2)} s, ${Math.round(100 * confidence)}%`;
    parts.push(text.slice(place, begin), shown);
    place = begin + word.length;
  }
  element("text").replaceChildren(...parts, text.slice(place));
}

async function transcribe(recording, name) {
  say("transcribing …");
  const form = new FormData();
  form.append("model", element("model").value);
  form.append("file", recording, name);
  form.append("response_format", "verbose_json");
  form.append("timestamp_granularities[]", "word");
  show(element("recorded"), recording);
  const began = performance.now();
  const answer = await call("/v1/audio/transcriptions", { method: "POST", body: form });
  if (!answer.ok) { say(await fault(answer)); return; }
  const heard = await answer.json();
  showText(heard);
  const sure = heard.confidence == null ? "" : `, confidence ${Math.round(100 * heard.confidence)}%`;
  element("heard").textContent = `${heard.duration.toFixed(1)} s, heard in ${seconds(began)} s${sure}`;
  say(`version ${answer.headers.get("x-voxline-version")}`);
}

async function synthesize() {
  say("speaking …");
  const wanted = { model: element("voice").value, input: element("words").value, response_format: "wav" };
  if (element("speaker").value) wanted.voice = element("speaker").value;
  const began = performance.now();
  const answer = await call("/v1/audio/speech", { method: "POST", body: JSON.stringify(wanted) });
  if (!answer.ok) { say(await fault(answer)); return; }
  const speech = element("speech");
  show(speech, await answer.blob());
  element("spoken").textContent = `spoken in ${seconds(began)} s`;
  say(`version ${answer.headers.get("x-voxline-version")}`);
  await speech.play();
}

const seconds = (began) => ((performance.now() - began) / 1000).toFixed(1);

// The level of the microphone, while it is open: who is not heard sees it at once.
function showLevel(stream) {
  const meter = element("level"), context = new AudioContext(), analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const look = () => {
    if (!recorder) { meter.hidden = true; context.close(); return; }
    analyser.getFloatTimeDomainData(samples);
    const power = samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
    meter.value = 1 + Math.max(-60, 10 * Math.log10(power + 1e-9)) / 60;
    requestAnimationFrame(look);
  };
  meter.hidden = false;
  look();
}

let recorder = null;
let waits = false; // for the browser's permission

async function toggle() {
  if (recorder) { recorder.stop(); return; }
  if (waits) return;
  if (!navigator.mediaDevices) throw new Error("browsers record on pages from https or localhost alone");
  // As it is: what a browser does for phone calls distorts what a recognizer was trained on.
  const audio = { autoGainControl: false, echoCancellation: false, noiseSuppression: false };
  waits = true;
  const stream = await navigator.mediaDevices.getUserMedia({ audio }).finally(() => { waits = false; });
  const parts = [];
  recorder = new MediaRecorder(stream);
  recorder.ondataavailable = (event) => parts.push(event.data);
  recorder.onstop = () => {
    stream.getTracks().forEach((track) => track.stop());
    const kind = recorder.mimeType;
    recorder = null;
    element("record").textContent = "Record";
    element("record").setAttribute("aria-pressed", "false");
    transcribe(new Blob(parts, { type: kind }), kind.includes("ogg") ? "speech.ogg" : "speech.webm").catch((error) => say(String(error)));
  };
  recorder.start();
  showLevel(stream);
  element("record").textContent = "Stop";
  element("record").setAttribute("aria-pressed", "true");
  say("recording");
}

element("record").addEventListener("click", () => toggle().catch((error) => say(`no microphone: ${error.message}`)));
element("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  if (file) transcribe(file, file.name).catch((error) => say(String(error)));
});
const card = element("listen");
for (const kind of ["dragover", "dragleave", "drop"]) {
  card.addEventListener(kind, (event) => {
    event.preventDefault();
    card.classList.toggle("drop", kind == "dragover");
    const file = kind == "drop" && event.dataTransfer.files[0];
    if (file) transcribe(file, file.name).catch((error) => say(String(error)));
  });
}
element("voice").addEventListener("change", listSpeakers);
element("unlock").addEventListener("click", () => listModels().catch((error) => say(String(error))));
element("say").addEventListener("click", () => synthesize().catch((error) => say(String(error))));
listModels().catch((error) => say(String(error)));
