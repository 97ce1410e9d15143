// Numbers and requirements in words, as the report has them.

const digits = (value) => String(Number(value.toPrecision(3)));

export const count = (value) => value.toLocaleString("en").replaceAll(",", " ");

export function ms(value) {
  if (value === null) return "–";
  return value >= 10000 ? `${digits(value / 1000)} s` : `${value >= 999.5 ? value.toFixed(0) : digits(value)} ms`;
}

export function rate(value) {
  for (const [size, unit] of [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]]) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${digits(value)} bit/s`;
}

/** A share with the digits that its distance from 0 % or 100 % needs. */
export function percent(share) {
  const edge = Math.min(share, 1 - share) * 100;
  const decimals = edge < 1e-12 ? 0 : Math.min(Math.max(2 - Math.floor(Math.log10(edge)), 1), 10);
  const text = (share * 100).toFixed(decimals);
  return `${text.includes(".") ? text.replace(/\.?0+$/, "") : text} %`;
}

/** What a requirement asks for and what the run shows of it, in one sentence. */
export function sentence({ metric, deadline_ms, target, estimate, low, high, trials }) {
  const within = deadline_ms === null ? "" : ` within ${ms(deadline_ms)}`;
  const share = { share: ["messages", "arrived"], frames: ["frames", "were shown undamaged"] }[metric];
  if (share) {
    if (estimate === null) return `no ${share[0]} were due${within}; required ${percent(target)}`;
    return `${percent(estimate)} of ${count(trials)} ${share[0]} ${share[1]}${within} `
      + `(95 % interval ${percent(low).slice(0, -2)}–${percent(high)}, required ${percent(target)})`;
  }
  if (metric === "percentile" || metric === "expiration") {
    if (estimate === null) return `nothing arrived; ${percent(target)} must take at most ${ms(deadline_ms)}`;
    return `${percent(target)} of what arrived took at most ${ms(estimate)} (required at most ${ms(deadline_ms)})`;
  }
  const shown = {
    goodput: rate,
    frame_rate: (value) => `${digits(value)} frames/s`,
    worst_frame_rate: (value) => `${digits(value)} frames/s in the worst second`,
    freezes: (value) => `${digits(value)} freezes/min`,
  }[metric];
  if (!shown) return `${metric} of ${percent(target)} is required: only the installed program measures it`;
  if (estimate === null) return `nothing was shown; required ${shown(target)}`;
  return `${shown(estimate)} (${metric === "freezes" ? "at most" : "required"} ${shown(target)})`;
}
