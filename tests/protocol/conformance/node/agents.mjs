// npm `@openai/agents-realtime` as a user writes it: node agents.mjs URL KEY in writing, with QUESTION.wav INTERRUPTION.wav behind it by voice. Prints one JSON line per scenario.
// The SDK demotes events that do not fit its schemas in silence; `demoted` lists their types, by the SDK's own reader.
import { RealtimeAgent, RealtimeSession, OpenAIRealtimeWebSocket, tool } from "@openai/agents-realtime";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

const { parseRealtimeEvent } = await import(
  new URL("./node_modules/@openai/agents-realtime/dist/openaiRealtimeEvents.mjs", import.meta.url)
);
const [url, key, question, interruption] = process.argv.slice(2);
// A page has no key: its server asks for a client secret, and the SDK connects with that.
const asked = await fetch(url.replace(/^ws/, "http").replace(/\?.*/, "/client_secrets"), { method: "POST", headers: { authorization: `Bearer ${key}` } });
const { value: secret } = await asked.json();
const calls = [];
const getWeather = tool({
  name: "get_weather",
  description: "Weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    calls.push(city);
    return "sunny";
  },
});

async function talk(scenario, message, { modalities = ["audio"], turns = 1, interrupt = false } = {}) {
  const agent = new RealtimeAgent({ name: "Assistant", instructions: "Be kind.", tools: [getWeather] });
  const transport = new OpenAIRealtimeWebSocket({ url });
  const session = new RealtimeSession(agent, {
    transport,
    model: "gpt-realtime",
    tracingDisabled: true,
    config: { outputModalities: modalities },
  });
  const faults = [];
  const raw = [];
  let audioBytes = 0;
  let done = 0;
  let text = "";
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  session.on("error", (error) => faults.push(JSON.stringify(error.error ?? error)));
  session.on("audio", (event) => {
    audioBytes += event.data.byteLength;
    if (interrupt && audioBytes > 20_000) {
      interrupt = false;
      session.interrupt();
    }
  });
  session.on("transport_event", (event) => {
    raw.push(event);
    if (event.type === "response.done" && ++done === turns) setTimeout(finish, 100);
  });
  await session.connect({ apiKey: secret });
  session.sendMessage(message);
  const late = setTimeout(finish, 20_000);
  await finished;
  clearTimeout(late);
  for (const item of session.history) {
    if (item.type === "message" && item.role === "assistant") {
      for (const part of item.content) text += part.transcript ?? part.text ?? "";
    }
  }
  session.close();
  const demoted = raw.filter((event) => parseRealtimeEvent({ data: JSON.stringify(event) }).isGeneric).map((event) => event.type);
  console.log(JSON.stringify({ scenario, text, n_audio_bytes: audioBytes, faults, calls, events: raw, demoted: [...new Set(demoted)], n_done: done }));
}

/** A recording in pieces of 100 ms, four times as fast as it was spoken. */
async function speak(session, wav) {
  const pcm = (await readFile(wav)).subarray(44);
  for (let at = 0; at < pcm.length; at += 4800) {
    session.sendAudio(new Uint8Array(pcm.subarray(at, at + 4800)).buffer);
    await sleep(25);
  }
}

/** A question by voice, its answer talked over, and the answer to that. */
async function spoken() {
  const agent = new RealtimeAgent({ name: "Assistant", instructions: "Be kind." });
  const input = { turnDetection: { type: "server_vad", silenceDurationMs: 300 }, transcription: { model: "whisper-1" } };
  const session = new RealtimeSession(agent, {
    transport: new OpenAIRealtimeWebSocket({ url }),
    model: "gpt-realtime",
    tracingDisabled: true,
    config: { audio: { input } },
  });
  const faults = [];
  const raw = [];
  const seen = new Set();
  let audioBytes = 0;
  let hasInterrupted = false;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  session.on("error", (error) => faults.push(JSON.stringify(error.error ?? error)));
  session.on("audio_interrupted", () => seen.add("audio_interrupted"));
  session.on("audio", (event) => {
    audioBytes += event.data.byteLength;
    if (!hasInterrupted && audioBytes > 30_000) {
      hasInterrupted = true;
      speak(session, interruption);
    }
  });
  session.on("transport_event", (event) => {
    raw.push(event);
    if (event.type === "response.done" && raw.filter((one) => one.type === "response.done").length === 2) setTimeout(finish, 100);
  });
  await session.connect({ apiKey: secret });
  await speak(session, question);
  const late = setTimeout(finish, 20_000);
  await finished;
  clearTimeout(late);
  const words = (role) => session.history.filter((item) => item.role === role).map((item) => item.content[0].transcript);
  session.close();
  const demoted = raw.filter((event) => parseRealtimeEvent({ data: JSON.stringify(event) }).isGeneric).map((event) => event.type);
  const outcome = { scenario: "spoken", text: words("assistant").at(-1), heard: words("user"), n_audio_bytes: audioBytes, faults };
  console.log(JSON.stringify({ ...outcome, seen: [...seen], events: raw, demoted: [...new Set(demoted)] }));
}

if (question) {
  await spoken();
} else {
  await talk("text", "Hello", { modalities: ["text"] });
  await talk("audio", "Hello");
  await talk("tool", "How is the weather?", { turns: 2 });
  await talk("cancel", "Talk at length.", { interrupt: true });
}
process.stdout.write("", () => process.exit(0)); // when all of the report is out
