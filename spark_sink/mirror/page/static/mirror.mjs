// The mirror's page. It asks the job for its state every two seconds while the page is visible.

import { render } from "./vendor/preact.mjs";
import { ago, bytes, count, duration, thingRate, things } from "./format.mjs";
import { Live, Problem, Tile, html } from "./parts.mjs";

const EVERY_MS = 2000;
const ANSWER_MS = 8000;
const TONES = { stopped: "bad", partial: "warn", creating: "calm", copying: "main", complete: "good", dropped: "calm" };

const state = { now: null, before: null, live: false, trouble: "", shown: "", find: "", first: 0 };

function sum(values) {
  return values.reduce((total, value) => total + (value ?? 0), 0);
}

// How much a count of a consumer or table has grown per second since the answer before; null if that is not known.
function rate(now, before, name) {
  const passed = state.before ? state.now.time - state.before.time : 0;
  if (passed <= 0 || now?.[name] == null || before?.[name] == null || now[name] < before[name]) return null;
  return (now[name] - before[name]) / passed;
}

function consumerBefore(row) {
  return state.before?.consumers.find((one) => one.consumer === row.consumer);
}

function tableBefore(row) {
  return state.before?.tables.find((one) => one.consumer === row.consumer && one.table === row.table);
}

function Tiles({ now }) {
  const { consumers, states } = now;
  const total = sum(Object.entries(states).map(([word, tables]) => (word === "dropped" ? 0 : tables)));
  const differing = sum(consumers.map((row) => row.differing));
  const unproved = sum(consumers.map((row) => row.unproved));
  const repaired = sum(consumers.map((row) => row.repaired_rows));
  const worst = consumers.reduce((one, row) => (row.apply_lag_seconds > (one?.apply_lag_seconds ?? 0) ? row : one), null);
  const rates = consumers.map((row) => rate(row, consumerBefore(row), "rows"));
  const proves = consumers.some((row) => row.proves);
  const proof = differing ? count(differing) : proves ? count(unproved) : "–";
  return html`<div class="tiles">
    <${Tile} name="tables" label="tables" value=${count(total)} note=${`${count(states.complete)} complete`} />
    <${Tile} name="problems" label="need a person" value=${count(now.all_problems)} note=${states.stopped ? `${count(states.stopped)} stopped` : "none stopped"}
      tone=${states.stopped ? "bad" : ""} />
    <${Tile} name="copying" label="being copied" value=${count(states.copying + states.creating)} note=${states.creating ? `${count(states.creating)} wait` : ""} />
    <${Tile} name="lag" label="largest lag" value=${duration(worst?.apply_lag_seconds ?? 0)} note=${worst?.consumer ?? "all applied"} />
    <${Tile} name="rows" label="applied" value=${rates.includes(null) ? "–" : thingRate(sum(rates), "rows")} note=${`${things(sum(consumers.map((row) => row.rows)), "row")} since the start`} />
    <${Tile} name="proof" label=${differing ? "differ" : "not proved yet"} value=${proof} tone=${differing ? "bad" : ""}
      note=${proves ? `${things(repaired, "row")} repaired` : "this job compares no tables"} />
  </div>`;
}

function Stage({ name, works }) {
  if (works == null) return html`<span class="badge calm">${name}: another job</span>`;
  return html`<span class="badge ${works ? "good" : "bad"}">${name} ${works ? "works" : "has failed"}</span>`;
}

function Consumer({ row }) {
  const items = [
    ["log behind the server", row.lag_bytes == null ? duration(row.lag_seconds) : `${duration(row.lag_seconds)}, ${bytes(row.lag_bytes)}`],
    ["tables behind the log", row.apply_lag_seconds == null ? "–" : `${duration(row.apply_lag_seconds)}, ${things(row.waiting_entries, "entry").replace("entrys", "entries")}`],
    ["rows into the log", thingRate(rate(row, consumerBefore(row), "logged_rows"), "rows")],
    ["rows applied", thingRate(rate(row, consumerBefore(row), "rows"), "rows")],
    ["steps", row.steps == null ? "–" : `${count(row.steps)}${row.failures ? `, ${things(row.failures, "failure")}` : ""}`],
    ["rows compared", row.proves ? count(row.proof_rows) : "–"],
  ];
  return html`<section class="card" data-consumer=${row.consumer}>
    <div class="title"><b>${row.consumer}</b> <${Stage} name="log" works=${row.log} /> <${Stage} name="apply" works=${row.apply} /></div>
    ${row.failure && html`<p class="error bad">${row.failure}</p>`}
    <dl>${items.map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>
  </section>`;
}

function Copies({ consumers }) {
  const copies = consumers.flatMap((row) => row.copies ?? []);
  if (!copies.length) return null;
  return html`<section class="card" aria-label="Copies"><h2>Copies</h2><ul class="copies">${copies.map((copied) => {
    const share = copied.rows_estimated ? Math.min(100, (100 * copied.rows) / copied.rows_estimated) : 0;
    return html`<li key=${copied.label} data-copying=${copied.label}>
      <p><b>${copied.label}</b> <span>${share.toFixed(0)} % of about ${things(copied.rows_estimated, "row")}, ${bytes(copied.bytes)}</span>
        <span class="figures">${thingRate(copied.seconds ? copied.rows / copied.seconds : null, "rows")}, ${copied.rest_s == null ? "time left not known" : `${duration(copied.rest_s)} left`}</span></p>
      <div class="fill" role="img" aria-label=${`${share.toFixed(0)} % copied`}><span style=${{ width: `${share}%` }}></span></div>
    </li>`;
  })}</ul></section>`;
}

function show(changes) {
  Object.assign(state, { first: 0 }, changes);
  ask();
}

function States({ now }) {
  const chips = [["", "all"], ["problems", `need a person ${count(now.all_problems)}`],
    ...Object.entries(now.states).filter(([, tables]) => tables).map(([word, tables]) => [word, `${word} ${count(tables)}`])];
  return html`<div class="filter states">
    ${chips.map(([word, label]) => html`<button type="button" key=${word} aria-pressed=${state.shown === word} data-show=${word} onClick=${() => show({ shown: word })}>${label}</button>`)}
    <input type="search" placeholder="Find a table" aria-label="Find a table" value=${state.find} onInput=${(event) => show({ find: event.target.value })} />
  </div>`;
}

function Proof({ row, now }) {
  const repaired = row.repaired_rows ? html`<small>${things(row.repaired_rows, "row")} repaired</small>` : null;
  if (row.differs) return html`<span class="badge bad">differs</span><small class="bad note">${row.differs}</small>${repaired}`;
  if (row.not_proved) return html`<span>not proved</span><small class="note">${row.not_proved}</small>${repaired}`;
  if (row.proved == null) return repaired;
  return html`<span>until ${ago(now.time - row.proved)}</span><small>${things(row.proved_rows, "row")} compared</small>${repaired}`;
}

function Table({ row, now }) {
  const rows = rate(row, tableBefore(row), "rows");
  const told = now.problems.some((one) => one.consumer === row.consumer && one.table === row.table);
  const tone = row.problem && row.state === "complete" ? "warn" : TONES[row.state];
  return html`<tr data-table=${row.table} data-state=${row.state}>
    <td data-label="table"><span class="name">${row.table}</span> <small>${row.consumer}${row.catalog ? `, ${row.catalog}` : ""}</small>
      ${row.reason && !told && html`<small class="note">${row.reason}</small>`}</td>
    <td data-label="state"><span class="badge ${tone}">${row.state}</span>${row.since != null && html`<small>for ${duration(Math.max(0, now.time - row.since))}</small>`}</td>
    <td data-label="waiting" class="number">${row.waiting_entries ? html`${count(row.waiting_entries)}<small class="note">${row.waits}</small>` : ""}</td>
    <td data-label="rows applied" class="number">${row.rows == null ? "" : html`${count(row.rows)}${rows > 0 && html`<small>${thingRate(rows, "rows")}</small>`}`}</td>
    <td data-label="step" class="number">${row.step_seconds == null ? "" : duration(row.step_seconds)}</td>
    <td data-label="proof"><${Proof} row=${row} now=${now} /></td>
  </tr>`;
}

function Tables({ now }) {
  const last = now.first + now.tables.length;
  return html`<section aria-label="Tables">
    <div class="card scroll"><table>
      <thead><tr><th>table</th><th>state</th><th class="number">entries that wait</th><th class="number">rows applied</th><th class="number">step</th><th>proof</th></tr></thead>
      <tbody>${now.tables.map((row) => html`<${Table} key=${`${row.consumer} ${row.table} ${row.state}`} row=${row} now=${now} />`)}</tbody>
    </table></div>
    <div class="pager">
      <small data-tables=${now.matching}>${now.matching ? `${count(now.first + 1)} to ${count(last)} of ${things(now.matching, "table")}` : "no tables"}</small>
      ${now.first > 0 && html`<button type="button" onClick=${() => show({ first: Math.max(0, now.first - now.shown_max) })}>previous</button>`}
      ${last < now.matching && html`<button type="button" onClick=${() => show({ first: last })}>next</button>`}
    </div>
  </section>`;
}

function App() {
  const { now, live, trouble } = state;
  return html`<header>
      <img src="static/icon.svg" alt="" width="28" height="28" />
      <h1>Mirror</h1>
      <small>${now ? `${now.target} · ${location.host}` : location.host}</small>
      <${Live} live=${live} trouble=${trouble} />
    </header>
    ${now == null ? html`<p class="waiting">${trouble || "Connecting to the job …"}</p>` : html`<main class=${live ? "" : "stale"}>
      <${Tiles} now=${now} />
      ${now.problems.length > 0 && html`<section class="problems" aria-label="Problems">
        ${now.problems.map((problem) => html`<${Problem} key=${`${problem.consumer} ${problem.table}`} problem=${problem} names=${[problem.table]} />`)}
        ${now.all_problems > now.problems.length && html`<p class="muted">and ${count(now.all_problems - now.problems.length)} more: choose “need a person” below</p>`}
      </section>`}
      <section class="consumers" aria-label="Consumers">${now.consumers.map((row) => html`<${Consumer} key=${row.consumer} row=${row} />`)}</section>
      <${Copies} consumers=${now.consumers} />
      <${States} now=${now} />
      <${Tables} now=${now} />
    </main>`}
    <footer>${now?.daemons.map((url) => html`<a href=${url} rel="noreferrer">daemon ${url}</a> · `)}<a href="metrics">/metrics</a> · <a href="status">/status</a></footer>`;
}

const page = document.getElementById("page");
page.textContent = "";

function draw() {
  render(html`<${App} />`, page);
}

let timer = 0;
let asked = 0;

// Of several requests at the same time, the answer of the last one is shown.
async function ask() {
  clearTimeout(timer);
  asked += 1;
  const number = asked;
  const query = new URLSearchParams({ state: state.shown, find: state.find, first: state.first });
  const answer = await fetch(`status?${query}`, { signal: AbortSignal.timeout(ANSWER_MS) }).then((one) => (one.ok ? one.json() : null)).catch(() => null);
  if (number !== asked) return;
  if (answer) Object.assign(state, { before: state.now, now: answer, live: true, trouble: "" });
  else Object.assign(state, { live: false, trouble: "the job does not answer" });
  draw();
  timer = setTimeout(next, EVERY_MS);
}

function next() {
  if (!document.hidden) ask();
}

document.addEventListener("visibilitychange", next);
draw();
ask();
