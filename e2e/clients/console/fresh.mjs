// How fresh pages are: what they say between two readings, when one fails, and when one does not come.

import assert from "node:assert/strict";

const STALE = /^Stale since \d\d:\d\d:\d\d$/;
/** Milliseconds within which a reading that failed is tried again. */
const SOON = 9000;

const method = (name) => `**/console/api/insula.admin.v1.${name}`;
const busy = (route) => route.fulfill({ status: 503, contentType: "application/json", body: '{"message": "too busy to say"}' });

/** Waits until a page is as fresh as it becomes. */
export async function settled(page) {
  await page.locator('[data-live="live"], [data-live="read"]').first().waitFor();
}

/** A page that is read now and then says how often; where a part fails, it shows the one before. */
export async function polled(page, { url }) {
  await page.goto(`${url}/console/servers`);
  const every = page.getByText("Read every 10 s", { exact: true });
  const stale = page.getByText(STALE);
  await every.waitFor();
  assert.equal(await page.getByText("Live", { exact: true }).count(), 0);
  await page.route(method("MaintenanceService/GetHealth"), busy);
  await stale.waitFor();
  await page.getByText("too busy to say").waitFor();
  assert.ok(await page.getByText("Ready", { exact: true }).isVisible());
  await page.unroute(method("MaintenanceService/GetHealth"), busy);
  await every.waitFor({ timeout: SOON });
  assert.equal(await page.getByText("too busy to say").count(), 0);

  // A reading that does not come is overdue.
  const silent = () => undefined;
  await page.route(method("ClusterService/GetInfo"), silent);
  await stale.waitFor();
  await page.goto("about:blank");
  await page.unroute(method("ClusterService/GetInfo"), silent);
}

/** The details of a workspace keep the reason why it is stuck while the server does not tell it. */
export async function details(page, { url, admin }) {
  await page.goto(`${url}/console/workspaces/root:org-02:stuck`);
  const shown = page.getByRole("complementary", { name: "Workspace root:org-02:stuck" });
  const why = shown.getByText("Why it is not ready");
  await why.waitFor();
  await page.getByText("Live", { exact: true }).waitFor();
  await page.route(method("WorkspaceService/ExplainWorkspace"), busy);
  // A change has it read again.
  const path = "/clusters/root:org-02/apis/tenancy.kcp.io/v1alpha1/workspaces/stuck";
  const patch = { "content-type": "application/merge-patch+json" };
  assert.equal((await admin.send("PATCH", path, { metadata: { labels: { looked: "again" } } }, patch)).status, 200);
  await shown.getByText("looked=again").waitFor();
  const stale = shown.getByText(STALE);
  await stale.waitFor();
  assert.ok(await why.isVisible());
  await page.unroute(method("WorkspaceService/ExplainWorkspace"), busy);
  await stale.waitFor({ state: "detached", timeout: SOON });
  assert.ok(await why.isVisible());
}

/** Rates of workspaces go on without the figures of the server, and each part says what it lacks. */
export async function traffic(page, { url }) {
  const team = "root:org-01:team-001";
  await page.goto(`${url}/console/traffic/root:org-01?show=${team}`);
  const shown = page.getByRole("complementary", { name: `Traffic of ${team}` });
  const own = shown.locator("section").filter({ has: page.getByRole("heading", { name: team }) });
  const server = shown.locator("section").filter({ has: page.getByRole("heading", { name: "The server that answers" }) });
  const rates = own.getByRole("img").locator("rect");
  await rates.first().waitFor();
  await server.getByText("Watches").waitFor();
  await page.route("**/console/api/metrics", busy);
  await server.getByText(STALE).waitFor();
  await server.getByText("too busy to say").waitFor();
  assert.ok(await server.getByText("Watches").isVisible());
  await rates.nth(await rates.count()).waitFor();
  assert.equal(await own.getByText(STALE).count(), 0);
  await page.unroute("**/console/api/metrics", busy);
  await server.getByText(STALE).waitFor({ state: "detached", timeout: SOON });

  await page.route(method("QuotaService/GetUsage"), busy);
  await own.getByText(STALE).waitFor();
  await own.getByText("too busy to say").waitFor();
  await page.unroute(method("QuotaService/GetUsage"), busy);
  await own.getByText(STALE).waitFor({ state: "detached", timeout: SOON });
  assert.equal(await page.getByText("too busy to say").count(), 0);
}
