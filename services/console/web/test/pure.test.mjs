import assert from "node:assert/strict";
import { createDecipheriv, generateKeyPairSync, privateDecrypt } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { load } from "./bundle.mjs";

const { visible, hasInvisible, age, duration, milliseconds, count, valueText, differingDigits, compare, inFours, tablesParameter, pastOf, readEvents, EVENT_PAGES } = await load("format.ts", "stream.ts");
const { parse, address, timeOf } = await load("router.ts");
const { applyFrame, takeFrame, tableOf, subscribe, subscriptions, mark, release, share } = await load("store.ts");
const { filtered, parseFilter } = await load("filter.ts");
const { gapParts, gapEvent, together, laneKind, continued, cutAt, lanes, marks } = await load("events.ts");
const { commands, shellWord } = await load("commands.ts");
const { seal, sealedSecret, namesProblem } = await load("seal.ts");
const { hostLink, hostArgument, namesakes } = await load("hosts.ts");
const { nameOf } = await load("tokens.ts");
const { enrolCommand, lineOf, readList } = await load("enrolment.ts");

test("what cannot be seen is written out, and long texts are bounded", () => {
  assert.equal(visible("a\u202eb\u0000c"), "a⟨202E⟩b⟨0000⟩c");
  assert.equal(visible("<img onerror=x>"), "<img onerror=x>");
  assert.equal(visible("x".repeat(300), 10), "xxxxxxxxxx… (290 more)");
  assert.equal(visible("\ud800z"), "⟨D800⟩z");
  assert.equal(visible("😀 שלום"), "😀 שלום");
  assert.equal(visible("a\u{e0041}"), "a⟨E0041⟩");
  assert.ok(hasInvisible("a\u200b"));
  assert.ok(!hasInvisible("plain"));
});

test("ages have at most two units", () => {
  assert.deepEqual([0, 999, 1000, 59_999, 60_000, 3_600_000, 5_400_000, 90_000_000].map(age), ["now", "now", "1 s", "59 s", "1 min", "1 h", "1 h 30 min", "1 d 1 h"]);
  assert.deepEqual([0, 35, 12_345].map(milliseconds), ["0 ms", "35 ms", "12\u2009345 ms"]);
  assert.deepEqual([12.4, 1900, 45_000, 61_000].map(duration), ["12 ms", "1.9 s", "45 s", "1 min 1 s"]);
  assert.equal(count(1234567), "1\u2009234\u2009567");
});

test("values and fingerprints", () => {
  assert.deepEqual([null, 1.23456789, 12, true, { a: 1 }].map((value) => valueText(value)), ["null", "1.23457", "12", "true", '{"a":1}']);
  assert.equal(inFours("0123456789"), "0123 4567 89");
  assert.deepEqual(differingDigits("abxd", "abcd"), [{ text: "ab", differs: false }, { text: "x", differs: true }, { text: "d", differs: false }]);
});

test("documents are compared leaf by leaf", () => {
  assert.deepEqual(compare({ a: { b: 1 }, c: "x" }, { a: { b: 2 }, d: [] }), [
    { path: "a.b", wanted: "1", reported: "2", differs: true },
    { path: "c", wanted: "x", reported: null, differs: false },
    { path: "d", wanted: null, reported: "[]", differs: false },
  ]);
});

test("addresses are taken apart and put together again", () => {
  const route = parse("/host/Body_Shop/%3Cimg%3E%2F", "?at=5&q=a+b");
  assert.deepEqual(route, { view: "host", args: ["Body_Shop", "<img>/"], query: { at: "5", q: "a b" } });
  assert.deepEqual(parse(...address(["host", ...route.args], route.query).split(/(?=\?)/)), route);
  assert.deepEqual(parse("/a/%zz", "").args, ["%zz"]);
  assert.deepEqual([timeOf({ at: "5" }), timeOf({ at: "-5" }), timeOf({ at: "x" }), timeOf({})], [5, null, null, null]);
});

test("a snapshot and its deltas give the table that the server has", () => {
  // A fixed generator of pseudo-random numbers, so that a failure can be repeated.
  let seed = 7;
  const next = (limit) => (seed = (seed * 1103515245 + 12345) % 2147483648) % limit;
  const truth = new Map();
  let replica = new Map();
  for (let round = 0; round < 500; round++) {
    const frame = { rev: round, table: "t", full: round % 50 === 0, set: [], del: [] };
    const key = `k${next(20)}`;
    if (next(3) === 0) {
      truth.delete(key);
      frame.del.push(key);
    } else {
      truth.set(key, { key, round });
      frame.set.push(truth.get(key));
    }
    if (frame.full) frame.set = [...truth.values()];
    replica = applyFrame(replica, frame);
    assert.deepEqual(new Map([...replica].sort()), new Map([...truth].sort()));
  }
});

test("rows that a frame does not name keep their identity", () => {
  const row = { key: "a" };
  const after = applyFrame(new Map([["a", row]]), { rev: 1, table: "t", full: false, set: [{ key: "b" }], del: [] });
  assert.equal(after.get("a"), row);
});

test("a table takes no delta before it has the whole", () => {
  const end = subscribe("alerts");
  const table = tableOf("alerts");
  takeFrame({ rev: 1, table: "alerts", full: false, set: [{ key: "a" }], del: [] }, false);
  assert.equal(table.list.value.length, 0);
  takeFrame({ rev: 2, table: "alerts", full: true, set: [{ key: "a" }], del: [] }, false);
  takeFrame({ rev: 3, table: "alerts", full: false, set: [{ key: "b" }], del: [] }, false);
  assert.deepEqual(table.list.value.map((row) => row.key), ["a", "b"]);
  mark([{ name: "alerts", live: false }], "failed");
  assert.deepEqual([table.list.value.length, table.state.value], [0, "failed"]);
  end();
});

test("the small tables by which a page is recognised are asked for first", () => {
  assert.equal(tablesParameter(["clusters", "events", "fleet", "clusters", "console"]), "console,fleet,clusters,events");
  assert.equal(tablesParameter(["metrics:A/b,c%", "alerts"]), "alerts,metrics:A/b%2Cc%25");
});

test("a table of the past is asked for by its time, and of events as many as at present", () => {
  assert.deepEqual([pastOf("clusters", 7), pastOf("events", 7)], ["/api/v1/clusters?at=7", "/api/v1/events?at=7&limit=500"]);
});

test("subscriptions are counted", () => {
  const [one, two] = [subscribe("hosts"), subscribe("hosts")];
  assert.equal(subscriptions.value.length, 1);
  one();
  assert.equal(subscriptions.value.length, 1);
  two();
  assert.equal(subscriptions.value.length, 0);
});

test("a table that the stream brings for another subscription is shown at once by one that comes back", () => {
  const ends = [subscribe("services", true), subscribe("services")];
  const rows = (live) => [...tableOf("services", live).rows.value.keys()];
  assert.deepEqual([rows(true), rows(false)], [[], []]);
  for (const live of [true, false]) takeFrame({ rev: 1, table: "services", full: true, set: [{ key: "a" }], del: [] }, live);
  ends[1]();
  release([{ name: "services", live: false }]);
  takeFrame({ rev: 2, table: "services", full: false, set: [{ key: "b" }], del: [] }, true);
  ends[1] = subscribe("services");
  share([{ name: "services", live: false }]);
  assert.deepEqual([rows(false), tableOf("services").state.value], [["a", "b"], "current"]);
  takeFrame({ rev: 3, table: "services", full: false, set: [{ key: "c" }], del: [] }, false);
  assert.deepEqual(rows(false), ["a", "b", "c"]);
  assert.deepEqual(rows(true), ["a", "b"], "each takes its own frames");
  // One whose sibling is not current waits for the stream.
  share([{ name: "rollout", live: false }]);
  assert.equal(tableOf("rollout").state.value, "loading");
  ends.forEach((end) => end());
});

test("the filter knows words, fields, labels and health", () => {
  const rows = [
    { key: "1", name: "Body_Shop", health: "good", wave: 2, labels: { site: "Graz" } },
    { key: "2", name: "Press_Shop", health: "away", wave: 1, labels: {} },
  ];
  const keys = (query, health = "") => filtered(rows, query, health).map((row) => row.key).join();
  assert.deepEqual([keys("shop"), keys("body shop"), keys("wave:2"), keys("site:graz"), keys("", "away"), keys("nothing")], ["1,2", "1", "1", "1", "2", ""]);
  assert.deepEqual(parseFilter("a: :b x:y"), { words: ["a:", ":b"], fields: [["x", "y"]] });
});

test("commands are literal for the shell, or not offered", () => {
  assert.equal(shellWord("it's"), `'it'\\''s'`);
  assert.equal(commands.createCluster("Paint_Shop"), "sparkfleet cluster create Paint_Shop --wait");
  assert.equal(commands.deleteCluster("a; rm -rf /"), "sparkfleet cluster delete 'a; rm -rf /' --with-deployments --wait");
  assert.equal(commands.deleteCluster("--all"), null);
  assert.equal(commands.deleteCluster("a\nb"), null);
  assert.equal(commands.moveDeployment("C", "D", ""), "sparkfleet deployment move C/D --wait");
});

test("what is longer than nodes send is not a word of the shell", () => {
  assert.equal(shellWord("x".repeat(301)), null);
  assert.equal(commands.deleteSecret("Paint_Shop", "shop", "press-login", ["a", "b"]), "sparkfleet secret delete Paint_Shop press-login a b --namespace=shop");
});

test("what a form says is in its command", () => {
  const secret = { namespace: "fplus-edge", name: "press-login", key: "password", scope: "strict", type: "Opaque" };
  assert.equal(commands.putSecret("A", secret, ""), "sparkfleet secret put A press-login password");
  assert.equal(commands.putSecret("A", { ...secret, namespace: "shop", scope: "cluster-wide", type: "kubernetes.io/tls" }, "0f"), "sparkfleet secret put A press-login password --namespace=shop --scope=cluster-wide --type=kubernetes.io/tls --fingerprint=0f");
  assert.equal(commands.createDeployment("A", "B", "Edge agent", "", { a: "it's" }), `printf '%s\\n' '{"a":"it'\\''s"}' | sparkfleet deployment create B --cluster=A --values=- --wait`);
  // What is too long for a command, or must not be pasted, comes from a file.
  for (const a of ["x".repeat(3000), "\u202e"]) assert.equal(commands.createDeployment("A", "B", "Edge agent", "", { a }), "sparkfleet deployment create B --cluster=A --values=values.json --wait");
  assert.equal(commands.moveHost("A", "b", ""), "sparkfleet host move A/b");
  assert.equal(commands.rebirth("G", "n"), "sparkfleet watch --group=G --node=n --rebirth");
});

test("every command has an example in the list that the command line reads in its own tests", async () => {
  const secret = { namespace: "shop", name: "press-login", key: "password", scope: "namespace-wide", type: "kubernetes.io/basic-auth" };
  const [object, ek] = ["00000000-0000-4000-8000-00000000000a", "0f".repeat(32)];
  const examples = {
    createCluster: [["Paint_Shop", "shop"], ["Paint_Shop"]], showCluster: [["Paint_Shop"]], deleteCluster: [["Paint_Shop"]], setWave: [["Paint_Shop", 3]],
    putSecret: [["Paint_Shop", secret, ek]], listSecrets: [["Paint_Shop"]], deleteSecret: [["Paint_Shop", "shop", "press-login", ["user", "password"]]],
    revokeToken: [["ada"]], createToken: [["NAME", "operator"], ["ada", "viewer", "Paint_Shop", 7]], reconcileCluster: [["Paint_Shop"]], bootstrap: [["Paint_Shop"]],
    createDeployment: [["Paint_Shop", "Oven_1", "Edge agent", ""], ["Paint_Shop", "Oven_1", "My chart", "paint-shop-1", { text: "it's" }]],
    showDeployment: [["Paint_Shop", "Oven_1"]], showManifests: [["Paint_Shop", "Oven_1"]], deleteDeployment: [["Paint_Shop", "Oven_1"]], moveDeployment: [["Paint_Shop", "Oven_1", "paint-shop-1"], ["Paint_Shop", "Oven_1", ""]],
    suspendDeployment: [["Paint_Shop", "Oven_1", false], ["Paint_Shop", "Oven_1", true]], reconcileDeployment: [["Paint_Shop", "Oven_1"]],
    approveHost: [["Paint_Shop/paint-shop-1", ek, true], [`Paint_Shop/${object}`, null]], moveHost: [["Paint_Shop", "paint-shop-1", "paint-shop-2"], ["Paint_Shop", "paint-shop-1", ""]], revokeHost: [["Paint_Shop/paint-shop-1"]],
    capture: [["Paint_Shop/paint-shop-1", [4, 7]]], setPolicy: [["Paint_Shop"]], initPolicy: [["Paint_Shop"]], watch: [["ACME-Paint_Shop", "Oven 1"]], rebirth: [["ACME-Paint_Shop", "Oven 1"]],
    history: [[object, "Info"]], listObjects: [[]], getEntry: [[object, "Info"]], putEntry: [[object, "Info", null], [object, "Info", object]], deleteEntry: [[object, "Info"]],
    acknowledge: [["Paint_Shop/Oven_1", "Offline", "on my way"]], silence: [["Paint_Shop/Oven_1", "Offline", "8h", "on my way"]], verifyRecord: [[]], alerts: [[]], rollouts: [[]],
    createObject: [[object, ek.slice(0, 8), "it's"]], writeMetric: [["Plant/Gateway", "Motor", "Speed", "-4"], ["Plant/Gateway", "", "Name", "two words"]],
    differences: [["2026-01-31T08:00:00.000Z", "2026-01-31T09:00:00.000Z"]], exportHistory: [["2026-01-31T08:00:00.000Z", "2026-01-31T09:00:00.000Z"]],
    holdRollout: [["Edge agent", "not before monday"]], resumeRollout: [["Edge agent"]], freeRollout: [["Edge agent", "Paint_Shop", "it is being rebuilt"]],
  };
  assert.deepEqual(Object.keys(examples).sort(), Object.keys(commands).sort());
  const lines = Object.entries(examples).flatMap(([name, calls]) => calls.map((call) => commands[name](...call)));
  const text = [...lines, enrolCommand("Paint_Shop", [ek])].join("\n") + "\n";
  const file = new URL("commands.txt", import.meta.url);
  if (process.env.UPDATE_COMMANDS === "1") await writeFile(file, text);
  assert.equal(await readFile(file, "utf8"), text, "write the list again with UPDATE_COMMANDS=1");
});

const { deed, changes, differencesOf, isDecided, runbooks, runbooksOf, partsOf, newAlerts } = await load("plan.ts", "differences.ts", "events.ts", "runbook.ts", "alerts.ts");

test("a plan says what is done, value by value", () => {
  const step = (change, before, after) => ({ change, subject: "Oven", object: "o", name: "EdgeDeployment", before, after });
  const suspended = step("write", { name: "Oven", suspend: null, host: { a: 1 } }, { name: "Oven", suspend: true, host: { a: 1 } });
  assert.deepEqual([deed(suspended), changes(suspended)], ["change EdgeDeployment of", [{ path: "suspend", before: "null", after: "true" }]]);
  assert.deepEqual(changes(step("write", { a: { b: 1 } }, { a: {} })), [{ path: "a", before: null, after: "{}" }, { path: "a.b", before: "1", after: null }]);
  assert.deepEqual(changes(step("command", null, 4)), [{ path: "value", before: null, after: "4" }]);
  assert.deepEqual([deed(step("write", null, {})), deed(step("delete", {}, null)), changes(step("delete", { a: 1 }, null))], ["write EdgeDeployment of", "delete EdgeDeployment of", []]);
});

test("two times differ in what came, went and changed, and not in what only grows old", () => {
  const row = (key, fields) => ({ key, name: key, cluster: "A", since: 1, reasons: [], ...fields });
  const before = [row("same", { since: 1 }), row("gone", {}), row("moved", { host: "a", steps: [{ since: 1 }] })];
  const after = [row("same", { since: 9 }), row("new", {}), row("moved", { host: "b", steps: [{ since: 5 }] })];
  const found = differencesOf("deployments", before, after).map(({ title, change, values }) => [title, change, values]);
  assert.deepEqual(found, [["A/gone", "went", []], ["A/moved", "changed", [{ path: "host", before: "a", after: "b" }]], ["A/new", "came", []]]);
  assert.equal(differencesOf("alerts", [], [{ key: "k", alert: "Offline", cluster: "A", node: "Sync" }])[0].title, "Offline of A/Sync");
});

test("it is said that no one is known for what a user decides, and not for what happens by itself", () => {
  const is = (kind, subject) => isDecided({ kind, subject });
  assert.deepEqual([is("config", "deployment Oven"), is("added", "cluster A"), is("health", "cluster A"), is("birth", "service A/Sync"), is("alert raised", "alert Offline"), is("alert acknowledged", "alert Offline")], [true, true, false, false, false, true]);
});

test("every kind of alert has a runbook, which is the documentation's own", async () => {
  const source = await readFile(new URL("../../../libs/fleet-view/src/alerts.rs", import.meta.url), "utf8");
  const kinds = [...source.slice(source.indexOf("const ALERTS"), source.indexOf("];", source.indexOf("const ALERTS"))).matchAll(/"(\w+)"/g)].map(([, kind]) => kind);
  assert.ok(kinds.length > 10, String(kinds));
  assert.deepEqual(runbooks.map((one) => one.alert).sort(), kinds.sort());
  for (const { means, todo } of runbooks) assert.ok(means.endsWith(".") && todo.endsWith("."), `${means} ${todo}`);
  assert.deepEqual(runbooksOf("| `A` | it `is` | do |\n| B | x | y |\ntext"), [{ alert: "A", means: "it `is`", todo: "do" }]);
  assert.deepEqual(partsOf("do `this` now").map((part) => [part.text, part.isCode]), [["do ", false], ["this", true], [" now", false]]);
});

test("an alert is new once, and not when the page opens or a user looks after it", () => {
  const row = (key, acknowledged = null) => ({ key, acknowledged });
  const keys = (known, rows) => newAlerts(known, rows).map((one) => one.key);
  assert.deepEqual([keys(null, [row("a")]), keys(new Set(["a"]), [row("a"), row("b"), row("c", { by: "ada" })])], [[], ["b"]]);
});

test("gaps are cut to the span that is shown", () => {
  const gap = (since, until) => ({ since, until, reason: "stopped" });
  const parts = gapParts([gap(0, 50), gap(120, 140), gap(180, null), gap(10, 20), gap(300, 400)], 40, 240).map(({ left, width }) => [left, width]);
  assert.deepEqual(parts, [[0, 0.05], [0.4, 0.1], [0.7, 0.3]]);
  assert.match(gapEvent(gap(5, null)).text, /^nothing was received since then: stopped$/);
});

test("events that two sources bring are shown once, by how they ended", () => {
  const event = (key, kind, value) => ({ key, kind, new: value });
  assert.deepEqual(together([event("1"), event("2")], [event("2"), event("3")]).map((one) => one.key), ["1", "2", "3"]);
  const kinds = [["health", "away"], ["health", "good"], ["alert raised", "Offline"], ["alert cleared", null], ["config", "5"], ["gap", null], ["added", "spec"]];
  assert.deepEqual(kinds.map(([kind, value]) => laneKind(event("1", kind, value))), ["bad", "good", "bad", "good", "config", "bad", "change"]);
});

test("events are read page by page up to a bound, and what is not read is said", async () => {
  const all = Array.from({ length: 12_345 }, (_, index) => ({ key: String(12_345 - index), at: 12_345 - index }));
  const asked = [];
  const [real, signal] = [globalThis.fetch, new AbortController().signal];
  globalThis.fetch = async (path) => {
    const query = new URL(path, "http://console").searchParams;
    asked.push(query.get("before"));
    const rows = all.filter((row) => row.at >= Number(query.get("since")) && Number(row.key) < Number(query.get("before") ?? Infinity));
    return Response.json({ rows: rows.slice(0, 1000), next: rows.length > 1000 ? rows[999].key : null, gaps: ["gap"], begins: 1 });
  };
  try {
    const some = await readEvents(10_000, "", signal);
    assert.deepEqual([some.rows, some.next, some.gaps], [all.filter((row) => row.at >= 10_000), null, ["gap"]]);
    assert.deepEqual([asked.splice(0), cutAt(some, 10_000)], [[null, "11346", "10346"], null]);
    const most = await readEvents(0, "", signal);
    assert.deepEqual([most.rows.length, most.next, cutAt(most, 0)], [EVENT_PAGES * 1000, "7346", 7346]);
    // The span moves on: what is cut is before it at last.
    assert.equal(cutAt(most, 8_000), null);
  } finally {
    globalThis.fetch = real;
  }
});

test("one page continues what is known, unless something would be missing between", () => {
  const page = (next, ...numbers) => ({ rows: numbers.map((number) => ({ key: String(number), at: number })), next, gaps: [], begins: 1 });
  const numbers = ({ rows, next }) => [rows.map((row) => row.at).sort((a, b) => b - a).join(), next];
  assert.deepEqual(numbers(continued(page(null, 5, 4, 3), page(6, 8, 7, 6), 0)), ["8,7,6", 6]);
  assert.deepEqual(numbers(continued(page(3, 5, 4, 3), page(5, 7, 6, 5), 4)), ["7,6,5,4", 3]);
  assert.deepEqual(numbers(continued(page(null, 5, 4, 3), page(null, 6, 5, 4), 4)), ["6,5,4", null]);
});

test("every cluster with events has a lane, and a lane one mark where several cannot be distinguished", () => {
  const event = (at, cluster, kind = "config") => ({ key: `${at}`, at, cluster, kind, new: null });
  const many = Array.from({ length: 70 }, (_, index) => event(index, `c${index}`));
  assert.deepEqual([lanes(many).length, lanes(many)[0][0]], [70, "c69"]);
  const found = lanes([event(1, "a"), event(3, null), event(2, "a")]).map(([name, own]) => [name, own.map((one) => one.at)]);
  assert.deepEqual(found, [["", [3]], ["a", [2, 1]]]);
  assert.deepEqual(marks([event(10, "a"), event(11, "a"), event(12, "a", "death"), event(5_000, "a")], 0, 10_000).map(({ event: { at }, left }) => [at, left]), [[10, 0.001], [12, 0.0012], [5_000, 0.5]]);
});

const { resolved, kindOf, blank, fits, hasLargeNumbers, laidOut, disagreements } = await load("schema.ts");

test("a form begins as empty as its schema allows, and follows local references alone", () => {
  const root = {
    type: "object",
    required: ["name", "kind", "place"],
    properties: { name: { type: "string" }, kind: { enum: ["a", "b"] }, place: { $ref: "#/$defs/place" }, note: { type: "string" } },
    $defs: { place: { type: "object", required: ["row"], properties: { row: { type: "integer", minimum: 3 } } }, loop: { $ref: "#/$defs/loop" } },
  };
  assert.deepEqual(blank(root, root), { name: "", kind: "a", place: { row: 3 } });
  assert.equal(kindOf(resolved({ $ref: "#/$defs/place" }, root)), "object");
  assert.equal(kindOf(resolved({ $ref: "https://elsewhere.example/schema" }, root)), "any");
  assert.equal(kindOf(resolved({ $ref: "#/$defs/loop" }, root)), "any");
});

test("alternatives are distinguished by what they require and allow", () => {
  const [commit, tag] = ["commit", "tag"].map((name) => ({ type: "object", required: [name], properties: { [name]: { type: "string" } }, additionalProperties: false }));
  assert.ok(fits({ commit: "5a" }, commit, {}) && !fits({ commit: "5a" }, tag, {}));
  assert.ok(fits({ tag: "v1" }, { oneOf: [commit, tag] }, {}) && !fits({ other: 1 }, { oneOf: [commit, tag] }, {}));
  assert.ok(!fits("3", { type: "integer" }, {}) && fits(null, {}, {}));
});

test("a document whose numbers would be rounded is left as it is", () => {
  const large = '{"n":12345678901234567890}';
  assert.ok(hasLargeNumbers(large) && !hasLargeNumbers('{"n":"12345678901234567890","m":123}'));
  assert.equal(laidOut(large), large);
  assert.equal(laidOut('{"n":1}'), '{\n  "n": 1\n}');
});

test("of two writers' changes those to one value in two ways are in conflict", () => {
  const found = disagreements('{"a":1,"b":1,"c":1,"d":1}', '{"a":2,"b":1,"c":2,"d":2}', '{"a":3,"b":3,"c":1,"d":2}');
  assert.deepEqual(found.map(({ path, conflict }) => [path, conflict]), [["a", true], ["b", false], ["c", false], ["d", false]]);
  assert.deepEqual(disagreements('{"a":1}', '{"a":1}', ""), [{ path: "a", before: "1", mine: "1", theirs: null, conflict: false }]);
});

const { tried, toggled, quotedOf, captures, NO_TRIAL } = await load("policy.ts");

test("every value that a trial allows is captured from a host that has quoted it", () => {
  const host = (name, ...pcrs) => ({ cluster: "A", name, pcrs: pcrs.map(([register, quoted]) => ({ register, quoted })) });
  const hosts = [host("a", [4, "aa"], [7, "77"]), host("b", [4, "bb"], [7, "77"]), { ...host("c", [4, "cc"]), cluster: "B" }];
  const { found, left } = captures(hosts, "A", new Set(["4=aa", "4=bb", "7=77", "4=cc"]));
  assert.deepEqual(found.map(([{ name }, registers]) => [name, registers]), [["a", [4, 7]], ["b", [4]]]);
  assert.deepEqual(left, ["4=cc"]);
});

test("a trial allows, takes away and enrols, and is never signed", () => {
  const policy = { bank: "sha256", pcrs: { 4: { expected: ["aa"] }, 9: { warnOnly: true } }, endorsement: { require: "enrolment", enrolled: [{ ek: "1" }] }, signature: { serial: 1, notAfterMs: 1 } };
  let trial = toggled(toggled(NO_TRIAL, "allowed", "4=bb"), "taken", "4=aa");
  trial = toggled(toggled(trial, "dropped", "1"), "enrolled", "2");
  assert.deepEqual(tried(policy, trial), { bank: "sha256", pcrs: { 4: { expected: ["bb"] }, 9: { warnOnly: true } }, endorsement: { require: "enrolment", enrolled: [{ ek: "2" }] } });
  const { signature: _, ...unsigned } = policy;
  assert.deepEqual(tried(policy, toggled(trial, "allowed", "4=bb") && NO_TRIAL), unsigned);
  const host = (name, quoted) => ({ cluster: "A", name, pcrs: [{ register: 4, quoted }] });
  assert.deepEqual(quotedOf([host("a", "AA"), host("b", "bb"), host("c", "bb"), { ...host("d", "cc"), cluster: "B" }], "A", "4", ["aa"]), [["bb", ["b", "c"]]]);
});

test("a value is sealed so that the holder of the key alone opens it, where it is bound to", async () => {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const spki = publicKey.export({ type: "spki", format: "der" });
  const sequence = (...parts) => {
    const content = Buffer.concat(parts);
    return Buffer.concat([Buffer.from([0x30, 0x82, content.length >> 8, content.length & 0xff]), content]);
  };
  const [version, serial, empty] = [Buffer.from("a003020102", "hex"), Buffer.from("020101", "hex"), Buffer.from("3000", "hex")];
  const certificate = (...head) => sequence(sequence(...head, serial, empty, empty, empty, empty, spki, empty), empty, empty);
  const pem = (bytes) => `-----BEGIN CERTIFICATE-----\n${bytes.toString("base64").match(/.{1,64}/g).join("\n")}\n-----END CERTIFICATE-----\n`;
  const wanted = { namespace: "fplus-edge", name: "press-login", key: "password", scope: "strict", type: "Opaque" };
  const opened = async (sealed, label) => {
    const bytes = Buffer.from(sealed, "base64");
    const end = 2 + bytes.readUInt16BE(0);
    const session = privateDecrypt({ key: privateKey, oaepHash: "sha256", oaepLabel: Buffer.from(label) }, bytes.subarray(2, end));
    const cipher = createDecipheriv("aes-256-gcm", session, Buffer.alloc(12));
    cipher.setAuthTag(bytes.subarray(-16));
    return Buffer.concat([cipher.update(bytes.subarray(end, -16)), cipher.final()]).toString();
  };
  for (const one of [pem(certificate(version)), pem(certificate())]) {
    for (const [scope, label] of [["strict", "fplus-edge/press-login"], ["namespace-wide", "fplus-edge"], ["cluster-wide", ""]]) {
      const sealed = await seal(one, { ...wanted, scope }, new TextEncoder().encode("hällo"));
      assert.equal(await opened(sealed, label), "hällo");
      await assert.rejects(opened(sealed, `${label}x`));
      assert.notEqual(await seal(one, { ...wanted, scope }, new TextEncoder().encode("hällo")), sealed);
    }
  }
  await assert.rejects(seal("no certificate", wanted, new Uint8Array(1)), /cannot be read/);
  assert.deepEqual(sealedSecret({ ...wanted, scope: "cluster-wide" }, "AA").metadata.annotations, { "sealedsecrets.bitnami.com/cluster-wide": "true" });
  assert.equal(sealedSecret({ ...wanted, type: "kubernetes.io/tls" }, "AA").spec.template.type, "kubernetes.io/tls");
});

test("hosts of one name have addresses and arguments of their own", () => {
  const host = (key, name, id) => ({ key: `A/${key}`, cluster: "A", name, joining: id === undefined ? null : { id } });
  const [first, second, other, node] = [host("press-1", "press-1", "id-1"), host("id-2", "press-1", "id-2"), host("press-2", "press-2", "id-3"), host("press-3", "press-3")];
  const elsewhere = { ...host("press-2", "press-2", "id-4"), key: "B/press-2", cluster: "B" };
  const all = [first, second, other, node, elsewhere];
  assert.deepEqual(all.map(hostLink), ["/host/A/press-1", "/host/A/id-2", "/host/A/press-2", "/host/A/press-3", "/host/B/press-2"]);
  assert.deepEqual(all.map((row) => hostArgument(row, all)), ["A/id-1", "A/id-2", "A/press-2", "A/press-3", "B/press-2"]);
  assert.deepEqual(all.map((row) => namesakes(row, all).map((one) => one.key)), [["A/id-2"], ["A/press-1"], [], [], []]);
});

test("a token is revoked by its own name, and not by that of its object", () => {
  assert.equal(commands.revokeToken(nameOf({ key: "k", name: "API token ada" })), "sparkfleet token revoke ada");
  assert.deepEqual([nameOf({ key: "k", name: "ada" }), nameOf({ key: "k", name: null })], ["ada", "k"]);
});

test("names of a Secret are those that Kubernetes takes", () => {
  const problem = (change) => namesProblem({ namespace: "fplus-edge", name: "press-login", key: "password", scope: "strict", type: "Opaque", ...change })?.field;
  assert.equal(problem({}), undefined);
  for (const namespace of ["", "A", "a.b", "-a", "a-", "a".repeat(64)]) assert.equal(problem({ namespace }), "namespace", namespace);
  for (const name of ["", "..", "a/b", "Press", "a".repeat(254)]) assert.equal(problem({ name }), "name", name);
  for (const key of ["", ".", "..", "a b", "a/b"]) assert.equal(problem({ key }), "key", key);
  assert.equal(problem({ type: "" }), "type");
});

test("a delivery note is read line by line, and what is wrong is named by its line", () => {
  const ek = (digit) => digit.repeat(64);
  const disk = "00000000-0000-4000-8000-00000000000a";
  const list = readList(`# pallet 7\n${ek("A")}, press-1 , ${disk}, worker\n\n${ek("b")}\n${ek("c")},,,control-plane,${ek("d")}`);
  assert.deepEqual(list, { lines: [`${ek("a")},press-1,${disk},worker`, ek("b"), `${ek("c")},,,control-plane,${ek("d")}`], wrong: [] });
  const bad = readList(["x", `${ek("a")},Press 1`, `${ek("b")},,disk`, `${ek("c")},,,king`, `${ek("d")},,,,iak`, `${ek("e")},a,,,,`, ek("f"), ek("f"), ek("1")].join("\n"), new Set([ek("1")]));
  assert.deepEqual(bad.wrong.map((text) => text.split(":")[0]), ["line 1", "line 2", "line 3", "line 4", "line 5", "line 6", "line 8", "line 9"]);
  assert.equal(bad.lines.length, 1);
  assert.equal(enrolCommand("Body_Shop", list.lines), `printf '%s\\n' ${list.lines.join(" ")} | sparkfleet host enrol Body_Shop -`);
  assert.equal(enrolCommand("--dry-run", list.lines), null);
  assert.equal(enrolCommand("Body_Shop", []), null);
  // A name that a machine gives itself is quoted, or not pasted at all.
  assert.equal(enrolCommand("Body_Shop", [lineOf({ ek: ek("a"), name: "$(reboot)", disk: null, role: "worker" })]), `printf '%s\\n' '${ek("a")},$(reboot)' | sparkfleet host enrol Body_Shop -`);
  assert.equal(enrolCommand("Body_Shop", [lineOf({ ek: ek("a"), name: "a\nb", disk: null, role: "worker" })]), null);
});
