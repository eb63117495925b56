// The pages of the console about objects, what is stuck, APIs to bind, usage, servers and schemas.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

const TEAM = "root:org-01:team-002";
const WIDGETS = `/clusters/${TEAM}/apis/example.io/v2/namespaces/default/widgets`;

/** Pages, with a text that each has. */
export const DARK = [
  ["objects", `/objects/${TEAM}/widgets.v2.example.io`, "ada"],
  ["object", `/objects/${TEAM}/widgets.v2.example.io/default/ada`, "Managers of its fields"],
  ["stuck", "/stuck/root:org-21:team-001?show=apibindings.v1alpha2.apis.kcp.io+/widgets", "Why it is not ready"],
  ["apis", "/apis/root:org-01:team-041/root:provider/gears", "Bind in root:org-01:team-041"],
  ["migrations", `/migrations/${TEAM}`, "Nothing was migrated"],
  ["traffic", `/traffic/root:org-01?show=${TEAM}`, "The server that answers"],
  ["usage", `/usage/root:org-01?show=${TEAM}`, "Objects by resource"],
  ["audit", "/audit/root:provider", "requests"],
  ["servers", "/servers", "Flush p99"],
  ["diff", "/diff/root:provider/widgets", "to be changed here"],
];

async function read(admin, path) {
  const answer = await admin.send("GET", path);
  assert.equal(answer.status, 200, answer.text);
  return JSON.parse(answer.text);
}

async function apply(admin, path, manager, object) {
  const headers = { "content-type": "application/apply-patch+yaml" };
  const answer = await admin.send("PATCH", `${path}?fieldManager=${manager}&force=true`, object, headers);
  assert.ok(answer.status < 300, answer.text);
}

/** Puts a text into an editor, as somebody who pastes it. */
async function paste(page, editor, text) {
  await page.evaluate((copied) => navigator.clipboard.writeText(copied), text);
  await editor.click();
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Control+v");
}

/** Returns the text of an object as the editor shows it. */
async function textOf(page) {
  await page.getByRole("button", { name: "Copy YAML" }).click();
  return page.evaluate(() => navigator.clipboard.readText());
}

/** The kinds of a workspace, the objects of a kind as they come and go, and one that is changed. */
export async function objects(page, { url, admin, look }) {
  await page.goto(`${url}/console/objects/${TEAM}`);
  await page.getByRole("link", { name: "Widget" }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("widgets");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/objects\/root:org-01:team-002\/widgets\.v2\.example\.io$/);
  await page.getByRole("link", { name: "ada" }).waitFor();
  await page.getByText("Live", { exact: true }).waitFor();
  await apply(admin, `${WIDGETS}/eve`, "seed", { apiVersion: "example.io/v2", kind: "Widget", metadata: { name: "eve" }, spec: {} });
  await page.getByRole("link", { name: "eve" }).waitFor();
  await admin.send("DELETE", `${WIDGETS}/eve`);
  await page.getByRole("link", { name: "eve" }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Copy kubectl" }).click();
  assert.equal(
    await page.evaluate(() => navigator.clipboard.readText()),
    `kubectl --server ${url}/clusters/${TEAM} get widgets.v2.example.io -A`,
  );
  await look(page, "objects");
  await page.getByRole("link", { name: "ada" }).click();
  const editor = page.getByRole("textbox", { name: "YAML of Widget ada" });
  await editor.waitFor();
  const button = page.getByRole("button", { name: "Apply", exact: true });
  assert.ok(await button.isDisabled());
  assert.ok(await page.getByTitle("You have changed nothing.").and(page.getByRole("button", { name: "Undo" })).isDisabled());

  // The server refuses a field before anything is applied, and the page shows where.
  const before = await textOf(page);
  await paste(page, editor, before.replace(/color: .*/, "color: 7"));
  await page.getByText(".spec.color: expected string, got 7").first().waitFor();
  await page.locator(".cm-lintRange-error").waitFor();
  assert.ok(await button.isDisabled());
  await look(page, "object");

  // Another manager has a field: the conflict names it, and the viewer may take it over.
  const coloured = (color) => ({ apiVersion: "example.io/v2", kind: "Widget", metadata: { name: "ada" }, spec: { color } });
  await apply(admin, `${WIDGETS}/ada`, "painter", coloured("green"));
  await page.getByText("The object has changed on the server since you began.").waitFor();
  await page.getByRole("button", { name: "Begin again" }).click();
  await paste(page, editor, (await textOf(page)).replace("color: green", "color: red"));
  await page.getByText('conflict with "painter"').waitFor();
  await page.getByRole("button", { name: "Take these fields over" }).click();
  await page.getByRole("cell", { name: "console" }).waitFor();
  const changed = await read(admin, `${WIDGETS}/ada`);
  assert.equal(changed.spec.color, "red");
  // What the viewer did not change has its managers, and no other.
  const own = changed.metadata.managedFields.find(({ manager }) => manager === "console");
  assert.deepEqual([own.operation, own.fieldsV1], ["Apply", { "f:spec": { "f:color": {} } }]);

  // The field is the viewer's now, and goes when they take it out.
  await paste(page, editor, (await textOf(page)).replace(/ *color: red\n/, ""));
  await page.getByText("The server accepts it").waitFor();
  await button.click();
  await page.getByRole("cell", { name: "console" }).waitFor({ state: "detached" });
  assert.equal((await read(admin, `${WIDGETS}/ada`)).spec.color, undefined);
  await apply(admin, `${WIDGETS}/ada`, "painter", coloured("blue"));
}

/** Two tabs change one object at once: neither gives up what the other applied, nor overwrites it unasked. */
export async function tabs(first, { url, admin }) {
  const path = `/clusters/${TEAM}/api/v1/namespaces/default/configmaps/shared`;
  await apply(admin, path, "seed", { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "shared" }, data: { a: "one" } });
  const second = await first.context().newPage();
  const opened = (page) => ({
    page,
    editor: page.getByRole("textbox", { name: "YAML of ConfigMap shared" }),
    button: page.getByRole("button", { name: "Apply", exact: true }),
  });
  const [one, two] = [opened(first), opened(second)];
  for (const { page, editor } of [one, two]) {
    await page.goto(`${url}/console/objects/${TEAM}/configmaps.v1/default/shared`);
    await editor.waitFor();
  }
  const edit = async ({ page, editor }, from, to) => {
    await page.bringToFront();
    const text = await textOf(page);
    assert.ok(text.includes(from), text);
    await paste(page, editor, text.replace(from, to));
    await page.getByText("The server accepts it").waitFor();
  };
  const consoleOf = (object) => object.metadata.managedFields.find(({ manager }) => manager === "console");
  await edit(two, "data:\n", "data:\n  b: two\n");
  await edit(one, "data:\n", "data:\n  c: three\n");
  await one.button.click();
  await first.getByRole("cell", { name: "console" }).waitFor();
  await second.bringToFront();
  await second.getByText("The object has changed on the server since you began.").waitFor();
  await two.button.click();
  await second.getByText("The object has changed on the server since you began.").waitFor({ state: "detached" });
  const both = await read(admin, path);
  assert.deepEqual(both.data, { a: "one", b: "two", c: "three" });
  assert.deepEqual(consoleOf(both).fieldsV1, { "f:data": { "f:b": {}, "f:c": {} } });

  // One field in both: the one who comes second is asked.
  await one.editor.getByText("b: two").waitFor();
  await edit(two, "c: three", "c: second");
  await edit(one, "c: three", "c: first");
  await one.button.click();
  await second.bringToFront();
  await second.getByText("The object has changed on the server since you began.").waitFor();
  await two.button.click();
  await second.getByText('became "first" after you began').waitFor();
  assert.equal((await read(admin, path)).data.c, "first");
  // A conflict that came after these were shown is one to agree to as well.
  const rival = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "shared" }, data: { c: "rival" } };
  await apply(admin, path, "rival", rival);
  const take = second.getByRole("button", { name: "Take these fields over" });
  await take.click();
  await second.getByText('became "rival" after you began').waitFor();
  assert.equal((await read(admin, path)).data.c, "rival");
  await take.click();
  await second.getByText('became "rival" after you began').waitFor({ state: "detached" });
  assert.deepEqual((await read(admin, path)).data, { a: "one", b: "two", c: "second" });

  // What is gone meanwhile is not made anew of the changes alone.
  await edit(two, "c: second", "c: third");
  await admin.send("DELETE", path);
  await two.button.click();
  await second.getByText("ConfigMap shared was deleted.").waitFor();
  assert.equal((await admin.send("GET", path)).status, 404);
  await second.close();
  await first.bringToFront();
}

/** Values of secrets are hidden until they are shown, and a new object is made. */
export async function secrets(page, { url, admin }) {
  await page.goto(`${url}/console/objects/${TEAM}/secrets.v1/default?new=1`);
  const text = ["apiVersion: v1", "kind: Secret", "metadata:", "  name: word", "  namespace: default", "stringData:", "  a: open sesame", ""];
  const created = page.getByRole("textbox", { name: "YAML of Secret new" });
  await created.waitFor();
  await paste(page, created, text.join("\n"));
  await page.getByText("The server accepts it").waitFor();
  await page.getByRole("button", { name: "Apply", exact: true }).click();
  await page.waitForURL(/\/secrets\.v1\/default\/word$/);
  const editor = page.getByRole("textbox", { name: "YAML of Secret word" });
  await editor.waitFor();
  const hidden = Buffer.from("open sesame").toString("base64");
  assert.equal(Buffer.from((await read(admin, `/clusters/${TEAM}/api/v1/namespaces/default/secrets/word`)).data.a, "base64").toString(), "open sesame");
  await page.getByText("Show the values first.").waitFor();
  assert.ok(!(await editor.innerText()).includes(hidden));
  await page.getByRole("button", { name: "Show values" }).click();
  await page.getByText(hidden).waitFor();
  // A list of them shows none, nor what kubectl keeps of them.
  const path = `/clusters/${TEAM}/api/v1/namespaces/default/secrets/word`;
  const annotations = { "kubectl.kubernetes.io/last-applied-configuration": hidden };
  await apply(admin, path, "seed", { apiVersion: "v1", kind: "Secret", metadata: { name: "word", annotations } });
  await page.goto(`${url}/console/objects/${TEAM}/secrets.v1`);
  await page.getByRole("button", { name: "View YAML" }).click();
  const shown = page.getByRole("dialog").locator("pre");
  await shown.getByText("last-applied-configuration: ••••••").waitFor();
  assert.ok(!(await shown.innerText()).includes(hidden));
}

/** What is stuck below a workspace and in it, and why. */
export async function stuck(page, { url, look }) {
  await page.goto(`${url}/console/stuck/root`);
  await page.getByRole("row", { name: /root:org-02:stuck/ }).waitFor();
  // Of a thousand workspaces a few are looked into, and the page says so.
  await page.getByText(/Objects of 25 of the 1,\d{3} workspaces below, the nearest first/).waitFor();
  const more = page.getByRole("button", { name: /^Look into \d+ more$/ });
  await more.click();
  await page.getByText(/Objects of 50 of the 1,\d{3} workspaces below/).waitFor();
  // An object of a workspace below, with the causes of it.
  await page.goto(`${url}/console/stuck/root:org-21`);
  await page.getByRole("row", { name: /APIBinding widgets root:org-21:team-001/ }).click();
  const below = page.getByRole("complementary", { name: "APIBinding widgets" });
  await below.getByText(/naming conflict with CustomResourceDefinition/).waitFor();
  await more.click();
  await page.getByText("Objects of all 41 workspaces below.").waitFor();
  await page.getByText(/^Read every \d+ s$/).waitFor();
  await look(page, "stuck");
  // Rules that keep fields for their own version say so by a condition that is no obstacle.
  await page.goto(`${url}/console/stuck/root:provider`);
  await page.getByText("Nothing that is stuck was found in root:provider").waitFor();
  await page.goto(`${url}/console/stuck/root`);
  await page.getByRole("row", { name: /root:org-02:stuck/ }).waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("org-02");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  const details = page.getByRole("complementary", { name: "Workspace root:org-02:stuck" });
  await details.getByText("initializer root:waiting").waitFor();
  // The address has it.
  await page.reload();
  await details.getByText("initializer root:waiting").waitFor();
  await page.goto(`${url}/console/stuck/root:org-21:team-001`);
  await page.getByRole("row", { name: /APIBinding/ }).click();
  const chain = page.getByRole("complementary", { name: "APIBinding widgets" });
  await chain.getByText(/naming conflict with CustomResourceDefinition/).waitFor();
  await chain.getByRole("link", { name: "Open" }).click();
  await page.waitForURL(/\/objects\/root:org-21:team-001\/apibindings\.v1alpha2\.apis\.kcp\.io\/widgets$/);
}

/** The usage of workspaces, and limits that are set. */
export async function usage(page, { url, admin, look }) {
  await page.goto(`${url}/console/usage/root:org-01`);
  await page.getByRole("row", { name: /team-003/ }).waitFor();
  await page.getByRole("button", { name: "Objects", exact: true }).click();
  await page.getByRole("row", { name: /team-004/ }).click();
  const details = page.getByRole("complementary", { name: "Usage of root:org-01:team-004" });
  await details.getByRole("button", { name: "Set limits…" }).click();
  await details.getByLabel("Objects", { exact: true }).fill("50");
  await details.getByRole("button", { name: "Copy insula" }).click();
  assert.equal(
    await page.evaluate(() => navigator.clipboard.readText()),
    "insula ws limits root:org-01:team-004 --objects 50",
  );
  await details.getByRole("button", { name: "Set", exact: true }).click();
  await details.getByText(/of 50(?!,)/).waitFor();
  const limits = await admin.call("QuotaService/GetLimits", { workspace: "root:org-01:team-004" });
  assert.deepEqual([limits.own.objects, limits.own.watches], [50, 0]);
  await look(page, "usage");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Save CSV" }).click(),
  ]);
  const lines = readFileSync(await download.path(), "utf8").trim().split("\n");
  assert.match(lines[0], /^workspace,cluster,objects,bytes,/);
  // The teams, and the one that was made while the tree was looked at.
  assert.equal(lines.length, 1 + 42);
}

/** Who did what: a refusal is found among all requests, whole, and older ones are read. */
export async function audit(page, { url, admin, look }) {
  const refused = await admin.send("POST", `${WIDGETS}?marked=by-the-test`, { apiVersion: "example.io/v2", kind: "Gadget" });
  assert.ok(refused.status >= 400, refused.text);
  await page.goto(`${url}/console/audit/${TEAM}`);
  await page.getByRole("button", { name: "Failed" }).click();
  await page.waitForURL(/\/audit\/root:org-01:team-002\?failed=1$/);
  await page.getByText("Read every 10 s").waitFor();
  const row = page.getByRole("row", { name: new RegExp(`create widgets/default.*${refused.status}`) }).first();
  await row.click();
  await page.getByRole("complementary", { name: /^create widgets/ }).getByText("marked=by-the-test").waitFor();
  await look(page, "audit");
  await page.getByRole("button", { name: "All workspaces" }).click();
  await page.getByRole("button", { name: "Failed" }).click();
  await page.waitForURL(/\?all=1$/);
  await page.getByText("500 requests", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Older" }).click();
  await page.getByText("1,000 requests", { exact: true }).waitFor();
  await page.getByRole("row", { name: /root:org-01:team-002/ }).first().click();
  await page.getByRole("button", { name: "Copy insula" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "insula server audit");
}

/** Requests by workspace, the busiest first, and those of the server by verb. */
export async function traffic(page, { url, admin, look }) {
  const busiest = "root:org-01:team-005";
  await page.goto(`${url}/console/traffic/root:org-01`);
  await page.getByText("Read every 10 s", { exact: true }).waitFor();
  let busy = true;
  const asking = (async () => {
    while (busy) {
      await admin.send("GET", `/clusters/${busiest}/api/v1/namespaces/default/configmaps`);
      await new Promise((next) => setTimeout(next, 20));
    }
  })();
  const grid = page.getByRole("grid", { name: "Traffic" });
  const first = grid.locator('[aria-rowindex="2"]');
  await first.getByText("team-005", { exact: true }).waitFor();
  // Rates are those between readings: the requests before the page are no part of them.
  await first.getByText(/^[1-9]\d*\.\d$/).waitFor();
  await first.click({ position: { x: 200, y: 5 } });
  const details = page.getByRole("complementary", { name: `Traffic of ${busiest}` });
  await details.getByRole("row", { name: /^list [1-9]\d*\.\d [\d,]+$/ }).waitFor();
  await details.getByRole("row", { name: /^List [1-9]\d*\.\d [\d,]+ \d+ [\d.]+ m?s [\d.]+ m?s$/ }).waitFor();
  for (const text of [/^\d+ open, by \d+ connections$/, /refused by limits, \d+\.\d in a second$/, /^[\d,]+ objects, \d+ failed, \d+\.\d in a second$/]) {
    await details.getByText(text).waitFor();
  }
  const rates = details.getByRole("img", { name: /^Requests of root:org-01:team-005: / }).locator("rect");
  await rates.nth(2).waitFor();
  await look(page, "traffic");
  busy = false;
  await asking;
  // The address has the choice, and a workspace leads to those below it.
  await page.reload();
  await details.waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("team-04");
  await page.getByText("2 workspaces", { exact: true }).waitFor();
  await grid.getByRole("link", { name: "team-041" }).click();
  await page.waitForURL(/\/traffic\/root:org-01:team-041$/);
  await grid.getByText("root:org-01:team-041 itself").waitFor();
}

export async function servers(page, { url, look }) {
  await page.goto(`${url}/console/servers`);
  await page.getByText("Ready", { exact: true }).waitFor();
  await page.getByText("Flush p99").waitFor();
  await page.getByRole("cell", { name: /answers$/ }).waitFor();
  await page.getByText("Read every 10 s").waitFor();
  await look(page, "servers");
  await page.getByRole("button", { name: "View YAML" }).click();
  await page.getByRole("dialog").getByText(/listen/).first().waitFor();
}

/** A change of a schema: what breaks, and whom. */
export async function difference(page, { url, look }) {
  await page.goto(`${url}/console/diff/root:provider/widgets`);
  const editor = page.getByRole("textbox", { name: "The schema after" });
  await editor.waitFor();
  const before = await page.getByLabel("The schema before").innerText();
  const without = before.replace(/ +color:\n.*\n.*\n/, "");
  assert.notEqual(without, before);
  await paste(page, editor, without);
  const changes = page.getByRole("region", { name: "Changes" });
  await changes.getByText("1 change, 1 of them breaks").waitFor();
  await changes.getByRole("button", { name: "Whom does it break?" }).click();
  await changes.getByText("30 objects in 30 workspaces").waitFor();
  await changes.getByText("root:org-05:team-001").waitFor();
  await look(page, "diff");
}

/** A tenant asks for an API, its owner approves, and the tenant binds it. */
export async function catalogue(page, guest, { url, look }) {
  const team = "root:org-01:team-040";
  await guest.goto(`${url}/console/apis/${team}`);
  await guest.getByRole("row", { name: /Gears/ }).click();
  const offer = guest.getByRole("complementary", { name: "API Gears" });
  await offer.getByLabel("Reason").fill("wheels that turn each other");
  await offer.getByRole("button", { name: "Request", exact: true }).click();
  await offer.getByText("Requested").first().waitFor();
  await page.goto(`${url}/console/apis/root:provider`);
  const requests = page.getByRole("region", { name: "Requests" });
  await requests.getByText("wheels that turn each other").waitFor();
  await look(page, "requests");
  await requests.getByRole("button", { name: "Approve" }).click();
  await requests.getByText("Granted").waitFor();
  await guest.reload();
  await offer.getByRole("checkbox").check();
  await look(guest, "apis");
  await offer.getByRole("button", { name: `Bind in ${team}` }).click();
  await offer.getByText("Bound").waitFor();
  await offer.getByRole("link", { name: "Binding" }).click();
  await guest.getByRole("textbox", { name: "YAML of APIBinding gears" }).getByText("state: Accepted").waitFor();
}

/** Stored objects are written anew, and a registration of an old kind is replaced, or is not after all. */
export async function migrations(page, { url, admin, look }) {
  const team = "root:org-01:team-006";
  const base = `/clusters/${team}`;
  const tabs = `${base}/thirdparty/stable.example.com/stable/v1/namespaces/default/crontabs`;
  const registrations = `${base}/apis/extensions/v1beta1/thirdpartyresources`;
  await admin.create(registrations, {
    apiVersion: "extensions/v1beta1",
    kind: "ThirdPartyResource",
    metadata: { name: "cron-tab.stable.example.com" },
    description: "Jobs by the clock",
    versions: [{ name: "stable/v1" }],
  });
  while ((await admin.send("GET", tabs)).status !== 200) await new Promise((next) => setTimeout(next, 100));
  const tab = (name) => ({ apiVersion: "stable.example.com/stable/v1", kind: "CronTab", metadata: { name }, cronSpec: "* * * * 5" });
  for (let made = 0; made < 12; made += 1) await admin.create(tabs, tab(`tab-${made}`));

  await page.goto(`${url}/console/migrations/${team}`);
  await page.getByLabel("Write all objects of").fill("configmaps");
  await page.getByRole("button", { name: "Migrate", exact: true }).click();
  const written = page.getByRole("row", { name: /configmaps StorageVersionMigration Succeeded/ });
  await written.click();
  const request = page.getByRole("complementary", { name: /^Migration configmaps-/ });
  await request.getByText("StorageVersionMigrationSucceeded").waitFor();
  await request.getByRole("button", { name: "Remove" }).click();
  await written.waitFor({ state: "detached" });

  const row = page.getByRole("row", { name: /cron-?tabs?\.stable\.example\.com/ });
  const details = page.getByRole("complementary", { name: "Migration cron-tab.stable.example.com" });
  const begin = async () => {
    await row.click();
    await details.getByRole("button", { name: "Show its effects" }).click();
    await details.getByText("12 objects fit.").waitFor();
    await details.getByRole("button", { name: "Begin" }).click();
    await details.getByText("Count and freeze the objects").first().waitFor();
  };
  // Begun and turned back: clients may not write meanwhile.
  await begin();
  assert.equal((await admin.send("POST", tabs, tab("frozen"))).status, 403);
  await look(page, "migrations");
  await details.getByRole("button", { name: "Turn back" }).click();
  await row.getByText("Not begun").waitFor();
  assert.equal((await admin.send("DELETE", `${tabs}/none`)).status, 404);
  // Begun and done.
  await begin();
  await details.getByRole("button", { name: "Continue" }).click();
  await row.waitFor({ state: "detached" });
  const kept = await read(admin, `${base}/apis/stable.example.com/v1/namespaces/default/crontabs`);
  assert.equal(kept.items.length, 12);
  await read(admin, `${base}/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.stable.example.com`);
}

/** Who may only look sees why they may not change anything. */
export async function lookingOnly(guest, { url }) {
  // Of the server's traffic a tenant sees that of their workspaces.
  await guest.goto(`${url}/console/traffic/root:org-01`);
  await guest.getByRole("grid", { name: "Traffic" }).getByRole("link", { name: "team-001" }).waitFor();
  await guest.getByText("are for administrators of the installation").waitFor();
  assert.equal(await guest.getByText("The server that answers").count(), 0);
  // Three of the workspaces of her organization are open to her.
  await guest.goto(`${url}/console/stuck/root:org-01`);
  const more = guest.getByRole("button", { name: /^Look into \d+ more$/ });
  await more.click();
  await guest.getByText("Objects of all 42 workspaces below. You may not look into 39 of them.").waitFor();
  const team = "root:org-01:team-039";
  await guest.goto(`${url}/console/objects/${team}/configmaps.v1/default/kube-root-ca.crt`);
  await guest.getByText(`You may not patch configmaps in ${team}.`).waitFor();
  assert.ok(await guest.getByRole("button", { name: "Apply", exact: true }).isDisabled());
  await guest.goto(`${url}/console/objects/${team}/configmaps.v1`);
  const create = guest.getByRole("button", { name: "New", exact: true });
  await guest.getByRole("link", { name: "kube-root-ca.crt" }).first().waitFor();
  await create.and(guest.getByTitle(`You may not create configmaps in ${team}.`)).waitFor();
  assert.ok(await create.isDisabled());
  await guest.goto(`${url}/console/migrations/${team}`);
  await guest.getByText(`You may not create storageversionmigrations in ${team}.`).waitFor();
  assert.ok(await guest.getByRole("button", { name: "Migrate", exact: true }).isDisabled());
}
