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

/** The number at an offset, and the offset after it. */
function readVarint(bytes, at) {
  let number = 0n;
  for (let shift = 0n; ; shift += 7n) {
    const byte = bytes[at++];
    number |= BigInt(byte & 127) << shift;
    if (byte < 128) return [Number(number), at];
  }
}

/** Fields of a protobuf message by their number; of a repeated one the last. */
function fields(bytes) {
  const found = {};
  for (let at = 0; at < bytes.length; ) {
    let [tag, value] = [0, 0];
    [tag, at] = readVarint(bytes, at);
    if ((tag & 7) === 0) [value, at] = readVarint(bytes, at);
    else if ((tag & 7) === 1) [value, at] = [bytes.readDoubleLE(at), at + 8];
    else if ((tag & 7) === 5) [value, at] = [bytes.readFloatLE(at), at + 4];
    else {
      let length;
      [length, at] = readVarint(bytes, at);
      [value, at] = [bytes.subarray(at, at + length), at + length];
    }
    found[tag >> 3] = value;
  }
  return found;
}

export class EdgeNode {
  #socket;
  #seq = 0;
  #received = Buffer.alloc(0);

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

  /** Connects and publishes the birth. `metrics` are lists of name, datatype, value and, where it has one, alias. A node with `onCommand` follows its commands before it is born. */
  async start(metrics, { bdSeq = 0, onCommand = null } = {}) {
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
    if (onCommand !== null) await this.#listen(onCommand);
    this.#seq = 0;
    this.#publish("NBIRTH", [["bdSeq", INT64, bdSeq], ["Node Control/Rebirth", BOOLEAN, false], ...metrics]);
  }

  /** Subscribes to the node's commands. `onCommand` gets the name and the value (a Double) of the metric of each. */
  async #listen(onCommand) {
    const granted = new Promise((resolve, reject) => {
      this.#socket.on("data", (bytes) => {
        this.#received = Buffer.concat([this.#received, bytes]);
        while (this.#received.length >= 2) {
          const [length, start] = readVarint(this.#received, 1);
          if (this.#received.length < start + length) return;
          const [type, body] = [this.#received[0], this.#received.subarray(start, start + length)];
          this.#received = this.#received.subarray(start + length);
          if (type === 0x90) body[2] < 3 ? resolve() : reject(new Error(`SUBACK ${body.toString("hex")}`));
          if (type >> 4 !== 3) continue;
          const at = 2 + body.readUInt16BE(0);
          const hasId = (type & 0b0110) !== 0;
          if (hasId) this.#socket.write(packet(0x40, body.subarray(at, at + 2)));
          const command = fields(fields(body.subarray(hasId ? at + 2 : at))[2]);
          onCommand(command[1].toString(), command[13]);
        }
      });
    });
    this.#socket.write(packet(0x82, Buffer.concat([Buffer.from([0, 1]), text(this.#topic("NCMD")), Buffer.from([1])])));
    await granted;
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
