// Reads rows with a fork of zongji: HOST PORT USER PASSWORD FILE ROWS. Prints what it took as JSON.
const ZongJi = require('@powersync/mysql-zongji');

const [host, port, user, password, filename, wanted] = process.argv.slice(2);
const zongji = new ZongJi({ host, port: Number(port), user, password });
let rows = 0;
let started;
let cpu;

zongji.on('binlog', (event) => {
  if (!event.rows) return; // a table map or a rotation
  started = started ?? process.hrtime.bigint();
  cpu = cpu ?? process.cpuUsage();
  rows += event.rows.length;
  if (rows >= Number(wanted)) {
    const seconds = Number(process.hrtime.bigint() - started) / 1e9;
    const used = process.cpuUsage(cpu);
    console.log(JSON.stringify({ rows, seconds, cpu_seconds: (used.user + used.system) / 1e6 }));
    process.exit(0);
  }
});
zongji.on('error', (error) => {
  console.error(String(error));
  process.exit(1);
});
zongji.start({ serverId: 0xb006, filename, position: 4, includeEvents: ['tablemap', 'writerows', 'rotate'] });
