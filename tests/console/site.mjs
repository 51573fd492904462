// The same factory as a site runs it: Mosquitto, every central service a process of its own, and simulated edge clusters beside them.
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Factory, freePort } from "./factory.mjs";

export const MOSQUITTO = process.env.MOSQUITTO ?? "/usr/sbin/mosquitto";

export class Site extends Factory {
  #services = new Map();
  #clusters = new Map();

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
    this.background("simulate-cluster", name, "--self-link", link, "--git-password-file", password, "--data-dir", join(this.folder, "edges", name));
    this.#clusters.set(name, key);
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
