// Reads with a fork of zongji, and prints the lines of tests.front.clients.lines. Its settings are JSON on the standard
// input; it runs until it is killed.
const crypto = require('crypto');
const fs = require('fs');
const ZongJi = require(process.argv[2]);

const given = JSON.parse(fs.readFileSync(0, 'utf8'));
const account = { host: given.host, port: given.port, user: given.user, password: given.password };
if (given.tls) account.ssl = { rejectUnauthorized: false };
const zongji = new ZongJi(account);
// What MariaDB sends in place of an event, if the client has not said that it knows MariaDB's events.
const DUMMY = '# Dummy event';
const OPS = { WriteRows: 'insert', UpdateRows: 'update', DeleteRows: 'delete' };
let gtid = '';
let inside = false;

function show(...fields) {
  process.stdout.write(JSON.stringify(fields) + '\n');
}

function short(value) {
  const text = JSON.stringify(value);
  if (text === undefined || text.length <= 200) return text;
  return `${text.length}:${crypto.createHash('sha1').update(text).digest('hex')}`;
}

function image(row) {
  if (row === null) return null;
  return Object.entries(row)
    .map(([name, value]) => `${name}=${short(Buffer.isBuffer(value) ? value.toString('hex') : value)}`)
    .join(', ');
}

function end(offset) {
  inside = false;
  show('end', zongji.options.filename, offset, gtid);
}

zongji.on('binlog', (event) => {
  const name = event.getEventName();
  const op = OPS[event.getTypeName()];
  const offset = event.nextPosition;
  if (op) {
    const table = event.tableMap[event.tableId];
    for (const row of event.rows) {
      const before = op === 'update' ? row.before : op === 'delete' ? row : null;
      const after = op === 'update' ? row.after : op === 'insert' ? row : null;
      show('row', table.parentSchema, table.tableName, op, (after || before).id, image(before), image(after), offset);
    }
  } else if (name === 'xid') {
    end(offset);
  } else if (name === 'query' && !event.query.startsWith(DUMMY)) {
    if (event.query === 'BEGIN') {
      inside = true;
    } else if (event.query === 'COMMIT') {
      end(offset);
    } else {
      show('ddl', event.schema, event.query, offset);
      if (!inside) end(offset);
    }
  }
});
zongji.on('error', (error) => {
  console.error(error);
  process.exit(1);
});
zongji.start({
  serverId: given.server_id,
  filename: given.file,
  position: given.offset,
  includeEvents: ['tablemap', 'writerows', 'updaterows', 'deleterows', 'rotate', 'xid', 'query'],
  includeSchema: given.tables,
});
