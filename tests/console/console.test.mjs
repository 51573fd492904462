// What people do with the console, in a browser: against `sparkfleet up`, and (site.test.mjs) against separate processes on Mosquitto.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, mkdir } from "node:fs/promises";
import { once } from "node:events";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { BOOLEAN, DOUBLE, EdgeNode, STRING } from "./edge-node.mjs";
import { Factory } from "./factory.mjs";
import { identityProvider } from "./identity-provider.mjs";
import { MOSQUITTO, Site } from "./site.mjs";
import { typesOf, wrongWith } from "./types.mjs";

const repository = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = process.env.SPARKFLEET ?? join(repository, "target/debug/sparkfleet");
/** Whether every service is a process of its own, and the broker Mosquitto. */
const isSite = process.env.FACTORY === "site";
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** Why nothing can be tried, if so. */
const skip = !existsSync(executablePath) ? `there is no Chromium at ${executablePath}` : isSite && !existsSync(MOSQUITTO) ? `there is no Mosquitto at ${MOSQUITTO}` : false;
/** Every wait for a state of the page ends here: the machine may have much else to do. */
const LIMIT_MS = 90_000;
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const HOSTILE = "<img src=x onerror=window.hacked=1>\u202e";
/** A member by attestation; the other hosts of a site are Nodes from the start. */
const MEMBER = isSite ? "body-shop-5" : "body-shop-2";
const PAGES = ["/", "/clusters", "/cluster/Body_Shop", "/cluster/Body_Shop?tab=secrets", "/hosts", `/host/Body_Shop/${MEMBER}`, "/enrolment", "/access", "/audit", "/deployments", "/deployment/Body_Shop/Robot_Cell_1", "/alerts", "/runbook", "/policy/Body_Shop", "/config?q=Body_Shop", "/rollouts", "/explorer/ACME-Body_Shop/Sync", "/timeline", "/system"];

let factory;
let browser;
/** The page that was opened last. */
let current;
/** Tokens of an operator, of a viewer, of an operator of one cluster, and of an administrator. */
let tokens;

/** A page that records everything that must not happen. */
async function open(path, { url = factory.url, awaited = "live", ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(LIMIT_MS);
  const page = await context.newPage();
  current = page;
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("console", (message) => /content security|trusted/i.test(message.text()) && wrong.push(message.text()));
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(url + path);
  await page.locator(".link-state", { hasText: awaited }).waitFor();
  page.close_checked = async () => {
    assert.deepEqual([...wrong, ...(await page.evaluate(() => window.violations))], []);
    await context.close();
  };
  return page;
}

/** One that kills processes. */
const scenarioOfSite = (name, run) => isSite && scenario(name, run);

/** A scenario that, if it fails, says what the page showed and what the factory wrote. */
function scenario(name, run) {
  test(isSite ? `${name} (separate processes)` : name, { skip, timeout: 4 * LIMIT_MS }, async () => {
    try {
      await run();
    } catch (error) {
      const shown = await current?.locator("body").innerText({ timeout: 5_000 }).catch((reason) => `nothing can be read: ${reason.message}`);
      console.log(`---- ${name}: ${current?.url()} ----\n${shown}\n---- the factory's last words ----\n${factory.lastWords()}`);
      throw error;
    }
  });
}

/** Signs in by the page's own form. */
async function signIn(page, token) {
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("dialog").getByLabel("Token").fill(token);
  await page.getByRole("dialog").getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: /Sign out/ }).waitFor();
}

const tile = (page, name) => page.locator(".tile", { has: page.getByText(name, { exact: true }) });

describe(isSite ? "console of a site" : "console", { concurrency: false }, () => {
  before(async () => {
    if (skip) return;
    factory = isSite ? new Site(program) : new Factory(program);
    await factory.start();
    await factory.settled();
    tokens = {
      operator: await factory.token("operator", "--scope", "operator"),
      viewer: await factory.token("viewer", "--scope", "viewer"),
      ofOne: await factory.token("of-one", "--scope", "operator", "--cluster", "Body_Shop"),
      administrator: await factory.token("administrator", "--scope", "administrator"),
    };
    browser = await chromium.launch({ executablePath, args: ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"], timeout: LIMIT_MS });
  });

  after(async () => {
    await browser?.close();
    await factory?.stop();
  });

  scenario("the page that is served is the committed bundle", async () => {
    for (const name of ["index.html", "app.js", "app.css", "icon.svg"]) {
      const served = Buffer.from(await (await fetch(`${factory.url}/${name}`)).arrayBuffer());
      const committed = await readFile(join(repository, "services/console/assets", name));
      assert.ok(served.equals(committed), `${name} is not the committed one`);
    }
  });

  scenario("the wall shows every cluster with its health", async () => {
    const page = await open("/");
    await tile(page, "Body_Shop").and(page.locator("[data-health=good]")).waitFor();
    await tile(page, "Press_Shop").and(page.locator("[data-health=good]")).waitFor();
    await page.getByText("All is well").waitFor();
    await page.close_checked();
  });

  scenario("who has signed in creates a cluster, and it becomes good when it is alive", async () => {
    const page = await open("/");
    await signIn(page, tokens.operator);
    await page.getByRole("button", { name: "New cluster" }).click();
    await page.getByLabel("Name", { exact: true }).fill("Paint Shop");
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("alert").getByText("The name must be made of").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("Paint_Shop");
    await page.getByRole("button", { name: "Create" }).click();
    await page.locator(".notice.h-good", { hasText: "Create cluster Paint_Shop" }).waitFor();
    await page.locator(".ladder .step-done", { hasText: "ready" }).waitFor();
    if (isSite) await factory.startCluster("Paint_Shop");
    await page.getByRole("button", { name: "Make the command" }).click();
    await page.getByLabel("Command").filter({ hasText: "curl -fsS" }).waitFor();
    await page.goto(`${factory.url}/`);
    await tile(page, "Paint_Shop").and(page.locator("[data-health=good]")).waitFor();
    await page.close_checked();
  });

  scenario("who has signed in creates, moves and deletes a deployment", async () => {
    const page = await open("/cluster/Paint_Shop?tab=deployments");
    await signIn(page, tokens.operator);
    await page.getByRole("button", { name: "New deployment" }).click();
    await page.getByLabel("Name", { exact: true }).fill("Oven_1");
    await page.getByRole("button", { name: "Create" }).click();
    await page.locator("h1 .mark.h-good").waitFor();
    await page.locator(".path .step-done", { hasText: "ready" }).waitFor();
    // Each step has the milliseconds since the one before, as the messages say.
    const steps = page.locator(".path .leg .took");
    for (let step = 1; step < 5; step += 1) await steps.nth(step).filter({ hasText: /\+[\d\u2009]+ ms|clocks differ/ }).waitFor();
    await page.getByText(/From desired to ready in [\d\u2009]+ ms/).waitFor();
    const { path } = (await factory.rows("deployments")).find((row) => row.name === "Oven_1");
    assert.deepEqual(path.map(({ leg }) => leg), ["desired", "acknowledged", "received", "applied", "ready"]);
    assert.equal(path.slice(1).reduce((sum, { ms }) => sum + ms, 0), path.at(-1).at - path[0].at);
    await page.getByRole("button", { name: "Move" }).click();
    await page.getByLabel("Host").selectOption("paint-shop-2");
    await page.getByRole("dialog").getByRole("button", { name: "Move" }).click();
    await page.locator(".details").getByRole("link", { name: "paint-shop-2" }).waitFor();
    await page.getByRole("button", { name: "Suspend" }).click();
    await page.locator(".details").getByText("suspended", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Reconcile" }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Resume" }).click();
    await page.locator("h1 .mark.h-good").waitFor();
    await page.getByRole("button", { name: "Reconcile" }).click();
    await page.locator(".notice.h-good", { hasText: "Reconcile Oven_1" }).waitFor();
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("button", { name: "Delete the deployment" }).click();
    await page.getByRole("alert").getByText("The name is not the one above.").waitFor();
    await page.getByLabel(/Type the name/).fill("Oven_1");
    await page.getByRole("button", { name: "Delete the deployment" }).click();
    await page.locator(".notice.h-good", { hasText: "Delete deployment Oven_1" }).waitFor();
    await page.getByRole("button", { name: /Sign out/ }).click();
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await page.close_checked();
  });

  scenario("a viewer signs in and cannot act", async () => {
    const page = await open("/cluster/Body_Shop");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("dialog").getByLabel("Token").fill(`sfp_${"A".repeat(43)}`);
    await page.getByRole("dialog").getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").getByText("unknown or revoked").waitFor();
    await page.keyboard.press("Escape");
    const buttons = ["New deployment", "Reconcile", "Wave…", "Delete"];
    await signIn(page, tokens.viewer);
    await page.getByRole("navigation", { name: "Parts of this page" }).waitFor();
    for (const name of buttons) assert.equal(await page.getByRole("button", { name }).count(), 0, name);
    assert.deepEqual(await page.locator(".head-actions button").allInnerTexts(), []);
    // An operator has them, by these names, and as many.
    await page.getByRole("button", { name: /Sign out/ }).click();
    await signIn(page, tokens.operator);
    for (const name of buttons) await page.locator(".head-actions").getByRole("button", { name }).waitFor();
    assert.equal(await page.locator(".head-actions button").count(), buttons.length);
    await page.getByRole("button", { name: /Sign out/ }).click();
    await page.getByRole("button", { name: "Sign in" }).waitFor();
    await signIn(page, tokens.viewer);
    await page.locator(".head-actions button").first().waitFor({ state: "detached" });
    assert.equal(await page.evaluate(() => document.cookie), "", "scripts cannot read the session");
    await page.close_checked();
  });

  scenario("nothing is done for who may not, and what is done is done once and recorded", async () => {
    const clusters = await factory.rows("clusters");
    const [body, press] = ["Body_Shop", "Press_Shop"].map((name) => clusters.find((row) => row.name === name).key);
    const wave = (cluster) => ({ cluster, wave: 8 });
    const status = async (...action) => (await factory.act(...action)).status;
    assert.equal(await status(tokens.operator, "cluster.wave", wave(body), { authorization: "" }), 401, "without a token");
    assert.equal(await status(tokens.operator, "cluster.wave", wave(body), { "x-sparkfleet": "" }), 403, "a form of another page");
    assert.equal(await status(tokens.operator, "cluster.wave", wave(body), { origin: "http://evil.example" }), 403, "another page");
    assert.equal(await status(tokens.operator, "cluster.wave", wave(body), { host: "evil.example" }), 421, "a name that leads here");
    assert.equal(await status(tokens.viewer, "cluster.wave", wave(body)), 403, "a viewer");
    assert.equal(await status(tokens.ofOne, "cluster.wave", wave(press)), 403, "an operator of another cluster");
    assert.equal(await status(tokens.ofOne, "cluster.create", { name: "Other" }), 403, "an operator of one cluster");
    assert.equal(await status(tokens.operator, "entry.put", { object: body, application: "Info", value: {}, etag: null }), 403, "no administrator");
    assert.equal(await status(tokens.operator, "cluster.wave", { cluster: body, wave: 10 }), 400);
    assert.equal(await status(tokens.operator, "host.approve", {}), 404);
    const key = { "idempotency-key": "the same" };
    const [first, again] = [await factory.act(tokens.ofOne, "cluster.wave", wave(body), key), await factory.act(tokens.ofOne, "cluster.wave", wave(body), key)];
    assert.deepEqual([first.status, again.status, again.body.id], [202, 202, first.body.id]);
    assert.equal(await status(tokens.ofOne, "cluster.wave", { cluster: body, wave: 7 }, key), 422);
    assert.equal((await factory.ended(first.body.id)).state, "done");
    // What is shown once is shown once, and made once.
    const once = { "idempotency-key": "once" };
    const token = (name) => factory.act(tokens.administrator, "token.create", { name, scope: "viewer" }, once);
    const [made, repeated] = [await token("ada"), await token("ada")];
    assert.deepEqual([made.status, repeated.status, repeated.body], [202, 202, { id: made.body.id }]);
    assert.match(made.body.token, /^sfp_/);
    assert.equal((await token("eve")).status, 422);
    assert.equal((await factory.ended(made.body.id)).state, "done");
    const command = () => factory.act(tokens.operator, "cluster.bootstrap", { cluster: body }, once);
    const [offered, again2] = [await command(), await command()];
    assert.deepEqual([offered.status, again2.status, again2.body], [200, 202, { id: offered.body.id }]);
    const { tokens: written } = JSON.parse((await factory.rows(`entries:${body}`)).find((row) => row.key === "EdgeClusterEnrolment").json);
    assert.equal(written.filter((one) => one.by === "console/token:operator").length, 1);
    const stale = await factory.act(tokens.administrator, "entry.put", { object: body, application: "Info", value: { name: "Body_Shop" }, etag: null });
    const refused = await factory.ended(stale.body.id);
    assert.equal(refused.state, "refused", refused.text);
    const wrong = [];
    for (let n = 0; n < 100; n += 1) wrong.push(await status(`sfp_${"B".repeat(43)}`, "cluster.wave", wave(body)));
    assert.ok(wrong.includes(429) && wrong.filter((one) => one === 401).length <= 12, String(wrong));
    assert.equal(await status(tokens.operator, "cluster.wave", wave(body)), 202, "a good token is taken all the same");
    const file = join(factory.folder, ".sparkfleet/console/audit.jsonl");
    const records = (await readFile(file, "utf8")).trim().split("\n").map((line) => JSON.parse(line));
    assert.ok(records.some((one) => one.who === "token:of-one" && one.operation === "set-wave" && one.result === "done"));
    assert.ok(records.some((one) => one.who === "token:viewer" && one.result === "refused"));
    assert.ok(!JSON.stringify(records).includes("sfp_"));
    await factory.run("audit", "verify", file);
    // The page shows the same to administrators, and to no other user.
    const page = await open("/audit");
    await page.getByRole("alert").getByText("sign in; administrators of all clusters").waitFor();
    await signIn(page, tokens.operator);
    await page.getByRole("alert").getByText("read-audit needs the scope administrator; yours is operator").waitFor();
    await page.getByRole("button", { name: /Sign out/ }).click();
    await signIn(page, tokens.administrator);
    const shown = page.getByRole("table", { name: "Record of actions" });
    await shown.getByRole("row", { name: /token:of-one.*set-wave.*Body_Shop.*done/ }).first().waitFor();
    await shown.getByRole("row", { name: /token:viewer.*set-wave.*refused: / }).first().waitFor();
    // It is current: what is done while it is shown is in it.
    const later = await factory.act(tokens.administrator, "cluster.wave", wave(body));
    assert.equal((await factory.ended(later.body.id)).state, "done");
    await shown.getByRole("row", { name: /token:administrator.*set-wave.*Body_Shop.*done/ }).first().waitFor();
    await page.close_checked();
  });

  scenario("an administrator makes and revokes a token, and an operator has a cluster reconciled", async () => {
    const page = await open("/access");
    await signIn(page, tokens.operator);
    await page.getByRole("table", { name: "Tokens" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "New token" }).count(), 0, "an operator makes no token");
    assert.equal(await page.getByRole("button", { name: "Revoke viewer" }).count(), 0);
    await page.goto(`${factory.url}/cluster/Body_Shop`);
    await page.getByRole("button", { name: "Reconcile" }).click();
    await page.locator(".notice.h-good", { hasText: "Reconcile Body_Shop" }).waitFor();
    await page.goto(`${factory.url}/access`);
    await page.getByRole("button", { name: /Sign out/ }).click();
    await signIn(page, tokens.administrator);
    await page.getByRole("button", { name: "New token" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
    await page.getByRole("alert").getByText("The name must be made of").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("laptop");
    await page.getByLabel("Scope").selectOption("operator");
    await page.getByLabel("For", { exact: true }).selectOption("Body_Shop");
    await page.getByText("Copy as command").click();
    await page.getByLabel("Command").filter({ hasText: "sparkfleet token create laptop --scope=operator --cluster=Body_Shop" }).waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
    await page.locator(".notice.h-good", { hasText: "Create token laptop" }).waitFor();
    const token = await page.locator("[data-token] code").innerText();
    const read = (path) => factory.request("GET", path, { authorization: `Bearer ${token}` });
    await factory.until("a token that counts", async () => (await read("/api/v1/clusters")).status === 200);
    const { body } = await read("/api/v1/session");
    assert.deepEqual([body.user, body.role, body.actions.includes("cluster.create")], ["token:laptop", "operator", false]);
    await page.getByRole("button", { name: "Put it away" }).click();
    assert.equal(await page.getByText(token).count(), 0, "it is shown once");
    await page.getByRole("button", { name: "Revoke laptop" }).click();
    await page.getByRole("dialog").getByRole("textbox", { name: /Type the name/ }).fill("laptop");
    await page.getByRole("dialog").getByRole("button", { name: "Revoke the token" }).click();
    await page.locator(".notice.h-good", { hasText: "Revoke token laptop" }).waitFor();
    await factory.until("the refusal of the token", async () => (await read("/api/v1/clusters")).status === 401);
    await page.close_checked();
  });

  scenario("a host shows its way in and its PCRs", async () => {
    if (isSite) await factory.startJoining("Body_Shop", MEMBER);
    const page = await open(`/host/Body_Shop/${MEMBER}`);
    await page.locator(".ladder .step-done", { hasText: "member" }).waitFor();
    await page.getByRole("table", { name: "PCRs of the TPM" }).getByText("boot loader").waitFor();
    const { ek } = (await factory.rows("hosts")).find((row) => row.key === `Body_Shop/${MEMBER}`);
    await page.getByText(`sparkfleet host approve Body_Shop/${MEMBER} --ek=${ek} --wait`).waitFor();
    await page.close_checked();
  });

  scenario("a refused host says why and what to do", async () => {
    factory.background("simulate-host", "body-shop-9", "--cluster", "Body_Shop", "--measure", "4=another-boot-loader");
    const page = await open("/host/Body_Shop/body-shop-9");
    await page.locator(".refusal").waitFor();
    await page.locator(".refusal").getByText("What to do:").waitFor();
    // The PCR that differs is marked, digit by digit, and no other one.
    const pcrTable = page.getByRole("table", { name: "PCRs of the TPM" });
    const differing = pcrTable.getByRole("row", { name: /^4 boot loader differs/ });
    await differing.locator(".mark.h-attention", { hasText: "differs" }).waitFor();
    const { pcrs } = (await factory.rows("hosts")).find((row) => row.key === "Body_Shop/body-shop-9");
    const { expected, quoted } = pcrs.find((pcr) => pcr.register === 4);
    const wanted = await differing.locator(".pcr", { hasText: "expected" }).locator("code").allInnerTexts();
    assert.deepEqual(wanted, expected);
    const shown = differing.locator(".pcr", { hasText: "quoted" }).locator("code");
    assert.equal(await shown.innerText(), quoted);
    const digits = await shown.locator("mark").allInnerTexts();
    assert.ok(digits.length > 0 && digits.join("").length < quoted.length, String(digits));
    assert.deepEqual(await pcrTable.locator("tbody tr", { has: page.locator("mark") }).count(), 1);
    assert.equal(await pcrTable.getByRole("row", { name: /match/ }).count(), pcrs.filter((pcr) => pcr.verdict === "match").length);
    await page.getByLabel("Command").filter({ hasText: "sparkfleet policy capture Body_Shop/body-shop-9 --pcr=4" }).waitFor();
    await page.getByRole("link", { name: "Fleet", exact: false }).first().click();
    await page.getByRole("heading", { level: 1, name: "1 host needs a look" }).waitFor();
    await page.close_checked();
  });

  scenario("a policy is tried out before it is signed", async () => {
    const page = await open("/policy/Body_Shop");
    const hosts = page.getByRole("table", { name: "Hosts under this policy" });
    const row = hosts.getByRole("row", { name: /body-shop-9/ });
    await row.getByText("fails").first().waitFor();
    factory.background("simulate-host", "body-shop-8", "--cluster", "Body_Shop", "--measure", "4=a-third-boot-loader");
    await page.getByRole("checkbox", { name: /quoted by body-shop-9/ }).check();
    await page.getByRole("checkbox", { name: /^body-shop-9 .*not enrolled/ }).check();
    await page.getByText("body-shop-9: fails → passes").waitFor();
    await page.getByLabel("Command").filter({ hasText: "sparkfleet policy capture Body_Shop/body-shop-9 --pcr=4" }).waitFor();
    // Each value that is ticked has a command, also where another host has quoted it.
    await page.getByRole("checkbox", { name: /quoted by body-shop-8/ }).check();
    await page.getByLabel("Command").filter({ hasText: "sparkfleet policy capture Body_Shop/body-shop-8 --pcr=4" }).waitFor();
    await page.getByRole("button", { name: "Back to the policy in force" }).click();
    await page.getByText(/hosts known/).waitFor();
    // What a revision changed is compared with the one before.
    await factory.shell("sparkfleet host revoke Body_Shop/body-shop-9");
    await signIn(page, tokens.operator);
    await page.getByRole("button", { name: "Read the history" }).click();
    const past = page.getByRole("table", { name: "History of the entry" });
    // Revisions come one by one, the oldest first, so the newest is waited for.
    const object = (await factory.rows("clusters")).find((row) => row.name === "Body_Shop").key;
    const entry = await factory.until("the revoked key", async () =>
      (await factory.rows(`entries:${object}`)).find((row) => row.key === "AttestationPolicy" && JSON.parse(row.json).endorsement.revoked.length > 0));
    await past.getByRole("row").nth(1).getByRole("cell", { name: new RegExp(`^${[...String(entry.revision)].join("\\s?")}$`) }).waitFor();
    await page.getByLabel("Compare with").selectOption({ label: "the revision before" });
    await past.getByRole("row").nth(1).getByRole("button", { name: /values?…/ }).click();
    await past.getByText(/endorsement\.revoked/).first().waitFor();
    await page.close_checked();
  });

  scenario("a secret is sealed in the browser, and the cluster's repository takes what came out", async () => {
    const requests = [];
    const page = await open("/cluster/Body_Shop?tab=secrets");
    page.on("request", (request) => requests.push(`${request.url()} ${request.postData() ?? ""}`));
    await page.getByLabel("Name of the Secret").fill("press login");
    await page.getByLabel("Key in it").fill("password");
    await page.getByLabel("Value").fill("open sesame");
    await page.getByRole("button", { name: "Seal" }).click();
    await page.getByRole("alert").getByText("The name must be").waitFor();
    await page.getByLabel("Name of the Secret").fill("press-login");
    await page.getByRole("button", { name: "Seal" }).click();
    await page.locator("[data-sealed]").getByText("An operator who has signed in puts it").waitFor();
    assert.equal(await page.getByLabel("Value").inputValue(), "", "the value is not left in the page");
    assert.deepEqual(requests.filter((one) => one.includes("sesame")), []);
    await signIn(page, tokens.operator);
    await page.getByRole("button", { name: "Put into the repository" }).click();
    await page.locator(".notice.h-good", { hasText: "Put password of fplus-edge/press-login" }).waitFor();
    const stored = page.getByRole("table", { name: "Secrets" }).getByRole("row", { name: /fplus-edge\/press-login password this namespace and name/ });
    await stored.waitFor();
    assert.deepEqual(requests.filter((one) => one.includes("sesame")), []);
    const row = (await factory.rows("secrets")).find((row) => row.name === "press-login");
    assert.deepEqual([row.cluster, row.keys[0].state], ["Body_Shop", "written"]);
    await stored.getByRole("button", { name: "Delete press-login" }).click();
    await page.getByRole("dialog").getByRole("textbox").fill("press-login");
    await page.getByRole("dialog").getByRole("button", { name: "Delete the Secret" }).click();
    await page.locator(".notice.h-good", { hasText: "Delete fplus-edge/press-login" }).waitFor();
    await stored.waitFor({ state: "detached" });
    await page.close_checked();
  });

  scenario("an entry is edited by its form, and who is slower sees what the other wrote", async () => {
    const page = await open("/config?q=press_shop+class_name:cluster");
    await signIn(page, tokens.administrator);
    await page.getByRole("link", { name: "Press_Shop", exact: true }).click();
    await page.getByLabel("New entry").selectOption("EdgeClusterRollout");
    await page.getByLabel("Add to the entry").selectOption("wave");
    await page.getByLabel("wave", { exact: true }).fill("3");
    await page.getByRole("button", { name: "Write" }).click();
    await page.locator(".notice.h-good", { hasText: "Write EdgeClusterRollout of Press_Shop" }).waitFor();
    const object = (await factory.rows("clusters")).find((row) => row.name === "Press_Shop").key;
    const entry = async () => (await factory.rows(`entries:${object}`)).find((row) => row.key === "EdgeClusterRollout");
    const first = await entry();
    assert.deepEqual(JSON.parse(first.json), { wave: 3 });
    await page.getByLabel("wave", { exact: true }).fill("10");
    await page.getByRole("button", { name: "Write" }).click();
    await page.locator("form").getByRole("alert").waitFor();
    await page.getByLabel("wave", { exact: true }).fill("4");
    const other = await factory.act(tokens.administrator, "entry.put", { object, application: "EdgeClusterRollout", value: { wave: 5 }, etag: first.etag });
    assert.equal((await factory.ended(other.body.id)).state, "done");
    const differs = page.getByRole("table", { name: "What differs" }).getByRole("row", { name: /wave/ });
    await differs.waitFor();
    assert.deepEqual(await differs.getByRole("cell").allInnerTexts(), ["wave", "3", "4", "5"]);
    assert.ok(await page.getByRole("button", { name: "Write" }).isDisabled());
    await page.getByRole("button", { name: "Keep mine, over theirs" }).click();
    await page.getByRole("button", { name: "Write" }).click();
    await page.locator(".notice.h-good", { hasText: "Write EdgeClusterRollout of Press_Shop" }).nth(1).waitFor();
    const last = await entry();
    assert.deepEqual(JSON.parse(last.json), { wave: 4 });
    // The wall of later scenarios has the clusters in their usual order.
    const gone = await factory.act(tokens.administrator, "entry.delete", { object, application: "EdgeClusterRollout", etag: last.etag });
    assert.equal((await factory.ended(gone.body.id)).state, "done");
    await page.close_checked();
  });

  scenario("an object is created, its entry has a history, and an older value is restored", async () => {
    const page = await open("/config");
    await signIn(page, tokens.administrator);
    await page.getByRole("button", { name: "New object" }).click();
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("alert").getByText("The object needs a name.").waitFor();
    await page.getByLabel("Name", { exact: true }).fill("Line_7");
    await page.getByLabel("Class", { exact: true }).selectOption({ label: "Device" });
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("heading", { level: 1, name: "Line_7" }).waitFor();
    await page.getByRole("link", { name: "Info", exact: true }).click();
    await page.getByLabel("name", { exact: true }).fill("Line_8");
    await page.getByRole("button", { name: "Write", exact: true }).click();
    await page.locator(".notice.h-good", { hasText: "Write Info of Line_" }).waitFor();
    await page.getByRole("button", { name: "Read the history" }).click();
    const past = page.getByRole("table", { name: "History of the entry" });
    await past.getByRole("row").nth(2).waitFor();
    assert.ok(await past.getByText("console/token:administrator").count() >= 2, "it says who wrote");
    // An older value goes the same way as every other: into the editor, and from there with the ETag of now.
    await past.getByRole("button", { name: /^Restore revision/ }).click();
    assert.equal(await page.getByLabel("name", { exact: true }).inputValue(), "Line_7");
    await page.getByRole("button", { name: "Write", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Info" }).waitFor();
    const object = page.url().split("/").at(-2);
    await page.waitForFunction(async (object) => (await (await fetch(`/api/v1/entries:${object}`)).json()).rows.some((row) => row.key === "Info" && JSON.parse(row.json).name === "Line_7"), object);
    // A field that is not JSON says so, and is not written; what was added is given up.
    await page.goto(`${factory.url}/config/${object}`);
    await page.getByLabel("New entry").selectOption("ServiceConfig");
    await page.getByLabel("New name in the entry").fill("any");
    await page.getByLabel("New name in the entry").press("Enter");
    await page.getByLabel("any", { exact: true }).fill("not quoted");
    await page.getByRole("alert").getByText("This is not JSON.").waitFor();
    await page.getByRole("button", { name: "Write", exact: true }).click();
    await page.getByRole("alert").getByText("A field is not JSON yet").waitFor();
    await page.getByRole("button", { name: "Discard" }).click();
    await page.getByRole("heading", { level: 1, name: "Line_7" }).waitFor();
    assert.deepEqual((await factory.rows(`entries:${object}`)).map((row) => row.key).filter((key) => key === "ServiceConfig"), []);
    await page.close_checked();
  });

  scenario("a blocked rollout is freed of a cluster, a running one is held and resumed", async () => {
    const clusters = await factory.rows("clusters");
    const [body, press] = ["Body_Shop", "Press_Shop"].map((name) => clusters.find((row) => row.name === name).key);
    const done = async ({ body: { id } }) => assert.equal((await factory.ended(id)).state, "done");
    const entry = async (object, application) => (await factory.rows(`entries:${object}`)).find((row) => row.key === application);
    for (const [cluster, wave] of [[body, 1], [press, 2]]) await done(await factory.act(tokens.operator, "cluster.wave", { cluster, wave }));
    const chart = (await factory.rows("objects")).find((row) => row.name === "Edge agent" && row.entries.includes("HelmChartTemplate")).key;
    const put = async (value) => done(await factory.act(tokens.administrator, "entry.put", { object: chart, application: "HelmChartTemplate", value, etag: (await entry(chart, "HelmChartTemplate")).etag }));
    const good = JSON.parse((await entry(chart, "HelmChartTemplate")).json);
    await put({ ...good, values: { ...good.values, simulated: { fails: "this chart does not work" } } });
    const page = await open("/rollouts");
    const board = page.locator(".card", { has: page.getByRole("heading", { name: "Edge agent" }) });
    const card = (name) => board.locator(".wave-card", { has: page.getByRole("link", { name: new RegExp(name) }) });
    await card("Body_Shop").getByText("blocks").waitFor();
    await card("Press_Shop").getByText("waits", { exact: true }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Continue without it" }).count(), 0, "who has not signed in decides nothing");
    for (const token of [tokens.viewer, tokens.ofOne]) {
      assert.equal((await factory.act(token, "rollout.free", { template: chart, cluster: body })).status, 403);
      assert.equal((await factory.act(token, "rollout.hold", { template: chart })).status, 403);
    }
    await signIn(page, tokens.operator);
    await card("Body_Shop").getByRole("button", { name: "Continue without it" }).click();
    await page.getByLabel("Why").fill("it is being rebuilt");
    await page.getByRole("dialog").getByRole("button", { name: "Continue without it" }).click();
    await card("Body_Shop").getByText("console/token:operator").waitFor();
    await card("Body_Shop").getByText("it is being rebuilt").waitFor();
    await card("Press_Shop").getByText("blocks").waitFor();
    await page.getByRole("button", { name: "Hold the rollout of Edge agent" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Hold" }).click();
    await board.locator(".held", { hasText: "console/token:operator" }).waitFor();
    await put(good);
    for (const name of ["Body_Shop", "Press_Shop"]) await card(name).getByText("the rollout of Edge agent is held by console/token:operator").waitFor();
    assert.match((await factory.command("rollout", "list")).stdout, /held, says console\/token:operator/);
    await page.getByRole("button", { name: "Resume the rollout of Edge agent" }).click();
    for (const name of ["Body_Shop", "Press_Shop"]) await card(name).getByText("settled").waitFor();
    // The same on the command line.
    await factory.command("rollout", "hold", "Edge agent", "--note", "not before monday");
    await board.locator(".held", { hasText: "not before monday" }).waitFor();
    await factory.command("rollout", "resume", "Edge agent");
    await board.locator(".held").waitFor({ state: "detached" });
    const records = (await readFile(join(factory.folder, ".sparkfleet/console/audit.jsonl"), "utf8")).trim().split("\n").map((line) => JSON.parse(line));
    const of = (operation, result) => records.some((one) => one.operation === operation && one.result === result && one.who === (result === "refused" ? "token:viewer" : "token:operator"));
    assert.ok(of("free-rollout", "done") && of("hold-rollout", "done") && of("free-rollout", "refused"));
    for (const cluster of [body, press]) {
      const { etag } = await entry(cluster, "EdgeClusterRollout");
      await done(await factory.act(tokens.administrator, "entry.delete", { object: cluster, application: "EdgeClusterRollout", etag }));
    }
    await page.close_checked();
  });

  scenario("people sign in with their organisation's account, and may what their group may", async () => {
    const provider = await identityProvider();
    try {
      const url = await factory.consoleOf("LOGIN", provider);
      const page = await open("/", { url, awaited: "birth" });
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("link", { name: "Sign in with your organisation" }).click();
      await page.locator("input[name=login]").fill("ada");
      await page.locator("input[name=password]").fill("any");
      await page.getByRole("button", { name: "Sign-in" }).click();
      await page.getByRole("button", { name: "Continue" }).click();
      await page.getByRole("button", { name: "ada · Sign out" }).waitFor();
      assert.equal(await page.evaluate(() => document.cookie), "", "scripts cannot read the session");
      const session = await page.evaluate(async () => (await fetch("/api/v1/session")).json());
      assert.deepEqual([session.user, session.role, session.actions.includes("cluster.create")], ["oidc:ada", "operator", true]);
      await page.goto(`${url}/api/v1/session/oidc/callback?code=x&state=y`);
      await page.locator("[data-band=sign-in]", { hasText: "was not begun in this browser" }).waitFor();
      await page.close_checked();
    } finally {
      await provider.stop();
    }
  });

  scenario("the explorer shows live values of a node, its death and its return", async () => {
    const node = new EdgeNode(factory.brokerPort, "Foreign", "Press_1");
    await node.start([["Temperature", DOUBLE, 41.5], ["Running", BOOLEAN, true]]);
    const page = await open("/explorer/Foreign/Press_1");
    const row = page.getByRole("row", { name: /Temperature/ });
    await row.getByText("41.5").waitFor();
    node.report([["Temperature", DOUBLE, 43.25]]);
    await row.getByText("43.25").waitFor();
    const inTree = page.locator(".tree a[aria-current=page]");
    node.die();
    await inTree.getByText("away").waitFor({ state: "attached" });
    await node.start([["Temperature", DOUBLE, 20.25]], { bdSeq: 1 });
    await inTree.getByText("alive").waitFor({ state: "attached" });
    await row.getByText("20.25").waitFor();
    // It is judged by the server: a message that was lost is a thing of the past after the next birth, and stays counted.
    await inTree.locator(".shape.h-good").waitFor();
    node.lose();
    node.report([["Temperature", DOUBLE, 21.5]]);
    await inTree.locator(".shape.h-working").waitFor();
    await page.locator(".details > div", { hasText: "Out of sync" }).getByText("1", { exact: true }).waitFor();
    node.die();
    await inTree.getByText("away").waitFor({ state: "attached" });
    await node.start([["Temperature", DOUBLE, 20.25]], { bdSeq: 2 });
    await inTree.locator(".shape.h-good").waitFor();
    await page.locator(".details > div", { hasText: "Out of sync" }).getByText("1", { exact: true }).waitFor();
    await row.getByRole("link").click();
    await page.getByRole("heading", { name: "Temperature" }).waitFor();
    await page.close_checked();
    node.die();
  });

  scenario("a dialog shows what will be done, and sends nothing once a past time is looked at", async () => {
    const page = await open("/cluster/Press_Shop");
    await signIn(page, tokens.operator);
    const posts = [];
    page.on("request", (request) => request.method() === "POST" && posts.push(new URL(request.url()).pathname));
    // The page of a past time is before that of now in the browser's own history.
    await page.goto(`${factory.url}/cluster/Press_Shop?at=${Date.now() - 1000}`);
    await page.getByRole("heading", { level: 1, name: /Press_Shop/ }).waitFor();
    await page.locator("[data-band=past]").waitFor();
    assert.equal(await page.locator(".head-actions button").count(), 0, "nothing can be done there");
    await page.locator("[data-band=past]").getByRole("button", { name: "Back to now" }).click();
    await page.getByRole("button", { name: "Wave…" }).click();
    const dialog = page.getByRole("dialog", { name: "Wave of Press_Shop" });
    await dialog.getByLabel("Wave", { exact: true }).selectOption("6");
    const plan = dialog.getByRole("region", { name: "What will be done" });
    await plan.getByText("EdgeClusterRollout of").waitFor();
    await plan.getByText(/wave: .*6/).waitFor();
    assert.deepEqual([...new Set(posts)], ["/api/v1/actions/cluster.wave/plan"]);
    await page.goBack();
    await dialog.locator("[data-past]").waitFor();
    assert.ok(await dialog.getByRole("button", { name: "Set", exact: true }).isDisabled());
    await dialog.locator("form").evaluate((form) => form.requestSubmit());
    await page.goForward();
    await dialog.locator("[data-past]").waitFor({ state: "detached" });
    assert.ok(!posts.includes("/api/v1/actions/cluster.wave"), "nothing was sent");
    await dialog.getByRole("button", { name: "Set", exact: true }).click();
    await page.locator(".notice.h-good", { hasText: "Wave 6 for Press_Shop" }).waitFor();
    // What is destroyed is listed before the name is typed.
    await page.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").getByRole("region", { name: "What will be done" }).getByText("Press_Shop").first().waitFor();
    assert.ok(await page.getByRole("dialog").getByText("delete EdgeDeployment of").count() >= 1);
    await page.keyboard.press("Escape");
    await page.close_checked();
  });

  scenario("the timeline names who did what, compares two times, and gives the history of a month as a file", async () => {
    const t1 = Date.now();
    const cluster = (await factory.rows("clusters")).find((row) => row.name === "Press_Shop");
    const wave = cluster.wave === 3 ? 4 : 3;
    const { body } = await factory.act(tokens.operator, "cluster.wave", { cluster: cluster.key, wave });
    assert.equal((await factory.ended(body.id)).state, "done");
    const events = async (query) => (await (await fetch(`${factory.url}/api/v1/events?since=${t1}&${query}`)).json()).rows;
    const event = await factory.until("the event of the wave", async () => (await events("subject=cluster+Press_Shop")).find((row) => row.new === String(wave)));
    assert.deepEqual([event.who, event.cluster], ["token:operator", "Press_Shop"]);
    assert.deepEqual(await events("subject=cluster+None"), []);
    const t2 = event.at + 1;
    const page = await open(`/timeline?span=43200&t1=${t1}&t2=${t2}`);
    await page.locator(".events li", { hasText: `wave: ${cluster.wave} → ${wave}` }).first().getByText("by token:operator").waitFor();
    const differs = page.getByRole("table", { name: "Differences" }).getByRole("row", { name: /Press_Shop/ });
    await differs.getByText(`wave: ${cluster.wave} → ${wave}`).waitFor();
    await page.getByLabel("Command").filter({ hasText: `--diff=${new Date(t2).toISOString()}` }).waitFor({ state: "attached" });
    assert.equal(await page.getByRole("button", { name: "30 d" }).getAttribute("aria-pressed"), "true");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Export" }).click()]);
    const lines = (await readFile(await download.path(), "utf8")).trim().split("\n").map((line) => JSON.parse(line));
    assert.equal(download.suggestedFilename(), "history.jsonl");
    assert.equal(typeof lines.at(-1).end, "number", "the file is whole");
    // The end of the month is reached: a time of weeks ago is before this history, and the page says so.
    await page.getByText("The history begins at").waitFor();
    await page.close_checked();
    // The wall of later scenarios has the clusters in their usual order.
    const { etag } = (await factory.rows(`entries:${cluster.key}`)).find((row) => row.key === "EdgeClusterRollout");
    const gone = await factory.act(tokens.administrator, "entry.delete", { object: cluster.key, application: "EdgeClusterRollout", etag });
    assert.equal((await factory.ended(gone.body.id)).state, "done");
  });

  scenario("a deployment shows the entries that it is made of, and what happened to it", async () => {
    const deployment = (await factory.rows("deployments")).find((row) => row.cluster === "Press_Shop" && row.state === "applied");
    const t1 = Date.now();
    const { body } = await factory.act(tokens.operator, "deployment.suspend", { deployment: deployment.key });
    assert.equal((await factory.ended(body.id)).state, "done");
    const page = await open(`/deployment/Press_Shop/${deployment.name}`);
    const happened = page.locator(".card", { has: page.getByRole("heading", { name: "What happened" }) });
    await happened.getByText(/state: \S+ → suspended/).first().waitFor();
    const rows = (await (await fetch(`${factory.url}/api/v1/events?since=${t1}&subject=${encodeURIComponent(`deployment ${deployment.name}`)}`)).json()).rows;
    assert.ok(rows.length > 0 && rows.every((row) => row.subject === `deployment ${deployment.name}`));
    const written = page.locator("[data-entry=EdgeDeployment]");
    await written.locator("summary").click();
    await written.getByText('"suspend": true').waitFor();
    const template = page.locator("[data-entry=HelmChartTemplate]");
    await template.locator("summary").click();
    await template.getByText('"chart":').waitFor();
    const manifests = page.locator(".card", { has: page.getByRole("heading", { name: "Manifests" }) });
    await manifests.getByText("The edge has applied these manifests.").waitFor();
    await manifests.locator("[data-manifest=HelmRelease] summary").click();
    await manifests.getByText('"suspend": true').waitFor();
    const resumed = await factory.act(tokens.operator, "deployment.suspend", { deployment: deployment.key, withdraw: true });
    assert.equal((await factory.ended(resumed.body.id)).state, "done");
    await page.locator("h1 .mark.h-good").waitFor();
    await happened.getByText(/state: suspended → /).first().waitFor();
    await page.close_checked();
  });

  scenario("the explorer decodes aliases, and says of an unknown one that the node is not understood", async () => {
    const node = new EdgeNode(factory.brokerPort, "Foreign", "Press_7");
    await node.start([["Temperature", DOUBLE, 41.5, 7], ["Pressure", DOUBLE, 2.5, 18446744073709551615n]]);
    const page = await open("/explorer/Foreign/Press_7");
    const row = (name) => page.getByRole("row", { name });
    await row(/Temperature/).getByText("41.5").waitFor();
    const titles = await page.getByRole("table", { name: "Metrics" }).getByRole("columnheader").allTextContents();
    const column = titles.findIndex((title) => title.startsWith("Alias"));
    assert.notEqual(column, -1, titles.join());
    const alias = (name) => row(name).getByRole("cell").nth(column).textContent();
    assert.deepEqual([await alias(/Temperature/), await alias(/Pressure/), await alias(/bdSeq/)], ["7", "18446744073709551615", ""]);
    node.report([[null, DOUBLE, 43.25, 7]]);
    await row(/Temperature/).getByText("43.25").waitFor();
    node.report([[null, DOUBLE, 40.5, 7]]);
    await row(/Temperature/).getByText("40.5").waitFor();
    node.report([[null, DOUBLE, 3.75, 18446744073709551615n]]);
    await row(/Pressure/).getByText("3.75").waitFor();
    assert.equal(await page.getByRole("table", { name: "Metrics" }).getByRole("row").count(), 1 + 4, "bdSeq, Rebirth and the two that were born");
    node.report([[null, DOUBLE, 99, 9]]);
    await page.getByText("alias 9 is not in the birth").first().waitFor();
    assert.equal(await page.getByRole("row", { name: /99/ }).count(), 0, "its value belongs to no metric");
    await row(/Temperature/).getByRole("link").click();
    assert.equal(await page.locator(".metric-detail dt", { hasText: "Alias" }).locator("xpath=following-sibling::dd[1]").textContent(), "7");
    await page.locator(".trend canvas").waitFor();
    await page.close_checked();
    node.die();
  });

  scenario("the messages of a node are shown as they arrive, and a gap in seq is marked", async () => {
    const node = new EdgeNode(factory.brokerPort, "Foreign", "Press_8");
    await node.start([["Temperature", DOUBLE, 41.5, 7]]);
    const page = await open("/explorer/Foreign/Press_8");
    await page.getByRole("link", { name: "Messages" }).click();
    await page.getByText("No message has arrived since you opened this tab.").waitFor();
    // What the page shows is empty before the console follows the node, too: a message is sent until one is shown.
    const row = (text) => page.getByRole("table", { name: "Messages" }).getByRole("row", { name: text });
    let value = 50;
    await factory.until("a message that is shown", async () => {
      node.report([[null, DOUBLE, (value += 1), 7]]);
      return (await row(/Temperature = 5/).count()) > 0;
    });
    node.report([[null, DOUBLE, 43.25, 7]]);
    await row(/NDATA.*Temperature = 43.25/).waitFor();
    assert.equal(await page.getByRole("table", { name: "Messages" }).locator("mark").count(), 0, "nothing is odd");
    node.lose();
    node.report([[null, DOUBLE, 44.5, 7]]);
    const gap = row(/seq \d+, expected \d+.*Temperature = 44.5/);
    await gap.waitFor();
    await gap.getByRole("link").click();
    const detail = page.getByRole("table", { name: "Metrics of the message" }).getByRole("row", { name: /Temperature/ });
    assert.deepEqual(await detail.getByRole("cell").allTextContents(), ["Temperature", "44.5 ", "Double", "7"]);
    // The console asks for a birth, and shows that, too; another host may ask as well.
    await row(/NCMD.*Node Control\/Rebirth = true/).first().waitFor();
    const types = typesOf(await readFile(join(repository, "services/console/web/src/wire.ts"), "utf8"));
    const messages = await factory.rows("messages:Foreign/Press_8");
    assert.ok(messages.length > 2, String(messages.length));
    assert.deepEqual(messages.flatMap((message) => wrongWith(message, "MessageRow", types, "messages")), []);
    assert.deepEqual([...new Set(messages.map((message) => message.qos))], [0]);
    await page.close_checked();
    node.die();
  });

  scenario("an explorer alone shows nodes of every make, and has no other page", async () => {
    const node = new EdgeNode(factory.brokerPort, "Foreign", "Mixer_2");
    const url = await factory.explorer();
    const page = await open("/explorer", { url });
    await node.start([["Level", DOUBLE, 12.5]]);
    await page.locator(".tree a", { hasText: "Mixer_2" }).click();
    await page.getByRole("row", { name: /Level/ }).getByText("12.5").waitFor();
    assert.equal(await page.getByRole("button", { name: "Sign in" }).count(), 0, "no user can act in it");
    await page.close_checked();
    node.die();
  });

  scenario("a metric of a foreign node is written, and is done when the node reports it", async () => {
    const node = new EdgeNode(factory.brokerPort, "Foreign", "Mixer_3");
    const received = [];
    const speed = [["Speed", DOUBLE, 10]];
    await node.start(speed, { onCommand: (...command) => received.push(command) });
    await factory.until("the birth of the node", async () => (await factory.rows("nodes")).some((row) => row.key === "Foreign/Mixer_3" && row.alive));
    const write = { node: "Foreign/Mixer_3", metric: "Speed", value: "12.5" };
    const { body } = await factory.act(tokens.administrator, "metric.write", write);
    await factory.until("the command", async () => received.length > 0);
    assert.deepEqual(received, [["Speed", 12.5]]);
    assert.equal((await factory.rows("actions")).find((row) => row.key === body.id).state, "sent", "what the node does with it is not known yet");
    node.report([["Speed", DOUBLE, 12.5]]);
    assert.equal((await factory.ended(body.id)).state, "done");
    const refused = await factory.act(tokens.administrator, "metric.write", { ...write, value: "fast" });
    assert.equal(refused.status, 400);
    assert.match(JSON.stringify(refused.body), /value/);
    assert.equal(received.length, 1);
    node.die();
  });

  scenario("hostile names and values are text", async () => {
    const node = new EdgeNode(factory.brokerPort, "Foreign", HOSTILE.replace("\u202e", ""));
    await node.start([[HOSTILE, STRING, `${HOSTILE}\u0007`]]);
    const page = await open("/explorer");
    await page.locator(".tree a", { hasText: "<img src=x onerror=window.hacked=1>" }).click();
    await page.getByRole("row", { name: /onerror/ }).getByText("⟨202E⟩⟨0007⟩").waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.locator("img").count(), 0);
    await page.close_checked();
    node.die();
  });

  scenario("the filter narrows, and is in the address", async () => {
    const page = await open("/hosts");
    await page.getByRole("link", { name: "press-shop-1" }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("body-shop-2");
    await page.getByRole("link", { name: "press-shop-1" }).waitFor({ state: "detached" });
    await page.getByRole("link", { name: "body-shop-2" }).waitFor();
    assert.match(page.url(), /q=body-shop-2/);
    await page.close_checked();
  });

  scenario("everything is reached by keys alone", async () => {
    const page = await open("/");
    await tile(page, "Body_Shop").waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: /Body_Shop/ }).waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("d");
    await page.getByRole("heading", { level: 1, name: "Deployments" }).waitFor();
    await page.keyboard.press("Control+k");
    await page.waitForFunction(() => document.activeElement?.tagName === "INPUT");
    await page.keyboard.type("press-shop-2");
    await page.getByRole("option", { name: /press-shop-2/ }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: /press-shop-2/ }).waitFor();
    await page.keyboard.press("u");
    await page.getByRole("heading", { level: 1, name: /Press_Shop/ }).waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys and signs" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.close_checked();
  });

  scenario("tables stay current from view to view", async () => {
    const page = await open("/clusters");
    for (const name of ["Body_Shop", "Press_Shop"]) {
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { level: 1, name: new RegExp(name) }).waitFor();
      await page.locator("main .hatched").first().waitFor({ state: "detached" });
      await page.getByRole("navigation", { name: "Breadcrumbs" }).getByRole("link", { name: "Clusters" }).click();
    }
    await page.close_checked();
  });

  scenario("a past time is marked, read only, and left again", async () => {
    const object = (await factory.rows("clusters")).find((row) => row.name === "Body_Shop").key;
    const done = async ({ body: { id } }) => assert.equal((await factory.ended(id)).state, "done");
    // As many as the page has: those of all clusters are counted.
    const eventsUntil = async (time, limit = 500) => (await (await fetch(`${factory.url}/api/v1/events?limit=${limit}&until=${time}`)).json()).rows;
    const ofBody = ({ cluster }) => cluster === "Body_Shop";
    const changed = (wave) => new RegExp(`wave: \\w+ → ${wave}\\b`);
    /** Sets the wave, and gives the event of it. */
    const wave = async (wave) => {
      await done(await factory.act(tokens.operator, "cluster.wave", { cluster: object, wave }));
      return factory.until(`the event of wave ${wave}`, async () => (await eventsUntil(Date.now())).filter(ofBody).find(({ text }) => changed(wave).test(text)));
    };
    const then = await wave(5);
    const later = await wave(6);
    assert.ok(then.at < later.at);
    const page = await open("/cluster/Body_Shop?tab=events");
    await signIn(page, tokens.operator);
    const fact = page.locator(".details > div", { has: page.locator("dt", { hasText: /^Wave$/ }) }).locator("dd");
    // The page cuts long sentences.
    const begun = (text) => text.trim().slice(0, 200);
    // Who caused it, or that this is not known, stands after the sentence.
    const said = (nodes) => nodes.map((node) => {
      const copy = node.cloneNode(true);
      copy.querySelectorAll("em, .note").forEach((one) => one.remove());
      return copy.textContent.replace(/\s+/g, " ");
    });
    const texts = async (list) => (await list.locator(".event-text").evaluateAll(said)).map(begun);
    const buttons = () => page.locator(".head-actions button").allInnerTexts();
    const atPresent = async () => {
      await page.locator("[data-band=past]").waitFor({ state: "detached" });
      await fact.filter({ hasText: /^6$/ }).waitFor();
      await page.locator(".event-text", { hasText: changed(6) }).waitFor();
      assert.deepEqual((await buttons()).map((text) => text.trim()), ["New deployment", "Reconcile", "Wave…", "Delete"]);
    };
    await atPresent();
    await page.keyboard.press("[");
    await page.locator("[data-band=past]", { hasText: "Read only" }).waitFor();
    assert.match(page.url(), /at=\d+/);
    // Exactly what was then: the row, and no event after the time.
    await page.goto(`${factory.url}/cluster/Body_Shop?tab=events&at=${then.at}`);
    await page.getByRole("button", { name: /Sign out/ }).waitFor();
    await fact.filter({ hasText: /^5$/ }).waitFor();
    await page.locator(".event-text", { hasText: changed(5) }).waitFor();
    assert.deepEqual(await texts(page.locator("main .events")), (await eventsUntil(then.at)).filter(ofBody).map(({ text }) => begun(text)));
    // The user may act, and not in the past.
    assert.deepEqual(await buttons(), []);
    await page.getByRole("link", { name: "Fleet", exact: false }).first().click();
    await page.locator("aside .events li").first().waitFor();
    assert.match(page.url(), /at=\d+/);
    const known = await eventsUntil(then.at, 20);
    assert.deepEqual(await texts(page.locator("aside .events")), known.map(({ cluster, text }) => begun(`${cluster ?? ""} ${text}`)));
    assert.equal(await page.getByRole("button", { name: "New cluster" }).count(), 0);
    // What has no past says so.
    for (const path of ["/config", `/config/${object}`, "/policy/Body_Shop", "/access", "/audit", "/system", "/cluster/Body_Shop?tab=secrets"]) {
      await page.goto(`${factory.url}${path}${path.includes("?") ? "&" : "?"}at=${then.at}`);
      await page.locator("[data-present]", { hasText: "present" }).first().waitFor();
    }
    await page.goto(`${factory.url}/explorer?at=${then.at}`);
    await page.locator("[data-no-past]").getByRole("button", { name: "Back to now" }).click();
    await page.locator(".tree").waitFor();
    await page.goto(`${factory.url}/cluster/Body_Shop?tab=events&at=${then.at}`);
    await fact.filter({ hasText: /^5$/ }).waitFor();
    await page.keyboard.press("n");
    await atPresent();
    await page.close_checked();
    const { etag } = (await factory.rows(`entries:${object}`)).find((row) => row.key === "EdgeClusterRollout");
    await done(await factory.act(tokens.administrator, "entry.delete", { object, application: "EdgeClusterRollout", etag }));
  });

  scenario("no page scrolls sideways at 360 pixels, in both themes, without violations of WCAG AA", async () => {
    const found = [];
    for (const colorScheme of ["light", "dark"]) {
      for (const path of PAGES) {
        const page = await open(path, { colorScheme, viewport: { width: 360, height: 780 } });
        await page.locator("main h1").first().waitFor();
        const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (excess > 0) found.push(`${path}: ${excess} pixels too wide`);
        // Evaluated through the debugger, which the content security policy of the page does not bind.
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21aa"] }));
        for (const { id, impact, nodes } of violations) {
          if (["serious", "critical"].includes(impact)) found.push(`${path} (${colorScheme}): ${id}: ${nodes[0].html}`);
        }
        await page.close_checked();
      }
    }
    assert.deepEqual(found, []);
  });

  if (process.env.PICTURES === "1" && !isSite) {
    scenario("pictures for the documentation", async () => {
      const folder = join(repository, "docs/pictures");
      await mkdir(folder, { recursive: true });
      const pictures = { fleet: "/", host: "/host/Body_Shop/body-shop-2", deployment: "/deployment/Body_Shop/Robot_Cell_1", explorer: "/explorer/ACME-Body_Shop/Robot_Cell_1", rollouts: "/rollouts", enrolment: "/enrolment" };
      for (const [name, path] of Object.entries(pictures)) {
        const page = await open(path);
        await page.locator("main h1").first().waitFor();
        await page.locator("main .hatched").first().waitFor({ state: "detached" });
        await page.screenshot({ path: join(folder, `console-${name}.png`) });
        await page.close_checked();
      }
    });
  }

  scenario("hosts that wait are approved together, by the command that the page writes", async () => {
    for (const name of ["body-shop-6", "body-shop-7"]) factory.background("simulate-host", name, "--cluster", "Body_Shop");
    const page = await open("/enrolment");
    for (const name of ["body-shop-6", "body-shop-7"]) await page.getByRole("checkbox", { name: `Choose ${name}` }).check();
    const command = page.getByLabel("Command").filter({ hasText: "sparkfleet host enrol Body_Shop -" });
    await command.waitFor();
    await factory.shell(await command.innerText());
    await page.goto(`${factory.url}/hosts`);
    for (const name of ["body-shop-6", "body-shop-7"]) {
      // Its simulated Kubernetes is in another process, and does not list it.
      await page.getByRole("table", { name: "Hosts", exact: true }).getByRole("row", { name: new RegExp(name) }).getByText("the host is a member").waitFor();
    }
    await page.goto(`${factory.url}/enrolment`);
    await page.getByLabel("List").fill(`${"a".repeat(64)},Body Shop`);
    await page.getByRole("alert").getByText("line 1: the name must be made of").waitFor();
    await page.close_checked();
  });

  scenario("two machines of one name are distinguished, and the command approves the one that is shown", async () => {
    const name = "body-shop-12";
    for (const folder of ["one", "other"]) factory.background("simulate-host", name, "--cluster", "Body_Shop", "--data-dir", folder);
    const page = await open("/enrolment");
    const waiting = page.getByRole("table", { name: "Hosts that wait" }).getByRole("row", { name: new RegExp(name) });
    await waiting.nth(1).waitFor();
    const rows = (await factory.rows("hosts")).filter((row) => row.name === name);
    assert.equal(new Set(rows.map((row) => row.ek)).size, 2);
    for (const { key, ek, joining } of rows) {
      await page.goto(`${factory.url}/enrolment`);
      await waiting.filter({ hasText: ek.match(/.{4}/g).join(" ") }).getByRole("link").click();
      await page.locator(".ek", { hasText: ek.match(/.{4}/g).join(" ") }).waitFor();
      assert.equal(new URL(page.url()).pathname, `/host/${key}`);
      await page.locator("[data-namesakes]").getByRole("link").waitFor();
      await page.getByLabel("Command").filter({ hasText: `sparkfleet host approve Body_Shop/${joining.id} --ek=${ek} --wait` }).waitFor();
    }
    // A simulated disk is one by its name: the command is about the machine that shows its own, and not about the other one.
    const { key, ek } = rows.find((row) => !row.joining.has_foreign_disk);
    await page.goto(`${factory.url}/host/${key}`);
    await factory.shell(await page.getByLabel("Command").filter({ hasText: `sparkfleet host approve Body_Shop/` }).filter({ hasText: ek }).innerText());
    await factory.until("the approved machine", async () => (await factory.rows("hosts")).find((row) => row.ek === ek)?.joined);
    assert.equal((await factory.rows("hosts")).find((row) => row.name === name && row.ek !== ek).joined, false);
    await page.close_checked();
  });

  scenario("who looks after an alert is written down, and that they do so no more", async () => {
    // A member that restarts with other software is locked out. The alert lasts until it starts with that of before.
    const name = "body-shop-13";
    const start = (...options) => factory.background("simulate-host", name, "--cluster", "Body_Shop", ...options);
    const end = async (child) => (factory.forget(child), child.kill("SIGKILL"), once(child, "exit"));
    const first = start();
    await factory.until("a host that waits", async () => (await factory.rows("hosts")).find((row) => row.key === `Body_Shop/${name}`)?.ek);
    await factory.shell(`sparkfleet host approve Body_Shop/${name} --wait`);
    await end(first);
    const page = await open("/alerts");
    await page.getByRole("checkbox", { name: "Sound and notification" }).check();
    const second = start("--measure", "4=another-boot-loader");
    const row = page.getByRole("table", { name: "Alerts" }).getByRole("row", { name: /Locked_Out/ });
    await row.waitFor();
    await page.locator("[data-notified]").waitFor();
    await row.getByRole("link", { name: "What to do about Locked_Out" }).click();
    await page.locator("[data-runbook=Locked_Out]").getByText("sparkfleet policy capture").waitFor();
    assert.equal(await page.locator("[data-runbook]").count(), 1);
    await page.getByRole("navigation", { name: "Breadcrumbs" }).getByRole("link", { name: "Alerts" }).click();
    await row.waitFor();
    await page.getByRole("checkbox", { name: /Sound and notification/ }).uncheck();
    assert.equal(await row.getByRole("button").count(), 0, "who has not signed in looks after nothing");
    await signIn(page, tokens.operator);
    await row.getByRole("button", { name: /^Acknowledge Locked_Out of Body_Shop/ }).click();
    await page.getByLabel("Note").fill("on my way");
    await page.getByRole("dialog").getByRole("button", { name: "Acknowledge" }).click();
    await page.locator(".notice.h-good", { hasText: "Acknowledge Locked_Out" }).waitFor();
    await row.getByText("operator").waitFor();
    await row.getByText("on my way").waitFor();
    const alert = (await factory.rows("alerts")).find((one) => one.alert === "Locked_Out");
    const object = (await factory.rows("clusters")).find((one) => one.name === "Body_Shop").key;
    const written = async () => {
      const entry = (await factory.rows(`entries:${object}`)).find((one) => one.key === "AlertAcknowledgements");
      return entry === undefined ? undefined : JSON.parse(entry.json).alerts?.[alert.key];
    };
    const { by, note, since } = await written();
    assert.deepEqual([by, note], ["console/token:operator", "on my way"]);
    assert.equal(since ?? null, alert.since);
    assert.equal((await factory.rows("fleet"))[0].acknowledged, 1);
    await row.getByRole("button", { name: /^Withdraw the acknowledgement of Locked_Out/ }).click();
    await page.locator(".notice.h-good", { hasText: "Withdraw the acknowledgement of Locked_Out" }).waitFor();
    await row.getByRole("button", { name: /^Acknowledge/ }).waitFor();
    assert.equal(await row.getByText("on my way").count(), 0);
    assert.equal(await written(), undefined);
    await end(second);
    const third = start();
    await row.waitFor({ state: "detached" });
    await end(third);
    await page.close_checked();
  });

  scenario("what the console sends is of the types that the page is written for", async () => {
    const types = typesOf(await readFile(join(repository, "services/console/web/src/wire.ts"), "utf8"));
    const read = async (path, token) => (await (await fetch(`${factory.url}/api/v1/${path}`, token && { headers: { authorization: `Bearer ${token}` } })).json());
    const cluster = (await factory.rows("clusters")).find((row) => row.name === "Body_Shop").key;
    await factory.ended((await factory.act(tokens.operator, "object.history", { object: cluster })).body.id);
    const deployment = (await factory.rows("deployments")).find((row) => row.cluster === "Body_Shop").key;
    const ofOne = { "metrics:ACME-Body_Shop/Sync": "MetricRow", [`manifests:${deployment}`]: "ManifestRow", [`entries:${cluster}`]: "EntryRow", [`history:${cluster}`]: "PastRow" };
    const tables = [...types.get("Tables").fields.map(({ name, type }) => [name, type]), ...Object.entries(ofOne)];
    assert.ok(tables.length > 15, String(tables));
    const [wrong, empty] = [[], []];
    for (const [name, type] of tables) {
      const answer = await read(encodeURIComponent(name));
      wrong.push(...answer.rows.flatMap((row) => wrongWith(row, type, types, name)));
      if (answer.rows.length === 0) empty.push(name);
    }
    wrong.push(...wrongWith(await read("session", tokens.operator), "Session", types, "session"), ...wrongWith(await read("events?limit=1000"), "EventPage", types, "events"));
    wrong.push(...(await read("audit", tokens.administrator)).rows.flatMap((row) => wrongWith({ key: "", ...row }, "AuditRow", types, "audit")));
    const { steps } = (await factory.request("POST", "/api/v1/actions/cluster.delete/plan", { "x-sparkfleet": "1", authorization: `Bearer ${tokens.operator}` }, { cluster, with_deployments: true })).body;
    wrong.push(...steps.flatMap((step) => wrongWith(step, "PlanStep", types, "plan")));
    assert.deepEqual([...new Set(wrong)].slice(0, 20), []);
    assert.deepEqual(empty.filter((name) => !["alerts", "secrets"].includes(name)), [], "what has no rows is not judged");
  });

  scenario("the loss of the broker shows a band, and its return ends it", async () => {
    const page = await open("/", { url: await factory.behindRelay() });
    await tile(page, "Press_Shop").and(page.locator("[data-health=good]")).waitFor();
    await factory.cutBroker();
    await page.locator("[data-band=broker]").waitFor();
    await page.locator("main .hatched").first().waitFor();
    await tile(page, "Press_Shop").waitFor();
    await factory.healBroker();
    await page.locator("[data-band=broker]").waitFor({ state: "detached" });
    await page.locator(".link-state", { hasText: "live" }).waitFor();
    await page.close_checked();
  });

  scenarioOfSite("a service that is killed is away on every page, and what it said stays until it is back", async () => {
    const page = await open("/system");
    const row = page.getByRole("table", { name: "Services" }).getByRole("row", { name: /ConfigDB/ });
    await row.getByText("good").waitFor();
    await factory.kill("configdb");
    await row.getByText("away").waitFor();
    await page.getByRole("navigation").getByRole("link", { name: "Clusters" }).first().click();
    await page.getByRole("link", { name: "Body_Shop", exact: true }).waitFor();
    await page.locator("main .hatched").first().waitFor();
    factory.startService("configdb");
    await page.locator("main .hatched").first().waitFor({ state: "detached" });
    await page.locator(".link-state", { hasText: "live" }).waitFor();
    await page.close_checked();
  });

  scenarioOfSite("a console that is killed is missed, and the page resumes when it is back", async () => {
    const page = await open("/");
    await tile(page, "Press_Shop").and(page.locator("[data-health=good]")).waitFor();
    await factory.kill("console");
    await page.locator(".link-state", { hasText: "live" }).waitFor({ state: "detached" });
    await tile(page, "Press_Shop").waitFor();
    factory.startService("console");
    await page.locator(".link-state", { hasText: "live" }).waitFor();
    await tile(page, "Press_Shop").and(page.locator("[data-health=good]")).waitFor();
    // What happened meanwhile is a gap of its history.
    const { gaps } = await (await fetch(`${factory.url}/api/v1/events`)).json();
    assert.ok(gaps.length > 0, JSON.stringify(gaps));
    await page.close_checked();
  });
});
