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
  await context.addInitScript(() => {
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
export async function heap(page) {
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
  for (const quality of [80, 70, 60, 50, 40]) {
    const { data } = await session.send("Page.captureScreenshot", { format: "webp", quality });
    bytes = Buffer.from(data, "base64");
    if (bytes.length <= BYTES_MAX) break;
  }
  writeFileSync(join(shots, `${name}.webp`), bytes);
  await session.detach();
}
