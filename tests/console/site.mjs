// The same factory as a site runs it: Mosquitto, every central service a process of its own, and simulated edge clusters beside them.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Factory, freePort } from "./factory.mjs";

export const MOSQUITTO = process.env.MOSQUITTO ?? "/usr/sbin/mosquitto";

export class Site extends Factory {
  #services = new Map();
  #clusters = new Map();
  #apis = new Map();

  async start() {
    this.folder = await mkdtemp(join(tmpdir(), "sparkfleet-site-"));
    const address = async () => `127.0.0.1:${await freePort()}`;
    [this.brokerPort, this.git, this.web] = [await freePort(), await address(), await address()];
    this.url = `http://${this.web}`;
    const lines = ["user root", `listener ${this.brokerPort} 127.0.0.1`, "persistence false", "max_queued_messages 0", "allow_anonymous true", "log_dest stderr"];
    await writeFile(join(this.folder, "mosquitto.conf"), `${lines.join("\n")}\n`);
    await this.startBroker();
    const none = "";
    const services = {
      configdb: none,
      "cluster-manager": `[timing]\nretry_first_ms = 200\nretry_max_ms = 2000\naway_s = 5\n`,
      identity: none,
      "git-server": none,
      "edge-monitor": none,
      console: `[web]\nlisten = "${this.web}"\n`,
    };
    for (const [name, tables] of Object.entries(services)) {
      const state = join(this.folder, ".sparkfleet", name);
      await mkdir(state, { recursive: true });
      const head = name === "edge-monitor" ? 'mode = "central"\n' : name === "identity" ? "retry_first_ms = 200\n" : name === "git-server" ? `retry_first_ms = 200\nlisten = "${this.git}"\n` : none;
      const text = `organisation = "ACME"\nstate_dir = "${state}"\n${head}[mqtt]\nservers = ["mqtt://127.0.0.1:${this.brokerPort}"]\n[http]\nlisten = "127.0.0.1:0"\n${tables}`;
      await writeFile(join(this.folder, `${name}.toml`), text);
      this.startService(name);
    }
    await this.until("the console", async () => (await fetch(this.url).catch(() => null))?.ok);
    const example = new URL("../../examples/factory.yaml", import.meta.url).pathname;
    await this.until("a ConfigDB that takes the example", () => this.command("config", "load", example).catch(() => null));
    for (const name of ["Body_Shop", "Press_Shop"]) await this.startCluster(name);
  }

  async startBroker() {
    const broker = this.spawn(["-c", join(this.folder, "mosquitto.conf")], process.env, MOSQUITTO);
    let said = "";
    broker.stderr.on("data", (data) => (said += data));
    await this.until("Mosquitto", () => / running/.test(said));
    this.#services.set("mosquitto", broker);
  }

  startService(name) {
    this.#services.set(name, this.spawn([name, "--config", join(this.folder, `${name}.toml`)]));
  }

  /** SIGKILL, as a machine that loses power. */
  async kill(name) {
    const process = this.#services.get(name);
    this.forget(process);
    const ended = once(process, "exit");
    process.kill("SIGKILL");
    await ended;
  }

  /** A simulated edge that is bootstrapped as an operator does it: with the manifests of its set-up and the password of its repository. */
  async startCluster(name) {
    const setup = async () => JSON.parse((await this.command("config", "get", name, "EdgeClusterSetup", "-o", "json")).stdout);
    const entry = await this.until(`the set-up of ${name}`, () => setup().catch(() => null).then((entry) => (entry?.self_link ? entry : null)));
    const link = join(this.folder, `${name}.yaml`);
    await writeFile(link, entry.self_link);
    const { key } = (await this.rows("clusters")).find((row) => row.name === name);
    const password = join(this.folder, ".sparkfleet/cluster-manager/secrets", key);
    await this.until(`the password of ${name}`, () => readFile(password, "utf8").catch(() => null));
    const edge = this.background("simulate-cluster", name, "--self-link", link, "--git-password-file", password, "--data-dir", join(this.folder, "edges", name));
    this.#clusters.set(name, key);
    this.#apis.set(name, await this.said(edge, /Kubernetes API is (\S+);/));
  }

  /** A join service of its own process on the Kubernetes of a cluster, by keys that an operator makes. One host is refused for what it measures, and admitted when that is captured. */
  async startJoining(cluster, host) {
    const [key, trust] = [this.#clusters.get(cluster), ".sparkfleet/trust"];
    await this.run("trust", "init", "--dir", trust);
    for (const purpose of ["join-issuer", "policy-signer"]) await this.run("trust", "issue", key, "--purpose", purpose, "--dir", trust);
    // The authority of the cluster's Kubernetes, which a ticket holds.
    const own = join(this.folder, trust, key);
    await promisify(execFile)("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null", "-out", join(own, "ca.crt"), "-subj", "/CN=kubernetes", "-days", "30"]);
    await chmod(join(own, "ca.crt"), 0o600);
    const state = join(this.folder, ".sparkfleet/join-service");
    await mkdir(state, { recursive: true });
    const tables = [
      `organisation = "ACME"`, `state_dir = "${state}"`, "simulated = true", `[mqtt]`, `servers = ["mqtt://127.0.0.1:${this.brokerPort}"]`, "[http]", `listen = "127.0.0.1:0"`,
      "[cluster]", `name = "${cluster}"`, `uuid = "${key}"`, "[kubernetes]", `namespace = "fplus-edge"`, `url = "${this.#apis.get(cluster)}"`,
      "[trust]", `directory = "${own}"`, "[join]", `distribution = "k3s"`, `servers = ["https://127.0.0.1:6443"]`, `kubernetes_version = "v1.33.0"`, `networks = ["10.0.0.0/8"]`,
    ];
    await writeFile(join(this.folder, "join-service.toml"), `${tables.join("\n")}\n`);
    this.startService("join-service");
    const machine = this.background("simulate-host", host, "--cluster", cluster);
    const ek = await this.said(machine, /endorsement key ([0-9a-f]+);/);
    const other = { expected: [createHash("sha256").update("another machine").digest("hex")] };
    const policy = { variants: ["simulated"], bank: "sha256", pcrs: { 4: other, 7: other, 11: other }, lock: { pcr: 15 }, endorsement: { require: "enrolment", enrolled: [{ ek, host }] } };
    await writeFile(join(this.folder, "policy.json"), JSON.stringify(policy));
    await this.command("policy", "set", cluster, "policy.json");
    const row = async () => (await this.rows("hosts")).find((row) => row.cluster === cluster && row.name === host);
    await this.until(`a refusal of ${host}`, async () => (await row())?.refusal);
    await this.command("policy", "capture", `${cluster}/${host}`, "--replace");
    await this.until(`${host} as a member`, async () => (await row())?.joined);
  }

  /** The console is reached by the broker itself, which can be killed. */
  async behindRelay() {
    return this.url;
  }

  async cutBroker() {
    await this.kill("mosquitto");
  }

  async healBroker() {
    await this.startBroker();
  }
}
