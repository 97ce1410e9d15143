// Runs scenarios outside the page's own thread.

import { load } from "./engine.mjs";

const bytes = fetch(new URL("skybraid.wasm", import.meta.url)).then((answer) => {
  if (!answer.ok) throw new Error(`skybraid.wasm: found ${answer.status}`);
  return answer.arrayBuffer();
});
let engine;
let reported = 0;

function progress(seconds) {
  const now = performance.now();
  if (now - reported < 100) return;
  reported = now;
  postMessage({ kind: "progress", seconds });
}

async function fly(request) {
  engine ??= await load(await bytes, progress);
  const begun = performance.now();
  const answer = engine.fly(request);
  return { kind: "answer", answer, wall_s: (performance.now() - begun) / 1000 };
}

onmessage = async ({ data }) => {
  try {
    if (data.kind === "fly") postMessage(await fly(data.request));
    else postMessage({ kind: "table", parts: [...engine.messages()] });
  } catch (error) {
    engine = undefined; // a module that has stopped in the middle cannot be used again
    postMessage({ kind: "answer", answer: { error: `the simulator stopped: ${error.message}` }, wall_s: 0 });
  }
};
