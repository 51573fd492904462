// Seals a value for the Sealed Secrets controller of one cluster, in this browser: neither the console nor the broker gets it.
// The form is that of the controller's own client: 2 bytes length, the session key under RSA-OAEP with SHA-256 and the scope as label, then the value under AES-256-GCM with a
// nonce of zeros, because each session key is used once.

export type Scope = "strict" | "namespace-wide" | "cluster-wide";

/** What is sealed, and for whom. */
export interface Wanted {
  namespace: string;
  name: string;
  key: string;
  scope: Scope;
  /** Type of the Secret: all its keys share it. */
  type: string;
}

const SESSION_KEY_BYTES = 32;

/** What is wrong with the names, each with its field; null if nothing is. They are those that Kubernetes takes. */
export function namesProblem({ namespace, name, key, type }: Wanted): { field: "namespace" | "name" | "key" | "type"; text: string } | null {
  if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(namespace)) return { field: "namespace", text: "The namespace must be 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit." };
  if (!/^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(name)) return { field: "name", text: "The name must be 1 to 253 of a-z, 0-9, - and ., beginning and ending with a letter or digit." };
  if (!/^[A-Za-z0-9._-]{1,253}$/.test(key) || key === "." || key === "..") return { field: "key", text: "The key must be 1 to 253 letters, digits, -, _ and ." };
  if (type === "") return { field: "type", text: "The Secret needs a type, such as Opaque." };
  return null;
}

/** The DER of a PEM certificate. */
function der(pem: string): Uint8Array {
  const body = /-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/.exec(pem)?.[1];
  if (body === undefined) throw new Error("The certificate of the cluster cannot be read.");
  return Uint8Array.from(atob(body.replace(/\s/g, "")), (character) => character.charCodeAt(0));
}

/** One element of DER: where its content begins, and where it ends. */
function element(bytes: Uint8Array, at: number): { content: number; end: number } {
  const first = bytes[at + 1]!;
  if (first < 0x80) return { content: at + 2, end: at + 2 + first };
  const count = first & 0x7f;
  let length = 0;
  for (let digit = 0; digit < count; digit += 1) length = length * 256 + bytes[at + 2 + digit]!;
  return { content: at + 2 + count, end: at + 2 + count + length };
}

/** The public key of a certificate, as SubjectPublicKeyInfo. */
export function publicKey(certificate: Uint8Array): Uint8Array<ArrayBuffer> {
  let at = element(certificate, element(certificate, 0).content).content;
  // An explicit version comes first, if there is one; then serial number, algorithm, issuer, validity and subject.
  if (certificate[at] === 0xa0) at = element(certificate, at).end;
  for (let part = 0; part < 5; part += 1) at = element(certificate, at).end;
  const { end } = element(certificate, at);
  if (certificate[at] !== 0x30 || !(end <= certificate.length)) throw new Error("The certificate of the cluster cannot be read.");
  return Uint8Array.from(certificate.subarray(at, end));
}

const hex = (bytes: ArrayBuffer): string => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** SHA-256 of a certificate, to be compared with what the cluster itself says. */
export async function fingerprint(pem: string): Promise<string> {
  return hex(await crypto.subtle.digest("SHA-256", Uint8Array.from(der(pem))));
}

const label = ({ namespace, name, scope }: Wanted): string => (scope === "strict" ? `${namespace}/${name}` : scope === "namespace-wide" ? namespace : "");

/** The value, sealed, as base64. */
export async function seal(pem: string, wanted: Wanted, value: Uint8Array<ArrayBuffer>): Promise<string> {
  const key = await crypto.subtle.importKey("spki", publicKey(der(pem)), { name: "RSA-OAEP", hash: "SHA-256" }, false, ["encrypt"]);
  const session = crypto.getRandomValues(new Uint8Array(SESSION_KEY_BYTES));
  const cipher = await crypto.subtle.importKey("raw", session, "AES-GCM", false, ["encrypt"]);
  const wrapped = new Uint8Array(await crypto.subtle.encrypt({ name: "RSA-OAEP", label: new TextEncoder().encode(label(wanted)) }, key, session));
  const sealed = new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv: new Uint8Array(12) }, cipher, value));
  session.fill(0);
  let text = String.fromCharCode(wrapped.length >> 8, wrapped.length & 0xff);
  for (const byte of wrapped) text += String.fromCharCode(byte);
  for (const byte of sealed) text += String.fromCharCode(byte);
  return btoa(text);
}

/** The SealedSecret, as a document that can be written to a repository or applied. */
export function sealedSecret({ namespace, name, key, scope, type }: Wanted, sealed: string): Record<string, unknown> {
  const annotations = scope === "strict" ? {} : { annotations: { [`sealedsecrets.bitnami.com/${scope}`]: "true" } };
  const metadata = { name, namespace, ...annotations };
  return { apiVersion: "bitnami.com/v1alpha1", kind: "SealedSecret", metadata, spec: { encryptedData: { [key]: sealed }, template: { metadata, type } } };
}
