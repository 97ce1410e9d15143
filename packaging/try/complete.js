// Keys and values that the schema of scenarios knows at the cursor of a TOML text.

/** All alternatives of a part of the schema. */
function alternatives(schema, part) {
  if (!part) return [];
  if (part.$ref) return alternatives(schema, schema.$defs[part.$ref.split("/").at(-1)]);
  return part.anyOf ? part.anyOf.flatMap((one) => alternatives(schema, one)) : [part];
}

/** What a key holds; entries of an array are reached with no key of their own. */
function below(schema, parts, key) {
  const tables = parts.flatMap((part) => (part.type === "array" ? alternatives(schema, part.items) : [part]));
  const named = tables.filter((table) => table.properties?.[key]).map((table) => table.properties[key]);
  const others = tables.map((table) => table.additionalProperties).filter((part) => typeof part === "object");
  return (named.length ? named : others).flatMap((part) => alternatives(schema, part));
}

/** Where the cursor is: the keys that lead there, what has been typed, and whether that is a value. */
function place(before) {
  const lines = before.split("\n");
  const line = lines.pop();
  const header = lines.findLast((one) => /^\s*\[/.test(one))?.match(/^\s*\[+([^\]]*)/)?.[1];
  if (/^\s*\[/.test(line) || /#/.test(line.replace(/"[^"]*"/g, ""))) return undefined;
  const keys = header ? header.split(".").map((key) => key.trim()) : [];
  const stack = [];
  let word = "";
  let pending = [];
  for (const token of line.match(/"[^"]*"?|[{}[\],=]|[^\s"{}[\],=]+|\s+/g) ?? []) {
    if (/^\s/.test(token)) continue;
    if (token === "=") [pending, word] = [word.split("."), ""];
    else if (token === "{" || token === "[") { stack.push(pending); [pending, word] = [[], ""]; }
    else if (token === "}" || token === "]") { stack.pop(); [pending, word] = [[], ""]; }
    else if (token === ",") [pending, word] = [[], ""];
    else word = token;
  }
  if (/\s$/.test(line) && word) return undefined;
  const path = [...keys, ...stack.flat(), ...pending].filter(Boolean);
  if (pending.length) return { path, word, value: true };
  const dotted = word.split(".");
  return { path: [...path, ...dotted.slice(0, -1)], word: dotted.at(-1), value: false };
}

/** Suggestions at the end of `before`: `{ word, options }`, each option a text and what it means. */
export function complete(schema, before) {
  const found = place(before);
  if (!found) return { word: "", options: [] };
  let parts = alternatives(schema, schema);
  for (const key of found.path) parts = below(schema, parts, key);
  const options = new Map();
  for (const part of parts) {
    if (found.value) {
      for (const value of part.enum ?? []) options.set(JSON.stringify(value), part.description ?? "");
      if (part.const !== undefined) options.set(JSON.stringify(part.const), "");
    } else {
      for (const [key, value] of Object.entries(part.properties ?? {})) options.set(key, value.description ?? "");
    }
  }
  const typed = found.word.toLowerCase();
  const matches = [...options].filter(([text]) => text.toLowerCase().startsWith(typed) && text !== found.word);
  return { word: found.word, options: matches.slice(0, 12) };
}
