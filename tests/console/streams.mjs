// What 200 clients cost the console: `node streams.mjs`. Each follows the tables of the wall; then one cluster changes, and all have to receive that.
import { readFile } from "node:fs/promises";
import http from "node:http";
import { Factory } from "./factory.mjs";

const CLIENTS = 200;
const CHANGES = 10;
const TABLES = "console,fleet,clusters,events,actions";

const program = process.env.SPARKFLEET ?? new URL("../../target/debug/sparkfleet", import.meta.url).pathname;
const factory = new Factory(program);
await factory.start();
await factory.settled();
const token = await factory.token("operator", "--scope", "operator");
const status = async () => Object.fromEntries((await readFile(`/proc/${factory.pid}/status`, "utf8")).split("\n").map((line) => line.split(/:\s+/)));
const processor = async () => (await readFile(`/proc/${factory.pid}/stat`, "utf8")).split(") ")[1].split(" ").slice(11, 13).reduce((sum, ticks) => sum + Number(ticks) / 100, 0);
const before = await status();

let [bytes, answer] = [0, 200];
const clients = Array.from({ length: CLIENTS }, () => {
  const client = { text: "", received: () => {} };
  client.request = http.get(`${factory.url}/api/v1/stream?tables=${TABLES}`, (response) => {
    answer = Math.max(answer, response.statusCode);
    response.setEncoding("utf8");
    response.on("data", (text) => {
      bytes += text.length;
      client.text = (client.text + text).slice(-100_000);
      client.received();
    });
  });
  return client;
});
const allHave = (found) =>
  Promise.all(
    clients.map((client) => new Promise((resolve) => {
      client.received = () => found(client.text) && resolve();
      client.received();
    })),
  );
await allHave((text) => /"table":"clusters"/.test(text));
const cluster = (await factory.rows("clusters"))[0].key;
const [bytesBefore, cpuBefore, start] = [bytes, await processor(), performance.now()];
const times = [];
for (let change = 0; change < CHANGES; change += 1) {
  const wave = 1 + (change % 8);
  for (const client of clients) client.text = "";
  const sent = performance.now();
  await factory.act(token, "cluster.wave", { cluster, wave });
  await allHave((text) => text.includes(`"wave":${wave}`) && text.includes('"table":"clusters"'));
  times.push(performance.now() - sent);
}
const [seconds, after, cpu] = [(performance.now() - start) / 1000, await status(), await processor()];
times.sort((a, b) => a - b);
const tooMany = await new Promise((resolve) => http.get(`${factory.url}/api/v1/stream?tables=fleet`, (response) => resolve(response.statusCode)));
console.log(
  `${CLIENTS} clients (all answered ${answer}; one more: ${tooMany}); a change is with all of them after ${Math.round(times[CHANGES / 2])} ms (median of ${CHANGES}, slowest ${Math.round(times.at(-1))} ms); ` +
    `memory of the whole factory ${before.VmRSS} before, ${after.VmRSS} after; ${(((bytes - bytesBefore) / CHANGES / CLIENTS)).toFixed(0)} bytes a change and client; processor time of the whole factory ${(cpu - cpuBefore).toFixed(1)} s in ${seconds.toFixed(1)} s`,
);
for (const client of clients) client.request.destroy();
await factory.stop();
// What does not depend on the machine: everyone is served, one more is refused, and each takes less than a mebibyte.
const kibibytes = (of) => Number.parseInt(of.VmRSS, 10);
const grown = (kibibytes(after) - kibibytes(before)) / CLIENTS;
if (answer !== 200 || tooMany !== 503 || grown > 1024) throw new Error(`all are to be answered 200 (${answer}), one more 503 (${tooMany}), with less than 1,024 KiB each (${grown.toFixed(0)})`);
