// Bundles pure modules of the page for the tests, because they are TypeScript.
import { build } from "esbuild";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

/** The exports of `src/NAME` for each given name, as one module with one copy of the store. */
export async function load(...names) {
  const contents = names.map((name) => `export * from "./src/${name}";`).join("\n");
  const options = { stdin: { contents, resolveDir: root, loader: "ts" }, absWorkingDir: root, bundle: true, write: false, format: "esm", platform: "neutral", mainFields: ["module", "main"], jsx: "automatic", jsxImportSource: "preact", loader: { ".md": "text" } };
  const { outputFiles } = await build(options);
  const folder = await mkdtemp(join(tmpdir(), "sparkfleet-console-test-"));
  const file = join(folder, "bundle.mjs");
  try {
    await writeFile(file, outputFiles[0].text);
    return await import(pathToFileURL(file).href);
  } finally {
    await rm(folder, { recursive: true });
  }
}
