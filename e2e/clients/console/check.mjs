// The console in a browser, against a server with a thousand workspaces.
//
// Variables beside those of browser.mjs: INSULA (the program), CA (the server's CA as PEM), TOKEN (an
// administrator's), TENANT (a token of alice), SERVER_PID (its memory is read, and it is killed at the
// end, to see what pages say then).

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { browser, look, memory, painted, picture, problems, searched, signIn, url, visitor, within } from "./browser.mjs";
import * as fresh from "./fresh.mjs";
import * as pages from "./pages.mjs";
import * as visitors from "./visitors.mjs";
import { Client, apis, bolts, gears, tree } from "./seed.mjs";

const { CA: ca, TOKEN: token, TENANT: tenant } = process.env;
const here = dirname(fileURLToPath(import.meta.url));

const ORGANIZATIONS = 24;
const TEAMS = 41;
const BINDINGS = 45;
/** Workspaces that are open at once. */
const OPEN_MANY = 20;

const admin = new Client(url, readFileSync(ca), token);
await tree(admin, ORGANIZATIONS, TEAMS);
await apis(admin, join(here, "widgets.json"), BINDINGS);
await gears(admin);
await bolts(admin);
const MARKUP = '<img src=x onerror="document.title=1">';
const exported = "/clusters/root:provider/apis/apis.kcp.io/v1alpha2/apiexports/widgets";
async function entitle(title) {
  const headers = { "content-type": "application/merge-patch+json" };
  const answer = await admin.send("PATCH", exported, { metadata: { annotations: { "apis.insula.io/title": title } } }, headers);
  assert.equal(answer.status, 200, answer.text);
}

await entitle(MARKUP);

/** Returns the resident memory of the server, in MiB. */
function resident() {
  const status = readFileSync(`/proc/${process.env.SERVER_PID}/status`, "utf8");
  return Math.round(Number(/VmRSS:\s+(\d+) kB/.exec(status)[1]) / 1024);
}

const row = (page, path) => page.locator(`[role=row][id="ws-${path.replaceAll(":", "_")}"]`);

async function workspaces() {
  const page = await visitor();
  await page.goto(`${url}/console`);
  await page.getByLabel("Token").waitFor();
  await look(page, "sign-in");
  await page.getByLabel("Token").fill("nobody");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").waitFor();
  await signIn(page, token, "root");
  await page.getByText("Live", { exact: true }).waitFor();
  const all = 1 + ORGANIZATIONS * (TEAMS + 1) + 2;
  await page.locator(`[data-count]`, { hasText: `${all.toLocaleString("en")} workspaces` }).waitFor();
  await painted(page);
  await memory(page, `the tree of ${all} workspaces`);

  // The keyboard alone: search, results, a workspace, its children.
  await page.keyboard.press("/");
  await searched(page, "org-07 team-0", TEAMS);
  await page.keyboard.press("Enter");
  await page.getByRole("complementary", { name: "Workspace root:org-07:team-001" }).waitFor();
  assert.match(page.url(), /\/console\/workspaces\/root:org-07:team-001\?q=/);
  await page.keyboard.press("/");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  await page.locator('[role="treegrid"]').focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  await row(page, "root:org-01:team-001").waitFor();
  assert.equal(await row(page, "root:org-01").getAttribute("aria-expanded"), "true");

  // A change shows without a reload, and a stuck workspace says why.
  await admin.create("/clusters/root:org-01/apis/tenancy.kcp.io/v1alpha1/workspaces", {
    apiVersion: "tenancy.kcp.io/v1alpha1",
    kind: "Workspace",
    metadata: { name: "added-now" },
    spec: { type: { name: "universal", path: "root" } },
  });
  await row(page, "root:org-01:added-now").getByText("Ready").waitFor();
  await page.getByRole("button", { name: "1 stuck" }).click();
  await row(page, "root:org-02:stuck").click();
  const details = page.getByRole("complementary", { name: "Workspace root:org-02:stuck" });
  await details.getByText("Why it is not ready").waitFor();
  await details.getByRole("button", { name: "Copy kubectl" }).click();
  assert.equal(
    await page.evaluate(() => navigator.clipboard.readText()),
    `kubectl --server ${url}/clusters/root:org-02 get workspace stuck -o yaml`,
  );
  await details.getByRole("button", { name: "View YAML" }).click();
  await page.getByRole("dialog").getByText("kind: Workspace").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "1 stuck" }).click();
  await look(page, "workspaces");

  // Links, reload and the back button.
  await page.reload();
  await details.getByText("Why it is not ready").waitFor();
  await page.getByRole("link", { name: "Exports" }).first().click();
  await page.waitForURL(/\/console\/exports\//);
  await page.keyboard.press("g");
  await page.keyboard.press("u");
  await page.waitForURL(/\/console\/usage\//);
  await page.goBack();
  await page.goBack();
  await page.waitForURL(/\/console\/workspaces\//);

  // Many open workspaces are followed at once: the last one of these was opened first.
  await page.goto(`${url}/console`);
  await page.getByText("Live", { exact: true }).waitFor();
  await page.locator('[role="treegrid"]').focus();
  await page.keyboard.press("End");
  for (let opened = 0; opened < OPEN_MANY; opened++) {
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("ArrowUp");
  }
  await admin.create("/clusters/root:provider/apis/tenancy.kcp.io/v1alpha1/workspaces", {
    apiVersion: "tenancy.kcp.io/v1alpha1",
    kind: "Workspace",
    metadata: { name: "below" },
    spec: { type: { name: "universal", path: "root" } },
  });
  await page.locator(`[data-count]`, { hasText: `${(all + 2).toLocaleString("en")} workspaces` }).waitFor();
  await memory(page, `the tree with ${OPEN_MANY} open workspaces`);
  return page;
}

async function exportsPage(page) {
  await page.goto(`${url}/console/exports/root`);
  // What a tenant chose is a text.
  await page.getByText(MARKUP).waitFor();
  assert.notEqual(await page.title(), "1");
  await page.goto(`${url}/console/exports/root:provider`);
  await page.getByRole("link", { name: "widgets", exact: true }).click();
  await page.getByText(`${BINDINGS + 1} bindings`).waitFor();
  assert.equal(await page.locator(".drawing a").count(), BINDINGS + 1);
  await page.getByRole("button", { name: "Conflict 1" }).click();
  await page.getByText(/naming conflict with CustomResourceDefinition/).first().waitFor();
  await page.getByRole("button", { name: "Conflict 1" }).click();
  await page.keyboard.press("/");
  await page.keyboard.type("org-03");
  await page.getByText("3 bindings").waitFor();
  await page.getByLabel("Search bindings").fill("");
  const stored = page.getByRole("region", { name: "Stored versions" });
  await stored.getByRole("button", { name: "Count objects" }).click();
  await stored.getByText("storage version").waitFor();
  await stored.getByRole("cell", { name: String(BINDINGS), exact: true }).waitFor();
  await page.getByText("Live", { exact: true }).waitFor();
  await look(page, "exports");
}

/** Findings of rules, each by what it is. */
async function findings(page) {
  const rules = page.getByLabel("Rules");
  const finding = (label, text) => page.locator(".findings li", { hasText: text }).getByText(label, { exact: true }).first();
  const accepted = await rules.inputValue();
  await rules.fill(accepted.replace(".spec.firstName", ".spec.nothing"));
  await page.getByText("The server would refuse these rules").waitFor();
  await finding("Mistake", "there is no field .spec.nothing").waitFor();
  await rules.fill(accepted.replace("destination: .spec.name.first\n", "destination: .spec.name.first\n          transformation: string(int(self))\n"));
  await finding("Counterexample", "fails for a valid object of v1").waitFor();
  // A bound that one version alone has is no counterexample: the server accepts the rules.
  await page.goto(`${url}/console/conversion/root:provider/rev0003.bolts.example.io`);
  await page.getByText("The server would accept these rules").waitFor();
  await finding("Not valid in every version", "v2 would refuse").waitFor();
  assert.equal(await page.getByText("Counterexample", { exact: true }).count(), 0);
}

async function playground(page) {
  await page.goto(`${url}/console/conversion/root:provider/rev0002.widgets.example.io`);
  await page.getByText("The server would accept these rules").waitFor();
  await page.getByRole("cell", { name: "preserved" }).waitFor();
  await page.getByText("cost 0 of 10,000,000 units").waitFor();
  await look(page, "conversion");
  // The file is a test that the program runs.
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Save as a test" }).click(),
  ]);
  const saved = readFileSync(await download.path(), "utf8");
  await page.getByRole("button", { name: "Copy as YAML" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), saved);
  await download.saveAs(join(process.env.SHOTS, "widgets.yaml"));
  const ran = spawnSync(process.env.INSULA, ["conversion", "test", "-f", join(process.env.SHOTS, "widgets.yaml")], { encoding: "utf8" });
  assert.equal(ran.status, 0, ran.stdout + ran.stderr);
  await findings(page);
}

/** What no word accepts is told, and not offered: no tick, and no release. */
async function impossible(page) {
  await page.goto(`${url}/console/releases/root:provider/widgets`);
  await page.getByRole("button", { name: "Begin with what is on offer" }).click();
  const text = page.getByLabel("Schemas and rules of the next release");
  // The version in which objects are stored goes.
  await text.fill((await text.inputValue()).replace(/\bv2\b/g, "v3"));
  await page.getByRole("button", { name: "Show its effects" }).click();
  await page.getByText("Not possible: ").first().waitFor();
  assert.ok(await page.getByTitle("No word accepts what is not possible: change the release.").isDisabled());
  const refused = page.locator(".findings li", { hasText: "Not possible: " });
  assert.equal(await refused.getByRole("checkbox").count(), 0);
}

/** The effects of a release that removes a field are shown, accepted, and made; and it is taken back. */
async function releases(page) {
  await page.goto(`${url}/console/releases/root:provider/widgets`);
  await page.getByRole("button", { name: "Begin with what is on offer" }).click();
  const text = page.getByLabel("Schemas and rules of the next release");
  const before = await text.inputValue();
  const without = before.replace(/ +color:\n.*\n.*\n/, "");
  assert.notEqual(without, before);
  await text.fill(without);
  await page.getByRole("button", { name: "Show its effects" }).click();
  const publish = page.getByRole("button", { name: "Publish", exact: true });
  await publish.waitFor();
  assert.ok(await publish.isDisabled());
  await page.getByText("30 objects in 30 workspaces").waitFor();
  await look(page, "release");
  await page.getByRole("checkbox").check();
  await publish.click();
  await page.getByText("Published").waitFor();
  await page.getByRole("button", { name: "Roll back…" }).click();
  await page.getByRole("button", { name: /^Roll back to/ }).click();
  await page.getByRole("button", { name: "Roll back…" }).nth(1).waitFor();
}

async function dark() {
  const page = await visitor("dark");
  await signIn(page, token, "root", "/workspaces/root:org-02:stuck");
  await page.getByText("Why it is not ready").waitFor();
  await page.getByText("Live", { exact: true }).waitFor();
  await look(page, "workspaces-dark");
  await page.goto(`${url}/console/exports/root:provider/widgets`);
  await page.getByText(`${BINDINGS + 1} bindings`).waitFor();
  await look(page, "exports-dark");
  await page.goto(`${url}/console/conversion/root:provider/rev0002.widgets.example.io`);
  await page.getByRole("cell", { name: "preserved" }).waitFor();
  await look(page, "conversion-dark");
  for (const [name, path, text] of pages.DARK) {
    await page.goto(`${url}/console${path}`);
    await page.getByText(text).first().waitFor();
    await fresh.settled(page);
    await look(page, `${name}-dark`);
  }
}

/** A tenant sees its organization, and nothing of others. */
async function tenantSees() {
  const page = await visitor();
  const seen = [];
  page.on("response", async (response) => {
    if (response.url().includes("/console/api/")) seen.push(await response.text().catch(() => ""));
  });
  await signIn(page, tenant, "root:org-01");
  await row(page, "root:org-01").waitFor();
  await page.locator("[data-count]", { hasText: `${TEAMS + 2} workspaces` }).waitFor();
  for (const path of [
    "/workspaces/root:org-02:team-001",
    "/exports/root:provider/widgets",
    "/conversion/root:provider",
    "/objects/root:org-02:team-001",
    "/objects/root:org-02:team-001/configmaps.v1",
    "/stuck/root:org-02",
    "/apis/root:org-02",
    "/migrations/root:org-02",
    "/traffic/root:org-02",
    "/usage/root:org-02",
    "/audit/root:org-02",
    "/diff/root:provider/widgets",
    "/servers",
  ]) {
    await page.goto(`${url}/console${path}`);
    await page.getByRole("alert").first().waitFor();
  }
  await look(page, "refused");
  await page.goto(`${url}/console`);
  await row(page, "root:org-01").waitFor();
  const text = await page.locator("body").innerText();
  // Its own requests name these; no answer tells more of them.
  for (const answer of [...seen, text]) assert.doesNotMatch(answer, /org-0[3-9]|org-[12]\d/);

  // No script reads the session, and the end of it is the end.
  assert.equal(await page.evaluate(() => document.cookie), "");
  const [cookie] = (await page.context().cookies()).filter(({ name }) => name === "__Host-insula-console");
  assert.deepEqual(
    [cookie.httpOnly, cookie.secure, cookie.sameSite, cookie.path],
    [true, true, "Strict", "/"],
  );
  assert.doesNotMatch(cookie.value, new RegExp(tenant));
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  assert.equal((await page.context().cookies()).length, 0);
}

const page = await workspaces();
await exportsPage(page);
await entitle("Widgets");
await playground(page);
const tools = { url, admin, look, within };
await visitors.questions(page, tools);
await visitors.commands(page, tools);
await visitors.searchEverywhere(page, tools);
await visitors.reach(page, tools);
await visitors.names(page, tools);
await visitors.addresses(page, tools);
await pages.objects(page, tools);
await pages.tabs(page, tools);
await pages.secrets(page, tools);
await pages.stuck(page, tools);
await pages.usage(page, tools);
await pages.migrations(page, tools);
await pages.audit(page, tools);
await pages.traffic(page, tools);
await pages.servers(page, tools);
await pages.difference(page, tools);
await fresh.polled(page, tools);
await fresh.details(page, tools);
await fresh.traffic(page, tools);
const guest = await visitor();
await signIn(guest, tenant, "root:org-01");
await pages.catalogue(page, guest, tools);
await pages.lookingOnly(guest, tools);
await visitors.withoutWatch(guest, tools);
await guest.context().close();
await impossible(page);
await releases(page);
await dark();
await tenantSees();
assert.deepEqual(problems, []);
console.log(`resident memory of the server ${resident()} MiB`);

// Pages say so when the server is gone.
await page.goto(`${url}/console/workspaces`);
await page.getByText("Live", { exact: true }).waitFor();
process.kill(Number(process.env.SERVER_PID), "SIGKILL");
await page.getByText(/Stale since \d\d:\d\d:\d\d/).waitFor();
await picture(page, "stale");
await browser.close();
process.exit(0);
