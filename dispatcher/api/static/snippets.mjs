// Short programs that read a consumer, to copy. Names of consumers have only letters, digits, _, . and -.

import { CopyButton, html } from "./parts.mjs";

// `tokens`: true if the daemon asks for a token.
export const access = { tokens: false };

function address() {
  return new URL(".", location.href).href.replace(/\/$/, "");
}

const PROGRAMS = {
  // A session that is read only leaves the consumer's reader and position as they are.
  curl: (name) => `# The next changes of ${name} as a binlog file; acknowledges nothing.
api=${address()}/v1/consumers/${name}
call() { curl -sf -H "Content-Type: application/json"${access.tokens ? ' -H "Authorization: Bearer $TOKEN"' : ""} "$api/$1" -d "$2"; }
after=$(call session '{"after": null, "read_only": true}' | grep -o '{"server"[^}]*}' | head -1)
call read "{\\"session\\": 0, \\"after\\": $after, \\"wait_ms\\": 5000}" | tail -n +2 > ${name}.binlog
`,
  SQL: (name) => `CREATE OR REPLACE TEMPORARY VIEW changes USING binlog
OPTIONS (url '${address()}', consumer '${name}'${access.tokens ? ", tokenFile '/path/of/the/token'" : ""});
SELECT op, database, table, before, after FROM changes LIMIT 100;
`,
  Python: (name) => `options = {"url": "${address()}", "consumer": "${name}"${access.tokens ? ', "tokenFile": "/path/of/the/token"' : ""}}
changes = spark.readStream.format("binlog").options(**options).load()
changes.writeStream.format("console").option("checkpointLocation", "${name}.checkpoint").start()
`,
  shell: (name) => `binlog-dispatcher read ${name} --no-ack --url ${address()}${access.tokens ? " --token-file /path/of/the/token" : ""}\n`,
};

export function Snippets({ name }) {
  return html`<p class="snippets"><span>copy as</span> ${Object.entries(PROGRAMS).map(([label, text]) => html`<${CopyButton} key=${label} name=${label} label=${label} text=${text(name)} />`)}</p>`;
}
