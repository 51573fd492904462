// What a wall of many clusters costs the browser: `node wall.mjs [CLUSTERS] [UPDATES_A_SECOND] [SECONDS] [LOADS]` prints it, and wall.test.mjs holds what must not grow.
// The page is the committed one; a server of its own sends rows of the console's shape, so that nothing but the page is measured.
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

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
const counts = (clusters) => ({ good: clusters, working: 0, attention: 0, away: 0 });
const fixed = (clusters) => ({
  console: [{ key: "console", health: "good", reasons: [], broker: "mqtt://127.0.0.1:1883", online: true, since: 0, complete: true, missing: [], history: { recording: true, reason: null }, sessions: 1, version: "0.1.0", host_id: "ACME-Central-Console" }],
  fleet: [{ key: "fleet", clusters: counts(clusters), hosts: counts(clusters), deployments: counts(clusters), alerts: 0, acknowledged: 0, waiting: 0, rollout: null }],
});
const event = (number, clusters) => ({ key: String(number), at: Date.now(), cluster: `Plant_${number % clusters}`, kind: "health", subject: "cluster", old: "good", new: "working", text: "health: good → working", who: null, request: null });

/** A stream as the console sends it: whole tables, then what changes, one frame each tenth of a second for a table. */
function follow(response, tables, { clusters, updates }) {
  let [rev, changes] = [1, 0];
  const send = (table, set, full = false) => response.write(`event: table\ndata: ${JSON.stringify({ del: [], full, rev: (rev += 1), set, table })}\n\n`);
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  for (const table of tables) {
    const rows = table === "clusters" ? Array.from({ length: clusters }, (_, number) => cluster(number, 0)) : table === "events" ? Array.from({ length: 500 }, (_, number) => event(number, clusters)) : (fixed(clusters)[table] ?? []);
    for (let at = 0; at === 0 || at < rows.length; at += 100) send(table, rows.slice(at, at + 100), at === 0);
  }
  const frames = Math.min(10, updates);
  const timer = setInterval(() => {
    const set = Array.from({ length: updates / frames }, () => cluster((changes * 7919) % clusters, (changes += 1)));
    if (tables.includes("clusters")) send("clusters", set);
    if (tables.includes("fleet")) send("fleet", [{ ...fixed(clusters).fleet[0], waiting: changes % 3 }]);
    if (tables.includes("events")) send("events", [event(500 + changes, clusters)]);
  }, 1000 / frames);
  response.on("close", () => clearInterval(timer));
}

/** Serves the page and such a fleet. */
async function serve(load) {
  const server = http.createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    if (pathname === "/api/v1/stream") return follow(response, searchParams.get("tables").split(","), load);
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
  return server;
}

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
/** Processor time of all processes of the browser, in seconds. */
const processesOf = async (all) => (await all.send("SystemInfo.getProcessInfo")).processInfo.reduce((sum, { cpuTime }) => sum + cpuTime, 0);

/** A page that is open, with its first contentful paint, when its numbers and rows were drawn, and the processor time of its renderer until then, all in milliseconds. */
async function open(browser, url) {
  const rows = new URL(url).pathname === "/" ? "canvas" : "[data-index]";
  const page = await (await browser.newContext({ viewport: { width: 1920, height: 1080 } })).newPage();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.addInitScript(watchPaints, rows);
  const value = async (name) => (await cdp.send("Performance.getMetrics")).metrics.find((one) => one.name === name).value * 1000;
  const before = await value("ProcessTime");
  await page.goto(url);
  await page.locator(rows).first().waitFor();
  await page.waitForTimeout(300);
  const shown = await page.evaluate(() => ({ ...window.paints, first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime }));
  return { page, cdp, ...shown, processor: (await value("ProcessTime")) - before };
}

/** What a page of such a fleet costs: shares of a core while it is followed, bytes of the heap after collection, nodes of the document, and the paints of its loads. */
export async function measure(path, { clusters, updates, seconds, loads }) {
  const server = await serve({ clusters, updates });
  const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
  const browser = await chromium.launch({ executablePath, args: ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"] });
  try {
    const all = await browser.newBrowserCDPSession();
    const opened = [];
    // A machine that has much else to do delays single loads. Each has a browser context of its own, which has nothing in its cache.
    while (opened.length < loads) {
      const one = await open(browser, `http://127.0.0.1:${server.address().port}${path}`);
      opened.push(one);
      if (opened.length < loads) await one.page.context().close();
    }
    const { page, cdp } = opened.at(-1);
    const metrics = async () => ({ Chromium: await processesOf(all), ...Object.fromEntries((await cdp.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value])) });
    await page.waitForTimeout(2_000);
    const [start, before] = [performance.now(), await metrics()];
    await page.waitForTimeout(seconds * 1000);
    const [end, after] = [performance.now(), await metrics()];
    await cdp.send("HeapProfiler.collectGarbage");
    const rest = await metrics();
    // Processor time, not time: the machine may have much else to do.
    const share = (name) => (1000 * (after[name] - before[name])) / (end - start);
    const paints = opened.map(({ first, counters, rows, processor }) => ({ first, counters, rows, processor }));
    return { shares: { Chromium: share("Chromium"), renderer: share("ProcessTime"), main: share("TaskDuration"), script: share("ScriptDuration") }, heap: after.JSHeapUsedSize, heapAfterCollection: rest.JSHeapUsedSize, nodes: rest.Nodes, paints };
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const ofLoads = (paints, name) => {
  const sorted = paints.map((one) => one[name]).filter((one) => one !== undefined).sort((a, b) => a - b);
  return sorted.length === 0 ? "-" : `${Math.round(sorted[0])} / ${Math.round(sorted[sorted.length >> 1])} ms`;
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [clusters, updates, seconds, loads] = [1000, 10, 30, 9].map((value, index) => Number(process.argv[2 + index] ?? value));
  for (const path of ["/", "/clusters"]) {
    const { shares, heap, heapAfterCollection, nodes, paints } = await measure(path, { clusters, updates, seconds, loads });
    console.log(`${path}: ${clusters} clusters, ${updates} updates a second, ${seconds} s: all processes of Chromium ${percent(shares.Chromium)} of a core, the renderer ${percent(shares.renderer)}, its main thread ${percent(shares.main)} (script ${percent(shares.script)}), ` +
      `heap ${(heap / 1e6).toFixed(1)} MB (${(heapAfterCollection / 1e6).toFixed(1)} MB after collection), ${nodes} DOM nodes; drawn after (fastest / median of ${loads} loads): ${["first", "counters", "rows", "processor"].map((name) => `${name} ${ofLoads(paints, name)}`).join(", ")}`);
  }
}
