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

async function listModels() {
  const answer = await call("/v1/models");
  element("locked").hidden = answer.status != 401;
  if (!answer.ok) { say(await fault(answer)); return; }
  const models = (await answer.json()).data;
  say("");
  if (!models.length) say("no model is served yet; reload this page when one is");
  for (const model of models) {
    const [section, list] = model.family == "tts" ? ["speak", "voice"] : ["listen", "model"];
    element(list).add(new Option(`${model.id} (version ${model.version})`, model.id));
    element(section).hidden = false;
  }
}

async function transcribe(recording, name) {
  say("transcribing …");
  const form = new FormData();
  form.append("model", element("model").value);
  form.append("file", recording, name);
  const answer = await call("/v1/audio/transcriptions", { method: "POST", body: form });
  if (!answer.ok) { say(await fault(answer)); return; }
  element("text").value = (await answer.json()).text;
  say(`version ${answer.headers.get("x-voxline-version")}`);
}

async function synthesize() {
  say("speaking …");
  const wanted = { model: element("voice").value, input: element("words").value, response_format: "wav" };
  const answer = await call("/v1/audio/speech", { method: "POST", body: JSON.stringify(wanted) });
  if (!answer.ok) { say(await fault(answer)); return; }
  const speech = element("speech");
  URL.revokeObjectURL(speech.src);
  speech.src = URL.createObjectURL(await answer.blob());
  speech.hidden = false;
  say(`version ${answer.headers.get("x-voxline-version")}`);
  await speech.play();
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
  element("record").textContent = "Stop";
  element("record").setAttribute("aria-pressed", "true");
  say("recording");
}

element("record").addEventListener("click", () => toggle().catch((error) => say(`no microphone: ${error.message}`)));
element("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  if (file) transcribe(file, file.name).catch((error) => say(String(error)));
});
element("unlock").addEventListener("click", () => listModels().catch((error) => say(String(error))));
element("say").addEventListener("click", () => synthesize().catch((error) => say(String(error))));
listModels().catch((error) => say(String(error)));
