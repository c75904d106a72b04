// npm `openai` as a user writes it: node openai.mjs PORT KEY in writing, with QUESTION.wav INTERRUPTION.wav behind it by voice. Prints one JSON line per scenario.
// The SDK builds wss: addresses only; a plain socket comes from `createConnection`, as its `ws` options allow.
import { readFile } from "node:fs/promises";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const [port, key, question, interruption] = process.argv.slice(2);
const TOOL = {
  type: "function",
  name: "get_weather",
  description: "Weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

class Talk {
  constructor() {
    const client = new OpenAI({ apiKey: key, baseURL: `https://127.0.0.1:${port}/v1` });
    const options = { createConnection: () => net.connect(Number(port), "127.0.0.1") };
    this.realtime = new OpenAIRealtimeWS({ model: "gpt-realtime", options }, client);
    this.events = [];
    this.faults = [];
    this.text = "";
    this.audioBytes = 0;
    this.waiting = null;
    this.realtime.on("error", (error) => this.faults.push(String(error)));
    this.realtime.on("event", (event) => {
      this.events.push(event);
      if (event.type === "response.output_text.delta" || event.type === "response.output_audio_transcript.delta") this.text += event.delta;
      if (event.type === "response.output_audio.delta") this.audioBytes += Buffer.from(event.delta, "base64").length;
      this.waiting?.();
    });
  }

  async until(type, n = 1) {
    for (;;) {
      const found = this.events.filter((event) => event.type === type);
      if (found.length >= n) return found[n - 1];
      await new Promise((resolve) => (this.waiting = resolve));
    }
  }

  /** Append a recording in pieces of 100 ms, four times as fast as it was spoken. */
  async speak(wav) {
    const pcm = (await readFile(wav)).subarray(44);
    for (let at = 0; at < pcm.length; at += 4800) {
      this.realtime.send({ type: "input_audio_buffer.append", audio: pcm.subarray(at, at + 4800).toString("base64") });
      await sleep(25);
    }
  }

  ask(text, response) {
    this.realtime.send({
      type: "conversation.item.create",
      item: { type: "message", role: "user", content: [{ type: "input_text", text }] },
    });
    this.realtime.send({ type: "response.create", ...(response && { response }) });
  }
}

const SCENARIOS = {
  async text(talk) {
    talk.realtime.send({ type: "session.update", session: { type: "realtime", output_modalities: ["text"] } });
    talk.ask("Hello");
    return talk.until("response.done");
  },
  async audio(talk) {
    talk.ask("Hello");
    return talk.until("response.done");
  },
  async tool(talk) {
    talk.realtime.send({ type: "session.update", session: { type: "realtime", tools: [TOOL] } });
    talk.ask("How is the weather?");
    const done = await talk.until("response.done");
    const call = done.response.output.find((item) => item.type === "function_call");
    talk.realtime.send({
      type: "conversation.item.create",
      item: { type: "function_call_output", call_id: call.call_id, output: "sunny" },
    });
    talk.realtime.send({ type: "response.create" });
    return talk.until("response.done", 2);
  },
  async cancel(talk) {
    talk.ask("Talk at length.");
    await talk.until("response.output_audio.delta", 3);
    talk.realtime.send({ type: "response.cancel" });
    const done = await talk.until("response.done");
    talk.realtime.send({ type: "conversation.item.truncate", item_id: done.response.output[0].id, content_index: 0, audio_end_ms: 100 });
    await talk.until("conversation.item.truncated");
    return done;
  },
  async spoken(talk) {
    const turn_detection = { type: "server_vad", silence_duration_ms: 300 };
    const input = { turn_detection, transcription: { model: "whisper-1" } };
    talk.realtime.send({ type: "session.update", session: { type: "realtime", audio: { input } } });
    await talk.until("session.updated");
    await talk.speak(question);
    await talk.until("conversation.item.input_audio_transcription.completed");
    await talk.until("response.output_audio.delta", 8);
    await talk.speak(interruption);
    const stopped = await talk.until("response.done");
    const item_id = stopped.response.output[0].id;
    talk.text = "";
    talk.realtime.send({ type: "conversation.item.truncate", item_id, content_index: 0, audio_end_ms: 400 });
    await talk.until("conversation.item.truncated");
    return talk.until("response.done", 2);
  },
  async out_of_band(talk) {
    talk.ask("Talk at length.");
    await talk.until("response.output_audio.delta");
    const input = [{ type: "message", role: "user", content: [{ type: "input_text", text: "Classify this." }] }];
    const response = { conversation: "none", output_modalities: ["text"], metadata: { topic: "kind" }, input };
    talk.realtime.send({ type: "response.create", response });
    const done = await talk.until("response.done");
    if (done.response.metadata?.topic !== "kind") throw new Error("metadata was not echoed");
    talk.realtime.send({ type: "response.cancel" });
    await talk.until("response.done", 2);
    return done;
  },
};

for (const [scenario, play] of Object.entries(SCENARIOS)) {
  if ((scenario === "spoken") !== Boolean(question)) continue;
  const talk = new Talk();
  await new Promise((resolve, reject) => {
    talk.realtime.socket.on("open", resolve);
    talk.realtime.socket.on("error", reject);
  });
  const done = await play(talk);
  talk.realtime.close();
  const outcome = { scenario, text: talk.text, n_audio_bytes: talk.audioBytes, faults: talk.faults, status: done.response.status };
  console.log(JSON.stringify({ ...outcome, events: talk.events }));
}
