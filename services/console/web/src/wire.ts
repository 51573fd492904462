// The rows of the tables that the console's server publishes. Times are UTC milliseconds.

export type Health = "good" | "working" | "attention" | "away";
export type StepState = "done" | "active" | "failed" | "waiting";

/** A row of any table; `key` is unique in its table. */
export interface Row {
  key: string;
}

/** A row that has a state of health. */
export interface HealthRow extends Row {
  health: Health;
  /** Sentences for people, the most important first. */
  reasons: string[];
  /** When the present health began. */
  since: number | null;
}

/** A step of a ladder. */
export interface Step {
  name: string;
  state: StepState;
  since: number | null;
  detail?: string | null;
}

export interface Ratio {
  ready: number;
  total: number;
}

export interface ConsoleRow extends Row {
  broker: string;
  online: boolean;
  since: number | null;
  /** Whether every birth has arrived that the replicas need. */
  complete: boolean;
  missing: string[];
  /** Whether what happens is recorded, and why there is no history. */
  history: { recording: boolean; reason: string | null };
  sessions: number;
  version: string;
  host_id: string;
}

export type HealthCounts = Record<Health, number>;

export interface FleetRow extends Row {
  clusters: HealthCounts;
  hosts: HealthCounts;
  deployments: HealthCounts;
  alerts: number;
  /** Of the alerts, those that a user looks after. */
  acknowledged: number;
  waiting: number;
  rollout: string | null;
}

export interface ClusterRow extends HealthRow {
  name: string;
  group: string;
  wave: number | null;
  setup: string;
  steps: Step[];
  edge: string;
  alive_since: number | null;
  /** Why the edge keeps what it has until a person decides. */
  held: string | null;
  flux: { ready: boolean | null; message: string | null; commit: string | null } | null;
  /** Whether the edge runs what is wanted. */
  agreed: boolean | null;
  desired_version: number | null;
  hosts: Ratio;
  deployments: Ratio;
  alerts: number;
  version: string | null;
  certificate_ends: number | null;
  git: { wanted: string | null; applied: string | null } | null;
  /** Of its services on its Kubernetes. */
  namespace?: string;
  simulated: boolean;
  labels: Record<string, string>;
}

/** A platform configuration register of a TPM. */
export interface PcrRow {
  register: number;
  meaning: string;
  expected: string[];
  quoted: string | null;
  verdict: "match" | "differs" | "observed" | "missing";
}

export interface HostRow extends HealthRow {
  cluster: string;
  name: string;
  role: string;
  member: string;
  /** It is a member: a Kubernetes Node, or one that says so; the others are on their way in. */
  joined?: boolean;
  ready: boolean | null;
  steps: Step[];
  refusal: { code: string; text: string; advice: string | null } | null;
  ek: string | null;
  /** What the join service says of it; null: no join service knows it. Rows that were recorded by an earlier version do not have it. */
  joining?: { id: string } | null;
  /** UUID of the state disk. */
  disk: string | null;
  warnings: string | null;
  pcrs: PcrRow[];
  kubernetes: Record<string, unknown> | null;
}

/** One leg of the way from what is wanted to what runs. */
export interface Leg {
  leg: string;
  /** When it was reported first; null: not yet, or not known. */
  at: number | null;
  /** Milliseconds after the leg before; null where one of the times is not known, negative where the clocks of two services differ by more. */
  ms: number | null;
  state: StepState;
  detail: string | null;
}

export interface DeploymentRow extends HealthRow {
  cluster: string;
  name: string;
  chart: string;
  host: string | null;
  state: string;
  version: string | number | null;
  /** Highest revision among the entries that it is made of. */
  revision: number | null;
  path: Leg[];
  wanted: Record<string, unknown> | null;
  reported: Record<string, unknown> | null;
}

export interface AlertRow extends HealthRow {
  cluster: string;
  node: string;
  alert: string;
  reason: string;
  monitor: string;
  /** Who looks after it; null: no user has said so. `until`: it is silenced until then (UTC ms). */
  acknowledged: { by: string; at: number | null; note: string | null; until?: number } | null;
}

export interface ServiceRow extends Row {
  name: string;
  alive: boolean;
  version: string | null;
  instance: string | null;
  since: number | null;
}

/** Who decided something about a rollout, when, and why. */
export interface RolloutDecision {
  by: string;
  at: number | null;
  note: string | null;
}

export interface RolloutCluster {
  /** UUID. */
  cluster: string;
  name: string;
  state: "waits" | "runs" | "settled" | "blocks";
  reason: string | null;
  /** Who decided that later waves do not wait for it; null: they do. */
  passed: RolloutDecision | null;
}

export interface RolloutRow extends Row {
  template: string;
  /** Of the chart template. */
  uuid: string;
  /** Who holds it; null: it is not held. */
  hold: RolloutDecision | null;
  waves: { wave: number; clusters: RolloutCluster[] }[];
  blocked: string | null;
}

/** One thing that an action does. */
export interface PlanStep {
  change: "create-object" | "change-object" | "write" | "delete" | "command" | "ask-rebirth" | "read-history";
  /** What it is done to, for people. */
  subject: string;
  /** UUID; null: an Edge Node. */
  object: string | null;
  /** Slug of an application, or name of a metric; null: the whole object or node. */
  name: string | null;
  before: unknown;
  after: unknown;
}

export interface EventRow extends Row {
  at: number;
  cluster: string | null;
  kind: string;
  subject: string;
  old: string | null;
  new: string | null;
  text: string;
  who: string | null;
  /** Id of the write to ConfigDB that led to it, where it is known. */
  request: string | null;
}

/** A span in which the console received nothing; it lasts while it has no end. */
export interface Gap {
  since: number;
  until: number | null;
  reason: string;
}

/** What happened, the latest first. */
export interface EventPage {
  rows: EventRow[];
  next: number | string | null;
  gaps: Gap[];
  /** When the history begins; null while it holds nothing. */
  begins: number | null;
}

export interface NodeRow extends HealthRow {
  group: string;
  node: string;
  alive: boolean;
  bd_seq: number | null;
  messages: number;
  rate: number;
  /** How often it was not in sync since the console started; whether it is so is in its health. */
  gaps: number;
  rebirths: number;
  devices: string[];
  compliant: boolean;
  note: string | null;
}

export interface MetricRow extends Row {
  device: string;
  name: string;
  datatype: string;
  /** Of the birth; a text beyond 2^53, null where the birth gave none. */
  alias: number | string | null;
  value: unknown;
  quality: string | number | null;
  historical: boolean;
  at: number | null;
  properties: Record<string, unknown> | null;
  /** A command can write it here: neither its birth nor whose it is forbids that. Rows of an earlier version do not have it. */
  writable?: boolean;
  /** Null while no client follows the node. */
  trend: [number, number][] | null;
}

/** A message of an Edge Node as it arrived. */
export interface MessageRow extends Row {
  /** When it was received. */
  at: number;
  /** NBIRTH, NDATA, ... */
  kind: string;
  device: string;
  bytes: number;
  qos: number;
  retained: boolean;
  seq: number | string | null;
  bd_seq: number | string | null;
  timestamp: number | string | null;
  /** The first ones. */
  metrics: MessageMetric[];
  metrics_total: number;
  /** What is odd about it; empty if nothing is. */
  note: string;
}

export interface MessageMetric {
  /** Null where neither the message nor a birth names it. */
  name: string | null;
  alias: number | string | null;
  datatype: string | null;
  value: unknown;
  historical: boolean;
  /** Why it has no value. */
  problem: string | null;
}

export interface ActionRow extends Row {
  name: string;
  /** What it is about. */
  target: string;
  who: string;
  at: number;
  state: "sent" | "done" | "refused" | "failed";
  text: string;
}

/** A line of the record of actions, as `GET /api/v1/audit` has it. */
export interface AuditRow extends Row {
  at: number;
  who: string;
  from: string;
  operation: string;
  /** UUID; absent where it concerns all clusters. */
  cluster?: string;
  /** Set by the page where the cluster is known. */
  cluster_name?: string;
  target: string;
  result: "accepted" | "done" | "refused" | "failed";
  reason?: string;
}

export interface ObjectRow extends Row {
  name: string | null;
  class: string | null;
  class_name: string | null;
  rank: number | null;
  deleted: boolean;
  /** Slugs of the applications under which it has entries. */
  entries: string[];
}

export interface ApplicationRow extends Row {
  uuid: string;
  name: string;
  schema: Record<string, unknown> | null;
}

export interface PcrRule {
  expected?: string[];
  warnOnly?: boolean;
}

/** An `AttestationPolicy` entry, as far as the page looks into it. */
export interface PolicyDocument {
  variants?: string[];
  bank: string;
  pcrs: Record<string, PcrRule>;
  boot?: unknown;
  endorsement: { require: string; enrolled?: { ek: string; host?: string | null; controlPlane?: boolean }[] };
  signature?: { serial: number; notAfterMs: number };
}

/** What a policy would say of a host. */
export interface HostOutlook {
  host: string;
  state: string;
  ek: string;
  outlook: "passes" | "fails" | "unknown";
  differences: string[];
  warnings: string[];
  unknown: string[];
}

export interface PolicyRow extends Row {
  cluster: string;
  revision: number;
  /** What the join service says of the policy that it has. */
  join: { revision: number; state: string; error: string | null } | null;
  /** Why the entry cannot be read. */
  reason: string | null;
  meanings: Record<string, string>;
  hosts: HostOutlook[] | null;
  policy: PolicyDocument | null;
}

/** A Secret of a cluster, without any value. */
export interface SecretRow extends Row {
  cluster: string;
  namespace: string;
  name: string;
  scope: string;
  type: string;
  keys: { key: string; fingerprint: string | null; state: "written" | "waits" | "goes" }[];
  /** Why something of the cluster's secrets is not in its repository. */
  reason: string | null;
}

/** An entry of one object; what ConfigDB computes has no ETag. */
export interface EntryRow extends Row {
  /** The entry as it was written. */
  json: string;
  etag: string | null;
  revision: number | null;
}

/** The first row of a deployment's manifests says what they are compared with, each other one is a manifest. */
export interface ManifestRow extends Row {
  /** Of what is rendered now; null: it cannot be rendered. */
  digest?: string | null;
  /** Of what the edge has applied. */
  applied?: string | null;
  /** Why it cannot be rendered. */
  reason?: string | null;
  kind?: string;
  name?: string;
  /** The manifest. */
  json?: string;
}

/** A change of the past of one entry. */
export interface PastRow extends Row {
  application: string;
  revision: number;
  /** When it was written. */
  at: number;
  writer: string;
  request: string;
  etag: string | null;
  /** The entry after it; null: it was deleted. */
  json: string | null;
}

export interface Session {
  organisation: string;
  /** Null for who has not signed in. */
  user: string | null;
  role: "viewer" | "operator" | "administrator";
  version: string;
  /** Names of the actions that the user may do, on one cluster at least. */
  actions: string[];
  /** Why no user can act here; null: who may does. */
  read_only: string | null;
  /** Whether reads, too, are for who has signed in. */
  private: boolean;
  /** Whether people can sign in at an identity provider. */
  single_sign_on: boolean;
  /** False where the way to the console is not encrypted, or it has no login. */
  can_sign_in: boolean;
  now: number;
}

export interface Tables {
  console: ConsoleRow;
  fleet: FleetRow;
  clusters: ClusterRow;
  hosts: HostRow;
  deployments: DeploymentRow;
  alerts: AlertRow;
  services: ServiceRow;
  rollout: RolloutRow;
  events: EventRow;
  nodes: NodeRow;
  actions: ActionRow;
  objects: ObjectRow;
  applications: ApplicationRow;
  policies: PolicyRow;
  secrets: SecretRow;
}

/** A table by name; the metrics and the messages of each Edge Node are tables of their own, and so are the entries and the history of each object. */
export type TableName = keyof Tables | `metrics:${string}` | `messages:${string}` | `entries:${string}` | `manifests:${string}` | `history:${string}`;
export type RowOf<N extends TableName> = N extends keyof Tables ? Tables[N] : N extends `entries:${string}` ? EntryRow : N extends `manifests:${string}` ? ManifestRow : N extends `history:${string}` ? PastRow : N extends `messages:${string}` ? MessageRow : MetricRow;

/** A frame of the stream. */
export interface Frame<R extends Row = Row> {
  rev: number;
  table: string;
  /** Whether `set` is the whole table. */
  full: boolean;
  set: R[];
  del: string[];
}

/** The answer to a read of one table. */
export interface Snapshot<R extends Row = Row> {
  rev: number;
  at: number | null;
  rows: R[];
  /** The span without received data that the time is in; it lasts while it has no end. */
  gaps?: [number, number | null][];
}
