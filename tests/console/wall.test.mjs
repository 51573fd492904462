// What a wall of 1,000 clusters must not cost: bounds that do not depend on how fast the machine is. The figures are printed by `node wall.mjs`.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { measure } from "./wall.mjs";

const skip = existsSync(process.env.CHROMIUM ?? "/usr/bin/chromium") ? false : "there is no Chromium";
const HEAP_MAX = 40e6;
/** Four times the clusters may take this many times the processor time of the page: what changes is drawn, not what there is. */
const GROWTH_MAX = 2.5;
/** Shares of a core below this cannot be compared. */
const SHARE_MIN = 0.02;

describe("wall of 1,000 clusters", { concurrency: false }, () => {
  for (const path of ["/", "/clusters"]) {
    test(`${path} keeps within its memory, and costs what changes and not what there is`, { skip, timeout: 300_000 }, async () => {
      const load = { updates: 10, seconds: 6, loads: 1 };
      const [small, large] = [await measure(path, { ...load, clusters: 250 }), await measure(path, { ...load, clusters: 1000 })];
      const said = JSON.stringify({ small, large });
      assert.ok(large.heapAfterCollection > 0 && large.heapAfterCollection < HEAP_MAX, said);
      // Rows beyond the window are not in the document.
      assert.ok(large.nodes < 2 * small.nodes, said);
      assert.ok(large.shares.main > 0 && large.shares.main < GROWTH_MAX * Math.max(SHARE_MIN, small.shares.main), said);
    });
  }
});
