// The simulator's module and its plain interface (crates/web/README.md), for the page's worker and for tests.

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Loads the module from its bytes; `progress` gets the seconds that have been simulated. */
export async function load(bytes, progress = () => {}) {
  const { instance } = await WebAssembly.instantiate(bytes, { page: { progress } });
  const { memory, input, fly, messages, length } = instance.exports;
  const text = (place) => decoder.decode(new Uint8Array(memory.buffer, place, length()));
  return {
    /** Runs `{ scenario, seed, files }`; the answer has the key `error` where the scenario is wrong. */
    fly(request) {
      const bytes = encoder.encode(JSON.stringify(request));
      const place = input(bytes.length);
      new Uint8Array(memory.buffer, place, bytes.length).set(bytes);
      return JSON.parse(text(fly()));
    },
    /** Takes the table of messages out of the last run, as pieces of CSV. */
    *messages() {
      for (let rows = text(messages()); rows; rows = text(messages())) yield rows;
    },
  };
}
