// Parts that the pages of both programs show.

import { Component, createElement } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export const html = htm.bind(createElement);
const SAID_MS = 2000;

export function Tile({ label, value, note, tone, name }) {
  return html`<div class="tile ${tone ?? ""}"><span>${label}</span><b data-tile=${name}>${value}</b><small>${note ?? ""}</small></div>`;
}

export function Problem({ problem, names }) {
  return html`<div class="problem ${problem.tone}" role=${problem.tone === "bad" ? "alert" : null} data-problem=${names.join(" ")}>
    <p><b>${names.join(", ")}</b> <span class="badge ${problem.tone}">${problem.title}</span></p>
    <p class="error">${problem.what}</p>
    ${problem.remedy && html`<p class="remedy"><span>What to do</span> ${problem.remedy}</p>`}
  </div>`;
}

export function Live({ live, trouble }) {
  return html`<span class="live ${live ? "good" : "bad"}" role="status" data-live=${live}>${live ? "live" : trouble || "connecting"}</span>`;
}

// A browser has `navigator.clipboard` over TLS and at loopback addresses only.
async function copied(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("the browser refuses to copy");
}

export class CopyButton extends Component {
  async copy() {
    const said = await copied(this.props.text).then(() => "copied", () => "not copied");
    this.setState({ said });
    setTimeout(() => this.setState({ said: "" }), SAID_MS);
  }

  render({ label, text, name }, { said }) {
    return html`<button type="button" class="copy" data-copy=${name} title=${text} onClick=${() => this.copy()}>${said || label}</button>`;
  }
}
