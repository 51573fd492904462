// What a wall of many clusters costs the browser: `node wall.mjs [CLUSTERS] [UPDATES_A_SECOND] [SECONDS] [LOADS]`.
// The page is the committed one; a server of its own sends rows of the console's shape, so that nothing but the page is measured.
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const [CLUSTERS, UPDATES, SECONDS] = [1000, 10, 30].map((value, index) => Number(process.argv[2 + index] ?? value));
const assets = join(dirname(fileURLToPath(import.meta.url)), "../../services/console/assets");
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml" };
const HEALTHS = ["good", "good", "good", "good", "good", "good", "good", "working", "attention", "away"];
const commit = "0123456789012345678901234567890123456789";

const cluster = (number, version) => {
  const health = HEALTHS[(number * 7 + version) % HEALTHS.length];
  return {
    key: `00000000-0000-4000-8000-${String(number).padStart(12, "0")}`, name: `Plant_${number}`, group: `ACME-Plant_${number}`, wave: 1 + (number % 3), setup: "ready",
    steps: ["spec", "address", "flux-account", "krbkeys-account", "git-config", "repository", "ready"].map((name) => ({ name, state: "done", since: null })),
    edge: health === "away" ? "away" : "alive", alive_since: Date.now() - 3_600_000, held: null, flux: { ready: true, message: null, commit }, agreed: health !== "working",
    hosts: { ready: 3, total: 3 }, deployments: { ready: 2, total: 2 }, alerts: health === "attention" ? 1 : 0, version: "0.1.0", desired_version: version,
    certificate_ends: Date.now() + 1e10, git: { wanted: commit, applied: commit }, simulated: true, labels: {}, health,
    reasons: health === "good" ? [] : ["edge sync is not alive: the values are the last that were reported"], since: Date.now() - 60_000,
  };
};
const counts = { good: CLUSTERS, working: 0, attention: 0, away: 0 };
const fixed = {
  console: [{ key: "console", health: "good", reasons: [], broker: "mqtt://127.0.0.1:1883", online: true, since: 0, complete: true, missing: [], history: { recording: true, reason: null }, sessions: 1, version: "0.1.0", host_id: "ACME-Central-Console" }],
  fleet: [{ key: "fleet", clusters: counts, hosts: counts, deployments: counts, alerts: 0, acknowledged: 0, waiting: 0, rollout: null }],
};
const event = (number) => ({ key: String(number), at: Date.now(), cluster: `Plant_${number % CLUSTERS}`, kind: "health", subject: "cluster", old: "good", new: "working", text: "health: good → working", who: null, request: null });

/** A stream as the console sends it: whole tables, then what changes, one frame each tenth of a second for a table. */
function follow(response, tables) {
  let [rev, changes] = [1, 0];
  const send = (table, set, full = false) => response.write(`event: table\ndata: ${JSON.stringify({ del: [], full, rev: (rev += 1), set, table })}\n\n`);
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  for (const table of tables) {
    const rows = table === "clusters" ? Array.from({ length: CLUSTERS }, (_, number) => cluster(number, 0)) : table === "events" ? Array.from({ length: 500 }, (_, number) => event(number)) : (fixed[table] ?? []);
    for (let at = 0; at === 0 || at < rows.length; at += 100) send(table, rows.slice(at, at + 100), at === 0);
  }
  const frames = Math.min(10, UPDATES);
  const timer = setInterval(() => {
    const set = Array.from({ length: UPDATES / frames }, () => cluster((changes * 7919) % CLUSTERS, (changes += 1)));
    if (tables.includes("clusters")) send("clusters", set);
    if (tables.includes("fleet")) send("fleet", [{ ...fixed.fleet[0], waiting: changes % 3 }]);
    if (tables.includes("events")) send("events", [event(500 + changes)]);
  }, 1000 / frames);
  response.on("close", () => clearInterval(timer));
}

const server = http.createServer(async (request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  if (pathname === "/api/v1/stream") return follow(response, searchParams.get("tables").split(","));
  if (pathname === "/api/v1/session") {
    response.setHeader("content-type", "application/json");
    return response.end(JSON.stringify({ organisation: "ACME", user: null, role: "viewer", version: "0.1.0", actions: [], read_only: null, private: false, single_sign_on: false, can_sign_in: true, now: Date.now() }));
  }
  const name = ["app.js", "app.css", "icon.svg"].find((one) => pathname === `/${one}`) ?? "index.html";
  response.setHeader("content-type", TYPES[name.split(".").at(-1)]);
  response.end(await readFile(join(assets, name)));
});
server.listen(0, "127.0.0.1");
await once(server, "listening");
const url = `http://127.0.0.1:${server.address().port}`;

/** Loads of which the paints are measured, each in a browser context of its own, which has nothing in its cache. */
const LOADS = Number(process.argv[5] ?? 9);
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await chromium.launch({ executablePath, args: ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"] });
const all = await browser.newBrowserCDPSession();
/** In the page: remembers when the counters have numbers, and when the rows are there, each as the frame after it is drawn. */
const watchPaints = (rows) => {
  window.paints = {};
  const wanted = { counters: () => [...document.querySelectorAll(".counter-number")].some((one) => /[1-9]/.test(one.textContent)), rows: () => document.querySelector(rows) };
  const look = () => {
    for (const [name, found] of Object.entries(wanted)) {
      if (window.paints[name] === undefined && found()) {
        window.paints[name] = performance.now();
        requestAnimationFrame(() => setTimeout(() => (window.paints[name] = performance.now())));
      }
    }
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
};
/** A page that is open, with its first contentful paint, when its numbers and rows were drawn, and the processor time of its renderer until then, all in milliseconds. */
async function load(path) {
  const rows = path === "/" ? "canvas" : "[data-index]";
  const page = await (await browser.newContext({ viewport: { width: 1920, height: 1080 } })).newPage();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.addInitScript(watchPaints, rows);
  const value = async (name) => (await cdp.send("Performance.getMetrics")).metrics.find((one) => one.name === name).value * 1000;
  const before = await value("ProcessTime");
  await page.goto(url + path);
  await page.locator(rows).first().waitFor();
  await page.waitForTimeout(300);
  const shown = await page.evaluate(() => ({ ...window.paints, first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime }));
  return { page, cdp, ...shown, processor: (await value("ProcessTime")) - before };
}
const ofLoads = (loads, name) => {
  const sorted = loads.map((one) => one[name]).filter((one) => one !== undefined).sort((a, b) => a - b);
  return sorted.length === 0 ? "-" : `${Math.round(sorted[0])} / ${Math.round(sorted[sorted.length >> 1])} ms`;
};
for (const path of ["/", "/clusters"]) {
  const loads = [];
  // A machine that has much else to do delays single loads.
  while (loads.length < LOADS) {
    const one = await load(path);
    loads.push(one);
    if (loads.length < LOADS) await one.page.context().close();
  }
  const { page, cdp } = loads.at(-1);
  const paints = ["first", "counters", "rows", "processor"].map((name) => `${name} ${ofLoads(loads, name)}`).join(", ");
  const processes = async () => (await all.send("SystemInfo.getProcessInfo")).processInfo.reduce((sum, { cpuTime }) => sum + cpuTime, 0);
  const metrics = async () => ({ Chromium: await processes(), ...Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value])) });
  await page.waitForTimeout(2_000);
  const [start, before] = [performance.now(), await metrics()];
  await page.waitForTimeout(SECONDS * 1000);
  const [end, after] = [performance.now(), await metrics()];
  await cdp.send("HeapProfiler.collectGarbage");
  const rest = await metrics();
  // Processor time, not time: the machine may have much else to do.
  const share = (name) => `${((100_000 * (after[name] - before[name])) / (end - start)).toFixed(1)} %`;
  console.log(`${path}: ${CLUSTERS} clusters, ${UPDATES} updates a second, ${SECONDS} s: all processes of Chromium ${share("Chromium")} of a core, the renderer ${share("ProcessTime")}, its main thread ${share("TaskDuration")} (script ${share("ScriptDuration")}), ` +
    `heap ${(after.JSHeapUsedSize / 1e6).toFixed(1)} MB (${(rest.JSHeapUsedSize / 1e6).toFixed(1)} MB after collection), ${rest.Nodes} DOM nodes; drawn after (fastest / median of ${LOADS} loads): ${paints}`);
  await page.close();
}
await browser.close();
server.closeAllConnections();
server.close();
