// Small plots of the last ten minutes, and the samples that they show.

import { Component } from "./vendor/preact.mjs";
import { clock } from "./format.mjs";
import { html } from "./parts.mjs";

const WINDOW_S = 600;
const WINDOW_MIN_S = 120;
const HEIGHT = 46;
const FIELDS = ["bytes", "lag_seconds", "delivered_bytes_per_sec", "dispatcher_bytes_read_per_sec"];

// The samples of each consumer: {time: [...], bytes: [...], ...}. Filled from the daemon's history when a plot is first seen.
const samples = new Map();
const fetched = new Set();

function empty() {
  return Object.fromEntries(["time", ...FIELDS].map((field) => [field, []]));
}

function samplesOf(name) {
  if (!samples.has(name)) samples.set(name, empty());
  return samples.get(name);
}

// Add a point of each consumer.
export function addPoints(time, rows) {
  const names = new Set(rows.map((row) => row.name));
  for (const name of samples.keys()) if (!names.has(name)) forget(name);
  for (const row of rows) {
    const own = samplesOf(row.name);
    own.time.push(time);
    for (const field of FIELDS) own[field].push(row[field]);
    let old = 0;
    while (own.time[old] < time - WINDOW_S) old += 1;
    if (old > 30) for (const field of ["time", ...FIELDS]) own[field].splice(0, old);
  }
}

function forget(name) {
  samples.delete(name);
  fetched.delete(name);
}

// After a lost connection the points between are asked for again.
export function forgetSamples() {
  samples.clear();
  fetched.clear();
}

async function fetchHistory(name) {
  if (fetched.has(name)) return;
  fetched.add(name);
  const answer = await fetch(`status/consumers/${encodeURIComponent(name)}`).catch(() => null);
  if (!answer?.ok) {
    fetched.delete(name);
    return;
  }
  const { history } = await answer.json();
  const own = samplesOf(name);
  const first = own.time.length ? own.time[0] : Infinity;
  const older = history.time.filter((time) => time < first).length;
  for (const field of ["time", ...FIELDS]) own[field].unshift(...history[field].slice(0, older));
}

function colour(element, name) {
  return getComputedStyle(element).getPropertyValue(name).trim();
}

const dark = matchMedia("(prefers-color-scheme: dark)");

// props: consumer, field, label, format, top: the least value of the upper end, ink: a CSS variable.
export class Plot extends Component {
  shouldComponentUpdate() {
    return false;
  }

  componentDidMount() {
    this.seen = new IntersectionObserver((entries) => {
      this.visible = entries.at(-1).isIntersecting;
      if (this.visible) fetchHistory(this.props.consumer).then(() => this.draw(this.props));
    });
    this.seen.observe(this.box);
    this.sized = new ResizeObserver(() => this.plot?.setSize({ width: this.box.clientWidth, height: HEIGHT }));
    this.sized.observe(this.box);
    this.recolour = () => {
      this.plot?.destroy();
      this.plot = null;
      this.draw(this.props);
    };
    dark.addEventListener("change", this.recolour);
  }

  componentWillUnmount() {
    this.seen.disconnect();
    this.sized.disconnect();
    dark.removeEventListener("change", this.recolour);
    this.plot?.destroy();
  }

  // Preact calls it for each render, although the markup stays.
  componentWillReceiveProps(props) {
    if (this.visible) this.draw(props);
  }

  draw(props) {
    if (!this.box) return;
    const own = samplesOf(props.consumer);
    this.current = props;
    this.plot ??= this.make();
    this.plot.setData([own.time, own[props.field]]);
    this.caption();
  }

  make() {
    const ink = colour(this.box, this.props.ink);
    const range = () => {
      const { time } = samplesOf(this.current.consumer);
      const end = time.at(-1) ?? Date.now() / 1000;
      return [Math.max(end - WINDOW_S, Math.min(time[0] ?? end, end - WINDOW_MIN_S)), end];
    };
    return new uPlot(
      {
        width: this.box.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        padding: [3, 0, 1, 0],
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
        scales: {
          x: { time: false, range },
          y: { range: (_, __, most) => [0, Math.max(this.current.top, most ?? 0) * 1.05] },
        },
        axes: [{ show: false }, { show: false }],
        series: [{}, { stroke: ink, fill: `${ink}33`, width: 1.5, points: { show: false } }],
        hooks: { setCursor: [() => this.caption()] },
      },
      [[], []],
      this.box,
    );
  }

  // The newest value, or the one below the pointer.
  caption() {
    const { consumer, field, format } = this.current;
    const own = samplesOf(consumer);
    const at = this.plot.cursor.idx;
    const shown = at == null ? own[field].at(-1) : own[field][at];
    this.value.textContent = shown === undefined ? "" : format(shown);
    this.when.textContent = at == null || own.time[at] === undefined ? "" : clock(own.time[at]);
  }

  render({ label }) {
    return html`<figure class="plot">
      <figcaption>
        <span>${label}</span> <b ref=${(one) => (this.value = one)}></b>
        <small ref=${(one) => (this.when = one)}></small>
      </figcaption>
      <div class="canvas" ref=${(one) => (this.box = one)}></div>
    </figure>`;
  }
}
