// A whole simulated factory for one test run: `sparkfleet up` on free ports in a temporary directory, and on request a
// second organisation whose connection to the broker the tests can cut.
import { execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";

const START_MS = 180_000;

/** A relay in front of the broker that can refuse and cut. */
class Relay {
  #sockets = new Set();
  #cut = false;

  async start(port) {
    this.server = net.createServer((near) => {
      if (this.#cut) return near.destroy();
      const far = net.connect(port, "127.0.0.1");
      for (const socket of [near, far]) {
        this.#sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => (this.#sockets.delete(socket), near.destroy(), far.destroy()));
      }
      near.pipe(far).pipe(near);
    });
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    return this.server.address().port;
  }

  cut() {
    this.#cut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  heal() {
    this.#cut = false;
  }

  stop() {
    this.cut();
    this.server?.close();
  }
}

/** A port that is free now, of those from which the system gives none to a connection or to a listener on port 0 (Linux: from 32768). */
export async function freePort() {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const server = net.createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").then(() => true, () => false);
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}

const ADDRESS = /console\s+(http:\/\/127\.0\.0\.1:\d+)/;

export class Factory {
  #children = [];
  #output = "";
  relay = new Relay();

  constructor(program) {
    this.program = program;
  }

  spawn(args, env = process.env, program = this.program) {
    const child = spawn(program, args, { env, cwd: this.folder, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (this.#output += data));
    this.#children.push(child);
    return child;
  }

  async until(what, found) {
    for (const end = Date.now() + START_MS; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 100))) {
      const value = await found();
      if (value) return value;
      const ended = this.#children.find((child) => child.exitCode !== null);
      if (ended) throw new Error(`a process ended with code ${ended.exitCode} before ${what}:\n${this.#output}`);
    }
    throw new Error(`${what} was not reached:\n${this.#output}`);
  }

  /** A process of which the end is wanted. */
  forget(child) {
    this.#children = this.#children.filter((one) => one !== child);
  }

  cutBroker() {
    this.relay.cut();
  }

  healBroker() {
    this.relay.heal();
  }

  /** Process id of `sparkfleet up`. */
  get pid() {
    return this.#children[0].pid;
  }

  /** The end of what its processes have written. */
  lastWords() {
    return this.#output.slice(-8_000);
  }

  async start() {
    this.folder = await mkdtemp(join(tmpdir(), "sparkfleet-console-"));
    const any = "127.0.0.1:0";
    this.spawn(["up", "--plain", "--data-dir", ".sparkfleet", "--listen", any, "--git", any, "--bootstrap", any, "--http", any, "--console-listen", any]);
    this.url = await this.until("the console's address", () => ADDRESS.exec(this.#output)?.[1]);
    this.brokerPort = Number(await this.until("the broker's address", () => /mqtt:\/\/127\.0\.0\.1:(\d+)/.exec(this.#output)?.[1]));
  }

  /** Starts a second organisation on the same broker, behind the relay, and gives the address of its console. */
  async behindRelay() {
    const relayPort = await this.relay.start(this.brokerPort);
    const any = "127.0.0.1:0";
    const before = this.#output.length;
    const own = ["--organisation", "SITE", "--broker", `mqtt://127.0.0.1:${relayPort}`, "--data-dir", "site"];
    this.spawn(["up", "--plain", ...own, "--git", any, "--bootstrap", any, "--http", any, "--console-listen", any]);
    return this.until("the second console's address", () => ADDRESS.exec(this.#output.slice(before))?.[1]);
  }

  /** Starts the console of an organisation that has nothing else, with a way in at an identity provider, and gives its address. */
  async consoleOf(organisation, provider) {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const { issuer, secret } = await provider.start(`${url}/api/v1/session/oidc/callback`);
    const keys = {
      ORGANISATION: organisation, STATE_DIR: join(this.folder, "login"), MQTT__SERVERS: `mqtt://127.0.0.1:${this.brokerPort}`,
      WEB__LISTEN: `127.0.0.1:${port}`, HTTP__LISTEN: "127.0.0.1:0", OIDC__ISSUER: issuer, OIDC__CLIENT_SECRET: secret, OIDC__OPERATORS: "ops",
    };
    const own = Object.fromEntries(Object.entries(keys).map(([key, value]) => [`SPARKFLEET__${key}`, value]));
    this.spawn(["console"], { ...process.env, ...own });
    await this.until("the console of its own", async () => (await fetch(url).catch(() => null))?.ok);
    return url;
  }

  /** Reads a table from the console of `up`. */
  async rows(table) {
    const response = await fetch(`${this.url}/api/v1/${encodeURIComponent(table)}`);
    return (await response.json()).rows;
  }

  /** Sends one request, with exactly these fields, and gives the status, the fields and the JSON of the answer. */
  async request(method, path, fields = {}, body = undefined) {
    const text = body === undefined ? undefined : JSON.stringify(body);
    const request = http.request(this.url + path, { method, headers: { "content-type": "application/json", ...fields } });
    request.end(text);
    const [response] = await once(request, "response");
    let answer = "";
    for await (const part of response) answer += part;
    return { status: response.statusCode, fields: response.headers, body: answer === "" ? null : JSON.parse(answer) };
  }

  /** Sends an action of the holder of a token. */
  async act(token, name, body, fields = {}) {
    const own = { "x-sparkfleet": "1", authorization: `Bearer ${token}`, "idempotency-key": randomUUID() };
    return this.request("POST", `/api/v1/actions/${name}`, { ...own, ...fields }, body);
  }

  /** Waits until an action has ended, and gives its row. */
  async ended(id) {
    return this.until(`the end of ${id}`, async () => (await this.rows("actions")).find((row) => row.key === id && row.state !== "sent"));
  }

  /** Makes a token. */
  async token(name, ...options) {
    const { stdout } = await this.command("token", "create", name, ...options);
    return stdout.trim();
  }

  /** Waits until every cluster, host and deployment of the example factory is good. */
  async settled() {
    await this.until("a settled factory", async () => {
      const [fleet] = await this.rows("fleet").catch(() => []);
      return fleet?.clusters.good === 2 && fleet.hosts.good === 6 && fleet.deployments.good === 4;
    });
  }

  /** Runs a command of the command line against the factory's broker. */
  async command(...args) {
    return promisify(execFile)(this.program, [...args, "--broker", `mqtt://127.0.0.1:${this.brokerPort}`], { cwd: this.folder });
  }

  /** Runs a line of a shell in the factory's directory, as a user pastes it. */
  async shell(line, env = {}) {
    const own = { SPARKFLEET_BROKER: `mqtt://127.0.0.1:${this.brokerPort}`, PATH: `${dirname(this.program)}:${process.env.PATH}` };
    return promisify(execFile)("/bin/sh", ["-ec", line], { cwd: this.folder, env: { ...process.env, ...own, ...env } });
  }

  /** Runs a command that needs no broker. */
  async run(...args) {
    return promisify(execFile)(this.program, args, { cwd: this.folder });
  }

  /** Starts an explorer of the factory's broker, and gives the address of its page. */
  async explorer() {
    const before = this.#output.length;
    this.background("explore", "--listen", "127.0.0.1:0");
    return this.until("the explorer", () => /(http:\/\/127\.0\.0\.1:\d+)\/explorer/.exec(this.#output.slice(before))?.[1]);
  }

  /** Runs a command that continues until the factory is stopped. */
  background(...args) {
    return this.spawn([...args, "--broker", `mqtt://127.0.0.1:${this.brokerPort}`]);
  }

  /** Waits until a process has written on standard error what fits, and gives the first group of it. */
  async said(child, pattern) {
    let said = "";
    child.stderr.on("data", (data) => (said += data));
    return this.until(`${pattern}`, () => pattern.exec(said)?.[1]);
  }

  async stop() {
    this.relay.stop();
    await Promise.all(
      this.#children.map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = once(child, "exit");
        child.kill("SIGTERM");
        const late = setTimeout(() => child.kill("SIGKILL"), 10_000);
        await ended;
        clearTimeout(late);
      }),
    );
    await rm(this.folder, { recursive: true, force: true });
  }
}
