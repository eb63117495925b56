// The console with ten thousand workspaces, and with a thousand bindings of one export.
//
// Variables beside those of browser.mjs: CA (the server's CA as PEM), TOKEN (an administrator's).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { browser, look, memory, painted, problems, searched, signIn, url, visitor } from "./browser.mjs";
import { Client, apis, tree } from "./seed.mjs";

const { CA: ca, TOKEN: token } = process.env;
const here = dirname(fileURLToPath(import.meta.url));

const ORGANIZATIONS = 200;
const TEAMS = 50;
const BINDINGS = 1000;
/** Workspaces with root, the provider, and the one that is stuck. */
const ALL = 1 + ORGANIZATIONS * (TEAMS + 1) + 2;
/** Rows that a long list has in the page, of however many. */
const ROWS_MAX = 120;

const admin = new Client(url, readFileSync(ca), token);
const started = Date.now();
await tree(admin, ORGANIZATIONS, TEAMS);
await apis(admin, join(here, "widgets.json"), BINDINGS);
console.log(`seeded in ${Math.round((Date.now() - started) / 1000)} s`);

const page = await visitor();

async function workspaces() {
  await signIn(page, token, "root");
  await page.locator("[data-count]", { hasText: `${ALL.toLocaleString("en")} workspaces` }).waitFor();
  await page.getByText("Live", { exact: true }).waitFor();
  await painted(page);
  await memory(page, `the tree of ${ALL} workspaces`);
  await page.keyboard.press("/");
  await searched(page, "org-07 team-0", TEAMS);
  await searched(page, "team-049", ORGANIZATIONS);
  await searched(page, "root", ALL);
  const rows = await page.locator("[role=treegrid] [role=row]").count();
  assert.ok(rows > 10 && rows <= ROWS_MAX, `${rows} rows`);
}

async function bindings() {
  await page.goto(`${url}/console/exports/root:provider/widgets`);
  await page.getByText(`${(BINDINGS + 1).toLocaleString("en")} bindings by state and versions in use`).waitFor();
  // A box for each state and its versions, in place of a thousand.
  const boxes = page.locator(".drawing [role=button]");
  const titles = await boxes.locator("title").allTextContents();
  assert.deepEqual(titles.map((title) => title.split(": ").at(-1)).sort(), ["Conflict", "Ready", "Ready"], titles.join("; "));
  await look(page, "exports-folded");
  await memory(page, `the graph of ${BINDINGS + 1} bindings`);
  const table = page.getByRole("table", { name: "Bindings" });
  assert.equal(await table.getAttribute("aria-rowcount"), String(BINDINGS + 2));
  assert.ok((await table.getByRole("row").count()) <= ROWS_MAX);
  await page.keyboard.press("/");
  await searched(page, "org-03", BINDINGS / 20);
  // Few enough to stand one by one.
  assert.equal(await page.locator(".drawing a").count(), BINDINGS / 20);
  await page.getByLabel("Search bindings").fill("");
  await boxes.filter({ hasText: "Conflict" }).click();
  await page.getByText("1 binding", { exact: true }).waitFor();
  await page.getByRole("row", { name: /root:org-21:team-001 Conflict/ }).waitFor();
  await page.goBack();
  await page.getByRole("button", { name: "widgets.example.io/v1", exact: true }).click();
  await page.getByRole("heading", { name: /^334 bindings/ }).waitFor();
}

await workspaces();
await bindings();
assert.deepEqual(problems, []);
await browser.close();
process.exit(0);
