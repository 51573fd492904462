// Builds the page into `../assets`. With `--check` it builds into a temporary folder instead, and fails if the
// committed bundle differs or a budget is exceeded. `--watch` rebuilds whenever a source changes.
import { context, build } from "esbuild";
import { createHash } from "node:crypto";
import { cp, mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "../assets");
const STATIC = ["index.html", "icon.svg"];
/** What a page loads later, when it needs it. */
const LATER = ["plot.js"];
/** Bytes after `gzip -9`. */
const BUDGETS = { "first load": 90_000, everything: 300_000, "app.css": 12_000 };

const options = (outdir) => ({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  outdir,
  bundle: true,
  splitting: true,
  // The server has a list of the files, so their names do not change with their content; they are compared by ETag.
  chunkNames: "[name]",
  minify: true,
  format: "esm",
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  // The runbook of alerts is that of the documentation.
  loader: { ".md": "text" },
  charset: "utf8",
  logLevel: "warning",
});

async function buildInto(outdir) {
  await mkdir(outdir, { recursive: true });
  await build(options(outdir));
  for (const name of STATIC) await cp(join(here, "src", name), join(outdir, name));
}

const digest = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 16);
const gzipped = (bytes) => gzipSync(bytes, { level: 9 }).length;

async function contents(folder) {
  const names = (await readdir(folder).catch(() => [])).sort();
  return new Map(await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name))])));
}

/** Sentences about what is wrong with the committed bundle. */
function differences(committed, built) {
  const names = new Set([...committed.keys(), ...built.keys()]);
  const found = [];
  for (const name of names) {
    const [is, should] = [committed.get(name), built.get(name)];
    if (!is) found.push(`assets/${name} is missing`);
    else if (!should) found.push(`assets/${name} is not written by the build`);
    else if (!is.equals(should)) found.push(`assets/${name} is ${digest(is)}, the sources give ${digest(should)}`);
  }
  return found;
}

/** Sentences about budgets that are exceeded. */
function excess(built) {
  const sizes = new Map([...built].map(([name, bytes]) => [name, gzipped(bytes)]));
  const sum = (names) => names.reduce((sum, name) => sum + sizes.get(name), 0);
  const names = [...sizes.keys()];
  sizes.set("everything", sum(names));
  sizes.set("first load", sum(names.filter((name) => !LATER.includes(name))));
  const found = [];
  for (const [name, limit] of Object.entries(BUDGETS)) {
    const size = sizes.get(name);
    console.log(`${name}: ${size} of ${limit} bytes gz`);
    if (size > limit) found.push(`${name} has ${size} bytes gz, its budget is ${limit}`);
  }
  return found;
}

async function check() {
  const folder = await mkdtemp(join(tmpdir(), "sparkfleet-console-"));
  try {
    await buildInto(folder);
    const built = await contents(folder);
    const found = [...differences(await contents(assets), built), ...excess(built)];
    for (const sentence of found) console.error(`error: ${sentence}`);
    if (found.length > 0) {
      console.error("error: run `node build.mjs` in services/console/web and commit services/console/assets");
      process.exitCode = 1;
    }
  } finally {
    await rm(folder, { recursive: true });
  }
}

if (process.argv.includes("--check")) {
  await check();
} else if (process.argv.includes("--watch")) {
  await buildInto(assets);
  await (await context(options(assets))).watch();
} else {
  await rm(assets, { recursive: true, force: true });
  await buildInto(assets);
  excess(await contents(assets));
}
