// Small charts over the time of a run, as SVG that fits its place.

const SPACE = { left: 52, right: 10, top: 8, bottom: 24 };
const HEIGHT = 170;
const NAMESPACE = "http://www.w3.org/2000/svg";

function element(name, attributes, text) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Round numbers from `low` to `high`: of a linear axis about four, of a logarithmic one the powers of ten. */
function ticks(low, high, logarithmic) {
  if (logarithmic) {
    const powers = [];
    for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
    return powers;
  }
  const raw = (high - low) / 4 || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((times) => times * size).find((step) => step >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  return found;
}

/**
 * Draws series over time into `place`.
 *
 * `lines`: { values, colour, width, name }, a value each bin, null for none; `bands`: { shares, colour }, the share of
 * each bin that is shaded; `marks`: { counts, colour }, bars at the bottom; `level`: { value, text }, a dashed line.
 */
export function draw(place, { duration_s, logarithmic, lines, bands = [], marks, level, label }) {
  const width = Math.max(place.clientWidth, 240);
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label });
  const values = lines.flatMap((line) => line.values).filter((value) => value !== null && (!logarithmic || value > 0));
  if (level) values.push(level.value);
  let [low, high] = values.length ? [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))] : [0, 1];
  if (logarithmic) [low, high] = [10 ** Math.floor(Math.log10(low || 1)), 10 ** Math.ceil(Math.log10(high || 1) + 1e-9)];
  else [low, high] = [0, high * 1.05 || 1];
  const bins = lines[0].values.length;
  const x = (bin) => SPACE.left + (bin / bins) * (width - SPACE.left - SPACE.right);
  const scale = logarithmic ? Math.log : (value) => value;
  const bottom = HEIGHT - SPACE.bottom;
  const y = (value) => bottom - ((scale(Math.max(value, low)) - scale(low)) / (scale(high) - scale(low))) * (bottom - SPACE.top);

  for (const band of bands) {
    band.shares.forEach((share, bin) => {
      if (share > 0) svg.append(element("rect", { x: x(bin), y: SPACE.top, width: x(bin + 1) - x(bin) + 0.5, height: bottom - SPACE.top, fill: band.colour, opacity: 0.12 + 0.18 * share }));
    });
  }
  for (const tick of ticks(low, high, logarithmic)) {
    svg.append(element("line", { x1: SPACE.left, x2: width - SPACE.right, y1: y(tick), y2: y(tick), class: "grid" }));
    svg.append(element("text", { x: SPACE.left - 6, y: y(tick) + 4, "text-anchor": "end" }, Number(tick.toPrecision(3))));
  }
  const [size, time] = duration_s > 120 ? [60, "min"] : [1, "s"];
  for (const tick of ticks(0, duration_s / size, false)) {
    const at = x((tick * size * bins) / duration_s);
    svg.append(element("text", { x: Math.min(at, width - SPACE.right - 14), y: HEIGHT - 6, "text-anchor": tick ? "middle" : "start" }, tick ? Number(tick.toPrecision(3)) : `0 ${time}`));
  }
  if (level) {
    svg.append(element("line", { x1: SPACE.left, x2: width - SPACE.right, y1: y(level.value), y2: y(level.value), class: "level" }));
    svg.append(element("text", { x: width - SPACE.right, y: y(level.value) - 4, "text-anchor": "end" }, level.text));
  }
  for (const { values, colour, width: stroke = 1.5 } of lines) {
    let path = "";
    let down = false;
    values.forEach((value, bin) => {
      if (value === null) { down = false; return; }
      path += `${down ? "L" : "M"}${x(bin + 0.5).toFixed(1)} ${y(value).toFixed(1)}`;
      down = true;
    });
    svg.append(element("path", { d: path, fill: "none", stroke: colour, "stroke-width": stroke, "stroke-linecap": "round" }));
  }
  if (marks) {
    const most = Math.max(...marks.counts);
    marks.counts.forEach((number, bin) => {
      if (!number) return;
      const tall = 6 + 16 * (number / most);
      const bar = element("rect", { x: x(bin), y: bottom - tall, width: Math.max(x(bin + 1) - x(bin), 1.5), height: tall, fill: marks.colour });
      bar.append(element("title", {}, `${number} missed`));
      svg.append(bar);
    });
  }
  place.replaceChildren(svg);
}
