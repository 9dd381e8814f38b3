// Connections, their dispatchers, and the consumers of each, with what is wrong and what to do about it.

import { Component } from "./vendor/preact.mjs";
import { ago, byteRate, bytes, duration, place, thingRate, things } from "./format.mjs";
import { html } from "./parts.mjs";
import { Plot } from "./plots.mjs";
import { Snippets } from "./snippets.mjs";

const STATE_TONES = {
  streaming: "good", ended: "good", connecting: "warn", paused: "warn", closed: "warn", detached: "warn", failed: "bad",
};
const READER_TONES = { none: "calm", waiting: "good", reading: "good", slow: "warn", paused: "warn" };

// A reader that is gone is bad only if changes wait for it.
function readerTone(row) {
  if (row.reader === "gone") return row.unacknowledged_bytes > 0 ? "bad" : "warn";
  return READER_TONES[row.reader] ?? "calm";
}

// The page of a mirror, from the port that its reader sends. The host is the reader's, so that a reader cannot name another.
function readerPage(row) {
  const port = /\(page :(\d{1,5})\)/.exec(row.reader_user_agent ?? "")?.[1];
  const host = row.reader_address?.includes(":") ? `[${row.reader_address}]` : row.reader_address;
  return port && host ? `http://${host}:${port}/` : null;
}

function lastCall(row) {
  const from = row.reader_address ? ` from ${row.reader_address}` : "";
  const agent = row.reader_user_agent ? ` (${row.reader_user_agent})` : "";
  return row.poll_age_seconds == null ? "" : ` It polled ${ago(row.poll_age_seconds)}${from}${agent}.`;
}

// The remedies of readers; those of errors come from the daemon.
function readerProblem(row) {
  const left = bytes(row.unacknowledged_bytes);
  if (row.reader === "gone") {
    const waits = row.unacknowledged_bytes > 0 ? `${left} wait for it.` : "Nothing waits for it yet.";
    return {
      tone: readerTone(row), title: "the reader is gone", what: `${waits}${lastCall(row)}`,
      remedy: "start the reader again, or remove the consumer from the settings if nothing needs it",
    };
  }
  if (row.reader === "paused") {
    return {
      tone: "warn", title: "paused", what: `An administrator has paused it; ${left} wait.`,
      remedy: `when the reader may go on: binlog-dispatcher consumers resume ${row.name}`,
    };
  }
  if (row.reader === "slow") {
    return {
      tone: "warn", title: "the reader is slow", what: `For most of the last 10 s its queue had no room; ${left} wait for it.${lastCall(row)}`,
      remedy: "give the reader more capacity or fewer tables; a larger max_bytes_in_binlog_queue helps with bursts only",
    };
  }
  if (row.reader === "none" && row.unacknowledged_bytes > 0) {
    const remedy = "start a reader, or remove the consumer from the settings if nothing needs it";
    const what = `${left} wait for a reader.`;
    // A reader that has read before is missed; a consumer that was declared lately may not have one yet.
    if (row.session === 0) return { tone: "warn", title: "no reader has ever read it", what, remedy };
    return { tone: "bad", title: "nothing reads it", what: `${what}${lastCall(row)}`, remedy };
  }
  return null;
}

function withoutRemedy(error, remedy) {
  return error.endsWith(`; ${remedy}`) ? error.slice(0, -remedy.length - 2) : error;
}

export function problemsOf(row) {
  const problems = [];
  if (row.state_store_error) {
    const what = withoutRemedy(row.state_store_error, row.state_store_remedy);
    problems.push({ tone: "bad", title: "positions are not stored", what, remedy: row.state_store_remedy, ofAll: true });
  }
  if (row.last_error) {
    const what = withoutRemedy(row.last_error, row.last_error_remedy);
    problems.push({ tone: row.state === "failed" ? "bad" : "warn", title: row.state, what, remedy: row.last_error_remedy });
  }
  for (const warning of row.warnings ?? []) problems.push({ tone: "warn", title: "warning", what: warning });
  const reader = readerProblem(row);
  return reader ? [...problems, reader] : problems;
}

// [{problem, names}], the worst first. A server that is down is one problem of all its consumers.
export function groupedProblems(rows) {
  const groups = new Map();
  for (const row of rows) {
    for (const problem of problemsOf(row)) {
      const key = JSON.stringify([problem.title, problem.what]);
      if (!groups.has(key)) groups.set(key, { problem, names: [] });
      groups.get(key).names.push(row.name);
    }
  }
  const rank = ({ problem }) => (problem.tone === "bad" ? 0 : 1);
  return [...groups.values()].sort((one, other) => rank(one) - rank(other));
}

function Field({ row, name, text, title }) {
  const raw = row[name];
  return html`<span data-field=${name} data-value=${raw === null ? "" : String(raw)} title=${title}>${text ?? raw}</span>`;
}

function Details({ row, full }) {
  const items = [
    ["acknowledged", place(row.acknowledged?.file, row.acknowledged?.offset)],
    ["seq", row.acknowledged ? html`<${Field} row=${row.acknowledged} name="seq" />` : "–"],
    ["unacknowledged", html`<${Field} row=${row} name="unacknowledged_bytes" text=${bytes(row.unacknowledged_bytes)} />, ${things(row.size, "event")}`],
    ["queue", `${bytes(row.bytes)} of ${bytes(row.max_bytes)}${row.spilled_bytes ? `, ${bytes(row.spilled_bytes)} on disk` : ""}`],
    ["server purges in", duration(row.runway_seconds)],
    ["detaches", html`<${Field} row=${row} name="detaches" />`],
    ["gaps", html`<${Field} row=${row} name="gaps" />`],
    ["session", html`<${Field} row=${row} name="session" text=${row.session || "none"} />${row.session_age_seconds == null ? "" : `, opened ${ago(row.session_age_seconds)}`}`],
    ["reader", html`<${Field} row=${row} name="reader_address" text=${row.reader_address ?? "–"} /> <${Field} row=${row} name="reader_user_agent" text=${row.reader_user_agent ?? ""} />${readerPage(row) && html` <a href=${readerPage(row)} rel="noreferrer">its page</a>`}`],
    ["last poll", ago(row.poll_age_seconds)],
    ["last acknowledgement", ago(row.acknowledgement_age_seconds)],
    ["delivered", `${things(row.delivered_transactions, "transaction")}, ${bytes(row.delivered_bytes)}`],
  ];
  if (row.declared_by != null) items.push(["declared by", html`<${Field} row=${row} name="declared_by" text=${row.declared_by || "a client without a token"} />`]);
  if (full?.acknowledged?.gtid) items.push(["acknowledged GTID set", html`<code>${full.acknowledged.gtid}</code>`]);
  return html`<dl>${items.map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;
}

class ConsumerNode extends Component {
  async open(event) {
    const isOpen = event.currentTarget.open;
    this.setState({ isOpen });
    if (!isOpen) return;
    const answer = await fetch(`status/consumers/${encodeURIComponent(this.props.row.name)}`).catch(() => null);
    if (answer?.ok) this.setState({ full: (await answer.json()).row });
  }

  render({ row }, { isOpen, full }) {
    const problems = problemsOf(row);
    const fill = Math.min(100, (100 * row.bytes) / row.max_bytes);
    return html`<li class="node consumer ${row.delivered_bytes_per_sec > 0 ? "flowing" : ""}" data-consumer=${row.name}>
      <div class="title">
        <b>${row.name}</b>
        ${row.declared_by != null && html`<span class="badge calm" title="A token has declared this consumer over the API; the settings do not have it.">declared</span>`}
        <span class="badge ${STATE_TONES[row.state] ?? "calm"}"><${Field} row=${row} name="state" /></span>
        <span class="badge ${readerTone(row)}">reader: <${Field} row=${row} name="reader" /></span>
        <span class="figures">${thingRate(row.delivered_transactions_per_sec, "transactions")}</span>
      </div>
      <div class="plots">
        <${Plot} consumer=${row.name} field="bytes" label="queue" ink="--queue" top=${row.max_bytes}
          format=${(value) => `${bytes(value)} of ${bytes(row.max_bytes)}`} />
        <${Plot} consumer=${row.name} field="lag_seconds" label="lag" ink="--lag" top=${1} format=${duration} />
        <${Plot} consumer=${row.name} field="delivered_bytes_per_sec" label="delivered" ink="--out" top=${1024} format=${byteRate} />
      </div>
      <div class="fill" role="img" aria-label=${`queue ${fill.toFixed(0)} % full`}>
        <span class=${fill >= 90 ? "bad" : fill >= 50 ? "warn" : "good"} style=${{ width: `${fill}%` }}></span>
      </div>
      ${problems.map((problem) => html`<p class="inline ${problem.tone}"><b>${problem.title}${problem.ofAll ? "" : ":"}</b> ${problem.ofAll ? "" : problem.what}</p>`)}
      <details onToggle=${(event) => this.open(event)}>
        <summary>details</summary>
        ${isOpen && html`<${Details} row=${row} full=${full} /><${Snippets} name=${row.name} />`}
      </details>
    </li>`;
  }
}

function DispatcherNode({ dispatcher, rows }) {
  const attached = dispatcher.consumers.map((name) => rows.get(name)).filter(Boolean);
  const flowing = dispatcher.bytes_read_per_sec > 0 ? "flowing" : "";
  return html`<li class="flow ${flowing}" data-dispatcher=${dispatcher.name}>
    <div class="node dispatcher">
      <div class="title">
        <b>${dispatcher.name}</b>
        <span class="badge ${dispatcher.main ? "main" : "side"}">${dispatcher.main ? "main" : "side"}</span>
        <span class="badge ${STATE_TONES[dispatcher.state] ?? "calm"}">${dispatcher.state}</span>
      </div>
      <p class="figures">${place(dispatcher.mysql_binlog_name, dispatcher.mysql_binlog_pos)}</p>
      <p class="figures">${byteRate(dispatcher.bytes_read_per_sec)}, ${thingRate(dispatcher.events_read_per_sec, "events")}</p>
      ${attached.length > 0 && html`<${Plot} key=${attached[0].name} consumer=${attached[0].name}
        field="dispatcher_bytes_read_per_sec" label="read" ink="--in" top=${1024} format=${byteRate} />`}
      ${dispatcher.reconnects > 0 && html`<p class="figures">${things(dispatcher.reconnects, "reconnect")}</p>`}
    </div>
    <ul class="branch">${attached.map((row) => html`<${ConsumerNode} key=${row.name} row=${row} />`)}</ul>
  </li>`;
}

export function ConnectionView({ connection, rows }) {
  const attached = new Set(connection.dispatchers.flatMap((dispatcher) => dispatcher.consumers));
  const others = connection.consumers.filter((name) => !attached.has(name)).map((name) => rows.get(name)).filter(Boolean);
  const shown = connection.dispatchers.filter((dispatcher) => dispatcher.consumers.some((name) => rows.has(name)));
  if (!shown.length && !others.length) return null;
  const open = connection.dispatchers.filter((one) => one.state === "streaming" || one.state === "paused").length;
  return html`<section class="connection" data-connection=${connection.name}>
    <div class="node server">
      <div class="title"><b>${connection.name}</b></div>
      <p class="figures">${open} of ${connection.dispatchers.length} connections open</p>
      <p class="figures">${things(connection.consumers.length, "consumer")}${connection.merges ? `, ${things(connection.merges, "merge")}` : ""}</p>
    </div>
    <ul class="branch">
      ${shown.map((dispatcher) => html`<${DispatcherNode} key=${dispatcher.name} dispatcher=${dispatcher} rows=${rows} />`)}
      ${others.length > 0 && html`<li class="flow unattached" key="unattached">
        <div class="node dispatcher"><div class="title"><b>not attached</b></div>
        <p class="figures">no dispatcher reads for these</p></div>
        <ul class="branch">${others.map((row) => html`<${ConsumerNode} key=${row.name} row=${row} />`)}</ul>
      </li>`}
    </ul>
  </section>`;
}
