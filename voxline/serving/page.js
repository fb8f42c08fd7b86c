"use strict";
const element = (id) => document.getElementById(id);
const say = (text) => { element("status").textContent = text; };

async function listModels() {
  const answer = await fetch("/v1/models");
  for (const model of (await answer.json()).data) {
    element("model").add(new Option(`${model.id} (version ${model.version})`, model.id));
  }
}

async function transcribe(recording, name) {
  say("transcribing …");
  const form = new FormData();
  form.append("model", element("model").value);
  form.append("file", recording, name);
  const answer = await fetch("/v1/audio/transcriptions", { method: "POST", body: form });
  const body = await answer.json();
  if (!answer.ok) { say(body.error.message); return; }
  element("text").value = body.text;
  say(`version ${answer.headers.get("x-voxline-version")}`);
}

let recorder = null;

async function toggle() {
  if (recorder) { recorder.stop(); return; }
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
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
listModels().catch((error) => say(String(error)));
