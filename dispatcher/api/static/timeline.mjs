// What happened: a strip of the last ten minutes, and the newest events as text.

import { Component } from "./vendor/preact.mjs";
import { clock, duration } from "./format.mjs";
import { html } from "./parts.mjs";

const STRIP_S = 600;
const LISTED = 12; // and all of them on demand
const TONES = {
  connected: "good", merged: "good", stored: "good", cleared: "good", ended: "calm", moved: "calm", changed: "calm", removed: "calm", closed: "warn",
  leading: "good", standby: "calm",
  paused: "warn", resumed: "good", warning: "warn", detached: "warn", disconnected: "warn", evicted: "warn", gap: "bad", failed: "bad",
};

function tone(event) {
  return TONES[event.kind] ?? "calm";
}

function subject(event) {
  if (event.consumers.length) return event.consumers.join(", ");
  return event.connection;
}

function Mark({ event, now }) {
  const left = 100 * (1 - (now - event.time) / STRIP_S);
  const title = `${clock(event.time)} ${event.event}: ${subject(event)}`;
  return html`<span class="mark ${tone(event)}" style=${{ left: `${left}%` }} title=${title}></span>`;
}

function Line({ event, now }) {
  return html`<li data-event=${event.number} data-kind=${event.kind}>
    <time title=${new Date(event.time * 1000).toISOString()}>${clock(event.time)}</time>
    <span class="badge ${tone(event)}">${event.kind}</span>
    <span class="what">
      <b>${subject(event)}</b> ${event.event}${event.dispatcher == null ? "" : ` (dispatcher ${event.dispatcher})`}
      ${event.count > 1 && html` <small>${event.count} times since ${clock(event.since)}, last ${duration(Math.max(0, now - event.time))} ago</small>`}
      ${event.detail && html`<span class="detail">${event.detail}</span>`}
    </span>
  </li>`;
}

export class TimelineView extends Component {
  render({ events, now }, { all }) {
    const newest = [...events].sort((one, other) => other.number - one.number);
    const recent = events.filter((event) => event.time > now - STRIP_S);
    const listed = all ? newest : newest.slice(0, LISTED);
    const more = newest.length - listed.length;
    return html`<section class="timeline card" aria-label="Timeline">
      <h2>What happened</h2>
      <div class="strip" aria-hidden="true">
        ${recent.map((event) => html`<${Mark} key=${event.number} event=${event} now=${now} />`)}
      </div>
      <div class="scale" aria-hidden="true"><span>10 min ago</span><span>now</span></div>
      ${newest.length === 0 && html`<p class="muted">Nothing yet: no connection was made or lost since the daemon started.</p>`}
      <ol>${listed.map((event) => html`<${Line} key=${event.number} event=${event} now=${now} />`)}</ol>
      ${more > 0 && html`<button type="button" class="more" onClick=${() => this.setState({ all: true })}>Show ${more} older</button>`}
    </section>`;
  }
}
