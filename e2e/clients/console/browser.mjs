// A browser that reports what pages of the server must not do: break their policy, fail, or ask
// another host for anything.
//
// Variables: URL (of the server), CHROMIUM, SHOTS (a folder for screenshots), ISSUER (a provider of
// sign-ins, if there is one).

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const { URL: url } = process.env;
const { CHROMIUM: program, SHOTS: shots, ISSUER: issuer } = process.env;
/** Origins that pages may call: the server's, and that of its provider of sign-ins if it has one. */
const origins = [url, issuer].filter(Boolean).map((one) => new URL(one).origin);
const here = dirname(fileURLToPath(import.meta.url));
const axe = readFileSync(join(here, "node_modules/axe-core/axe.min.js"), "utf8");

export const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-gpu"] });
/** What pages did that they must not. */
export const problems = [];
let clicks = 0;

/** Runs a visit, and fails if it took more clicks: those of the mouse, and keys that press what has the focus. */
export async function within(most, what, visit) {
  clicks = 0;
  await visit();
  assert.ok(clicks > 0 && clicks <= most, `${what}: ${clicks} clicks`);
}

/** Returns a page of a visitor of their own; `options` are those of a context. */
export async function visitor(colorScheme = "light", options = {}) {
  const context = await browser.newContext({
    ignoreHTTPSErrors: true,
    colorScheme,
    viewport: { width: 1360, height: 800 },
    permissions: ["clipboard-read", "clipboard-write"],
    ...options,
  });
  await context.exposeBinding("reportViolation", (_, text) => problems.push(`CSP: ${text}`));
  await context.exposeBinding("reportClick", () => (clicks += 1));
  await context.addInitScript(() => {
    document.addEventListener("click", ({ isTrusted }) => isTrusted && window.reportClick(), true);
    document.addEventListener("securitypolicyviolation", (event) =>
      window.reportViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`),
    );
  });
  const page = await context.newPage();
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("request", (request) => {
    // What the provider's pages ask for is their matter.
    if (issuer && request.frame().url().startsWith(issuer)) return;
    if (!origins.includes(new URL(request.url()).origin) && !/^(blob|data):/.test(request.url())) problems.push(`elsewhere: ${request.url()}`);
  });
  page.setDefaultTimeout(30_000);
  return page;
}

/** Checks the page with axe, and keeps a screenshot of it. */
export async function look(page, name) {
  // The page itself refuses scripts that are not the server's; this one comes from the debugger.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const text = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  assert.deepEqual(text, [], name);
  await picture(page, name);
}

/** Returns the bytes of a page's heap, after a collection of its garbage. */
async function heap(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.enable");
  await session.send("HeapProfiler.collectGarbage");
  await session.send("Performance.enable");
  const { metrics } = await session.send("Performance.getMetrics");
  await session.detach();
  return metrics.find(({ name }) => name === "JSHeapUsedSize").value;
}

/** Bytes of a picture that the documents take: they are packed into the program. */
const BYTES_MAX = 60_000;

/** Keeps a screenshot, as WebP. */
export async function picture(page, name) {
  const session = await page.context().newCDPSession(page);
  let bytes;
  for (const quality of [80, 70, 60, 50, 40, 30, 20]) {
    const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality });
    bytes = Buffer.from(data, "base64");
    if (bytes.length <= BYTES_MAX) break;
  }
  assert.ok(bytes.length <= BYTES_MAX, `${name}: ${bytes.length} bytes`);
  writeFileSync(join(shots, `${name}.webp`), bytes);
  await session.detach();
}

/** Milliseconds. The promises are 1,000 and 100; a machine that tests much else at once gets more. */
const PAINT_MAX = 3000;
const SEARCH_MAX = 300;
/** MiB of the heap of a page. */
const HEAP_MAX = 64;

/** Signs in to the console with a token that is valid in a workspace. */
export async function signIn(page, secret, workspace, path = "") {
  await page.goto(`${url}/console${path}`);
  await page.getByLabel("Token").fill(secret);
  await page.getByLabel("Workspace").fill(workspace);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
}

/** Checks how soon a page showed anything. */
export async function painted(page) {
  const paint = await page.evaluate(
    () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity,
  );
  console.log(`first paint ${Math.round(paint)} ms`);
  assert.ok(paint <= PAINT_MAX, `first paint after ${paint} ms`);
}

/** Checks what a page holds in memory. */
export async function memory(page, what) {
  const mebibytes = (await heap(page)) / (1 << 20);
  console.log(`heap of ${what} ${mebibytes.toFixed(1)} MiB`);
  assert.ok(mebibytes <= HEAP_MAX, `${what}: ${mebibytes} MiB`);
}

/** Writes words into the search that has the focus, and checks how soon so many are found. */
export async function searched(page, words, found) {
  const took = await page.evaluate(
    async ([text, count]) => {
      const field = document.activeElement;
      const started = performance.now();
      field.value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      while (!document.querySelector(`[data-count="${count}"]`)) {
        await new Promise((next) => setTimeout(next, 0));
        if (performance.now() - started > 20_000) return Infinity;
      }
      return performance.now() - started;
    },
    [words, found],
  );
  console.log(`search ${Math.round(took)} ms`);
  assert.ok(took <= SEARCH_MAX, `the search for ${words} took ${took} ms`);
}
