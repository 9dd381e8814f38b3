// The status page. It renders each snapshot that the daemon sends as a server-sent event.

import { render } from "./vendor/preact.mjs";
import { byteRate, bytes, count, duration } from "./format.mjs";
import { Live, Problem, Tile, html } from "./parts.mjs";
import { addPoints, forgetSamples } from "./plots.mjs";
import { access } from "./snippets.mjs";
import { TimelineView } from "./timeline.mjs";
import { ConnectionView, groupedProblems, problemsOf } from "./topology.mjs";

const RETRY_MS = 2000;
const LATE_MS = 8000;
const FILTER_FROM = 8; // consumers

const state = { snapshot: null, events: [], login: false, live: false, trouble: "", filter: "", onlyProblems: false };

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function Tiles({ consumers, connections }) {
  const dispatchers = connections.flatMap((connection) => connection.dispatchers);
  const side = dispatchers.filter((dispatcher) => !dispatcher.main).length;
  const failed = consumers.filter((row) => row.state === "failed").length;
  const unstored = consumers.some((row) => row.state_store_error);
  const fault = [failed && `${failed} failed`, unstored && "positions not stored"].filter(Boolean).join(", ");
  const worst = consumers.reduce((one, row) => (row.lag_seconds > (one?.lag_seconds ?? 0) ? row : one), null);
  const queued = sum(consumers.map((row) => row.bytes));
  const limit = sum(consumers.map((row) => row.max_bytes));
  return html`<div class="tiles">
    <${Tile} name="consumers" label="consumers" value=${count(consumers.length)} note=${fault || "none failed"} tone=${fault ? "bad" : ""} />
    <${Tile} name="dispatchers" label="dispatchers" value=${count(dispatchers.length)} note=${side ? `${side} side` : "no side dispatchers"} />
    <${Tile} name="queued" label="queued" value=${bytes(queued)} note=${`of ${bytes(limit)}`} />
    <${Tile} name="lag" label="largest lag" value=${duration(worst?.lag_seconds ?? 0)} note=${worst?.name ?? "all acknowledged"} />
    <${Tile} name="read" label="read" value=${byteRate(sum(dispatchers.map((one) => one.bytes_read_per_sec)))} note="from servers" />
    <${Tile} name="delivered" label="delivered" value=${byteRate(sum(consumers.map((row) => row.delivered_bytes_per_sec)))} note="to readers" />
  </div>`;
}

// Of several daemons: what this one is. The leader's address is a link only if it is one of a web page.
function Role({ role }) {
  if (!role) return null;
  const address = /^https?:\/\//.test(role.leader ?? "") ? html`<a href=${role.leader}>${role.leader}</a>` : role.leader;
  const leads = role.role === "leader";
  return html`<small class="role" data-role=${role.role}>${leads ? `leader, term ${role.term}` : "standby"}${
    !leads && (role.leader ? html`, ${address} leads, term ${role.term}` : ", no daemon leads now")}</small>`;
}

function Header() {
  const { snapshot, live, login, trouble } = state;
  return html`<header>
    <img src="static/icon.svg" alt="" width="28" height="28" />
    <h1>binlog-dispatcher</h1>
    <small>${snapshot?.version ?? ""} · ${location.host}</small>
    <${Role} role=${snapshot?.role} />
    <${Live} live=${live} trouble=${trouble} />
    ${login && html`<form action="logout" method="post"><button type="submit">Log out</button></form>`}
  </header>`;
}

function Filter({ matching, total }) {
  return html`<div class="filter">
    <input type="search" placeholder="Find a consumer" aria-label="Find a consumer" value=${state.filter}
      onInput=${(event) => { state.filter = event.target.value; draw(); }} />
    <label><input type="checkbox" checked=${state.onlyProblems}
      onChange=${(event) => { state.onlyProblems = event.target.checked; draw(); }} /> only with problems</label>
    <small>${matching} of ${total}</small>
  </div>`;
}

function App() {
  const { snapshot, events } = state;
  if (!snapshot) return html`<${Header} /><p class="waiting">${state.trouble || "Connecting to the daemon …"}</p>`;
  const { consumers, connections, time } = snapshot;
  const problems = groupedProblems(consumers);
  const wanted = consumers.filter(
    (row) => row.name.toLowerCase().includes(state.filter.toLowerCase()) && (!state.onlyProblems || problemsOf(row).length),
  );
  const rows = new Map(wanted.map((row) => [row.name, row]));
  return html`<${Header} />
    <main class=${state.live ? "" : "stale"}>
      <${Tiles} consumers=${consumers} connections=${connections} />
      ${problems.length > 0 && html`<section class="problems" aria-label="Problems">
        ${problems.slice(0, 20).map((group) => html`<${Problem} ...${group} />`)}
        ${problems.length > 20 && html`<p class="muted">and ${problems.length - 20} more</p>`}
      </section>`}
      ${consumers.length >= FILTER_FROM && html`<${Filter} matching=${wanted.length} total=${consumers.length} />`}
      ${consumers.length === 0 && html`<p class="waiting">${snapshot.role?.role === "standby"
        ? "This daemon stands by: the consumers are on the leader's page."
        : html`The settings declare no consumer that this token may see. Add one to the section <code>consumers</code> of the settings and reload the daemon (SIGHUP),
          for example <code>${"consumers: {shop: {mysql: \"repl@db1:3306\", password_file: repl.password, databases: [shop]}}"}</code>; or declare one over the <a href="docs">API</a>. <code>binlog-dispatcher init</code> prepares
          a server and writes the settings.`}</p>`}
      ${connections.map((connection, at) => html`<${ConnectionView} key=${`${connection.name} ${at}`} connection=${connection} rows=${rows} />`)}
      <${TimelineView} events=${events} now=${time} />
    </main>
    <footer>
      <a href="docs">HTTP API</a>${!state.login && html` · <a href="v1/binlogs">/v1/binlogs</a> · <a href="metrics">/metrics</a>`}
    </footer>`;
}

const page = document.getElementById("page");
page.textContent = "";

function draw() {
  render(html`<${App} />`, page);
}

let late = 0;

function received() {
  state.live = true;
  state.trouble = "";
  clearTimeout(late);
  late = setTimeout(() => {
    state.live = false;
    state.trouble = "no answer";
    draw();
  }, LATE_MS);
}

function watch() {
  const source = new EventSource("status/events");
  source.addEventListener("snapshot", (event) => {
    const before = state.snapshot;
    state.snapshot = JSON.parse(event.data);
    if (before && state.snapshot.time - before.time > 15) forgetSamples();
    addPoints(state.snapshot.time, state.snapshot.consumers);
    received();
    draw();
  });
  source.addEventListener("timeline", (event) => {
    state.events = JSON.parse(event.data);
    draw();
  });
  source.addEventListener("end", () => location.reload());
  source.addEventListener("error", () => {
    state.live = false;
    state.trouble = "the daemon does not answer";
    draw();
    if (source.readyState === EventSource.CLOSED) setTimeout(ask, RETRY_MS);
  });
}

// An event source does not tell why it was refused.
async function ask() {
  const answer = await fetch("status/viewer").catch(() => null);
  if (answer?.status === 401) {
    location.reload();
    return;
  }
  if (!answer?.ok) {
    state.trouble = answer ? (await answer.json()).detail : "the daemon does not answer";
    draw();
    setTimeout(ask, RETRY_MS);
    return;
  }
  const { login, viewers, room } = await answer.json();
  state.login = access.tokens = login;
  if (!room) {
    state.trouble = `${viewers} browsers watch this page; waiting until one is closed`;
    draw();
    setTimeout(ask, RETRY_MS);
    return;
  }
  watch();
}

draw();
ask();
