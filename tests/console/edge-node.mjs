// A small Sparkplug Edge Node of a foreign make: just enough MQTT 3.1.1 to be born, to report, and to die by its will.
import net from "node:net";

const varint = (number) => {
  const bytes = [];
  for (let rest = BigInt(number); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
};
const field = (number, wire, bytes) => Buffer.concat([varint((number << 3) | wire), bytes]);
const bytesField = (number, bytes) => field(number, 2, Buffer.concat([varint(bytes.length), bytes]));

const INT64 = 4;
const DOUBLE = 10;
const BOOLEAN = 11;
const STRING = 12;

function valueField(datatype, value) {
  if (datatype === DOUBLE) {
    const bytes = Buffer.alloc(8);
    bytes.writeDoubleLE(value);
    return field(13, 1, bytes);
  }
  if (datatype === BOOLEAN) return field(14, 0, varint(value ? 1 : 0));
  if (datatype === STRING) return bytesField(15, Buffer.from(value));
  return field(11, 0, varint(value));
}

/** A metric without a name is known by its alias, and without a datatype by that of the birth. */
function metric([name, datatype, value, alias]) {
  const parts = [];
  if (name !== null) parts.push(bytesField(1, Buffer.from(name)));
  if (alias !== undefined) parts.push(field(2, 0, varint(alias)));
  parts.push(field(3, 0, varint(Date.now())), field(4, 0, varint(datatype)), valueField(datatype, value));
  return bytesField(2, Buffer.concat(parts));
}

function payload(metrics, seq) {
  const parts = [field(1, 0, varint(Date.now())), ...metrics.map(metric)];
  return Buffer.concat(seq === null ? parts : [...parts, field(3, 0, varint(seq))]);
}

const text = (string) => {
  const bytes = Buffer.from(string);
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes]);
};
const packet = (type, body) => Buffer.concat([Buffer.from([type]), varint(body.length), body]);

export class EdgeNode {
  #socket;
  #seq = 0;

  constructor(port, group, node) {
    Object.assign(this, { port, group, node });
  }

  #topic(kind) {
    return `spBv1.0/${this.group}/${kind}/${this.node}`;
  }

  #publish(kind, metrics) {
    this.#socket.write(packet(0x30, Buffer.concat([text(this.#topic(kind)), payload(metrics, this.#seq)])));
    this.#seq = (this.#seq + 1) % 256;
  }

  /** Connects and publishes the birth. `metrics` are lists of name, datatype, value and, where it has one, alias. */
  async start(metrics, bdSeq = 0) {
    const will = payload([["bdSeq", INT64, bdSeq]], null);
    const willBytes = Buffer.concat([Buffer.from([will.length >> 8, will.length & 255]), will]);
    // Clean session, with a will of QoS 1.
    const head = Buffer.from([0, 4, ...Buffer.from("MQTT"), 4, 0b0000_1110, 0, 60]);
    this.#socket = net.connect(this.port, "127.0.0.1");
    this.#socket.on("error", () => {});
    this.#socket.write(packet(0x10, Buffer.concat([head, text(`test-${process.pid}-${bdSeq}`), text(this.#topic("NDEATH")), willBytes])));
    await new Promise((resolve, reject) => {
      this.#socket.once("data", (answer) => (answer[0] === 0x20 && answer[3] === 0 ? resolve() : reject(new Error(`CONNACK ${answer.toString("hex")}`))));
      this.#socket.once("close", () => reject(new Error("the broker closed the connection")));
    });
    this.#seq = 0;
    this.#publish("NBIRTH", [["bdSeq", INT64, bdSeq], ["Node Control/Rebirth", BOOLEAN, false], ...metrics]);
  }

  report(metrics) {
    this.#publish("NDATA", metrics);
  }

  /** Takes a sequence number for a message that is never sent. */
  lose() {
    this.#seq = (this.#seq + 1) % 256;
  }

  /** Ends the connection without a farewell, so that the broker publishes the will. */
  die() {
    this.#socket?.destroy();
  }
}

export { BOOLEAN, DOUBLE, STRING };
