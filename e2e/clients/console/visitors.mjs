// What people meet in the console who come for the first time, who have few rights, or who follow an
// address or a name that somebody made for them.

import assert from "node:assert/strict";
import { settled } from "./fresh.mjs";

const copied = (page) => page.evaluate(() => navigator.clipboard.readText());

/** A schema without a field that objects have: somebody made it, and did not release it. */
async function prepare(admin) {
  const base = "/clusters/root:provider/apis/apis.kcp.io";
  const offered = JSON.parse((await admin.send("GET", `${base}/v1alpha2/apiexports/widgets`)).text).spec.resources[0].schema;
  const made = [];
  for (const [plural, kind] of [["apiresourceschemas", "APIResourceSchema"], ["apiconversions", "APIConversion"]]) {
    const { spec } = JSON.parse((await admin.send("GET", `${base}/v1alpha1/${plural}/${offered}`)).text);
    for (const { schema } of spec.versions ?? []) delete schema.properties.spec.properties.color;
    const path = `${base}/v1alpha1/${plural}`;
    await admin.create(path, { apiVersion: "apis.kcp.io/v1alpha1", kind, metadata: { name: PREPARED }, spec });
    made.push(`${path}/${PREPARED}`);
  }
  return made;
}

const PREPARED = "next.widgets.example.io";

/** Who uses a version, why a binding is not ready, and whom a release would hurt: two clicks each, counted. */
export async function questions(page, { url, admin, look, within }) {
  const begin = async () => {
    await page.goto(`${url}/console`);
    await page.getByText("Live", { exact: true }).waitFor();
  };
  const to = (name) => page.getByRole("navigation").getByRole("link", { name }).click();
  const api = page.getByRole("listitem").filter({ has: page.getByRole("link", { name: "Widgets", exact: true }) });
  await begin();
  await within(2, "who uses a version", async () => {
    await to("Exports");
    await api.getByRole("link", { name: "v1", exact: true }).click();
    await page.getByText("15 bindings").waitFor();
    await page.getByRole("row", { name: /root:org-01:team-001 Ready v1 / }).waitFor();
  });
  await page.reload();
  await page.getByText("15 bindings").waitFor();
  // Beside the graph as well, and back.
  await page.getByRole("button", { name: "widgets.example.io/v1", exact: true }).click();
  await page.getByText("46 bindings").waitFor();
  await page.goBack();
  await page.getByText("15 bindings").waitFor();

  await begin();
  await within(2, "why a binding is not ready", async () => {
    await to("Exports");
    await api.getByRole("link", { name: "Widgets" }).click();
    await page.getByRole("row", { name: /root:org-21:team-001 Conflict .*naming conflict with CustomResourceDefinition/ }).waitFor();
  });

  await begin();
  await page.goto(`${url}/console/releases/root:provider/widgets`);
  await page.getByText("Change the schemas and rules on offer").waitFor();
  // The page is told when somebody prepares a release.
  const made = await prepare(admin);
  await page.getByText("30 objects in 30 workspaces").waitFor();
  await begin();
  await within(2, "whom a release would hurt", async () => {
    await to("Releases");
    await api.getByRole("link", { name: "Widgets" }).click();
    await page.getByText(`Prepared, and not on offer: ${PREPARED}`).waitFor();
    await page.getByText("30 objects in 30 workspaces").waitFor();
    await page.getByRole("link", { name: "root:org-05:team-001" }).waitFor();
  });
  await look(page, "prepared");
  for (const path of made.reverse()) await admin.send("DELETE", path);
  await page.getByText("Prepared, and not on offer").waitFor({ state: "detached" });

  // Of a change that is being written, too.
  await begin();
  await to("Releases");
  await api.getByRole("link", { name: "Widgets" }).click();
  await page.getByRole("button", { name: "Begin with what is on offer" }).click();
  const text = page.getByLabel("Schemas and rules of the next release");
  await text.fill((await text.inputValue()).replace(/ +color:\n.*\n.*\n/, ""));
  await page.getByRole("button", { name: "Show its effects" }).click();
  await page.getByText("30 objects in 30 workspaces").waitFor();
  await page.getByRole("link", { name: "root:org-05:team-001" }).waitFor();
}

/** Names with all that a shell or a selector reads, in the commands that are copied. */
export async function names(page, { url, admin }) {
  const team = "root:org-01:team-007";
  const roles = `/clusters/${team}/apis/rbac.authorization.k8s.io/v1/clusterroles`;
  const type = "clusterroles.v1.rbac.authorization.k8s.io";
  const get = `kubectl --server ${url}/clusters/${team} get`;
  for (const [name, command] of [
    ["$(touch x) & it's <b>bold<b>", `${get} ${type} '$(touch x) & it'\\''s <b>bold<b>' -o yaml`],
    ["--server=evil", `${get} ${type}/--server=evil -o yaml`],
    ["a,b=c", `${get} ${type} a,b=c -o yaml`],
  ]) {
    await admin.create(roles, { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata: { name }, rules: [] });
    await page.goto(`${url}/console/objects/${team}/${type}`);
    await page.getByRole("searchbox").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type(name);
    await page.getByRole("link", { name, exact: true }).click();
    await page.getByRole("textbox", { name: `YAML of ClusterRole ${name}` }).waitFor();
    await page.getByText("Live", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Copy kubectl" }).click();
    assert.equal(await copied(page), command);
  }
}

/** Addresses whose parts are paths of their own lead nowhere. */
export async function addresses(page, { url }) {
  // The page before this one reads on until it is left.
  await page.goto("about:blank");
  const asked = [];
  const note = (request) => asked.push(new URL(request.url()).pathname);
  page.on("request", note);
  for (const workspace of ["root%2F..%2F..%2Fversion", "root%3Fa=b", "..", "%2E%2E%2Fx"]) {
    for (const kind of ["objects", "exports", "apis", "usage", "stuck"]) {
      await page.goto(`${url}/console/${kind}/${workspace}/widgets`);
      const [, shown] = new URL(page.url()).pathname.split("/console/");
      if (shown?.startsWith(kind)) await page.getByText(/The address names no workspace/).waitFor();
    }
  }
  await page.goto(`${url}/console/exports/root/..%2F..%2F..%2Fversion`);
  await page.getByRole("alert").first().waitFor();
  page.off("request", note);
  const others = asked.filter((path) => path.startsWith("/console/api/") && !/^\/console\/api\/(clusters\/root\/|insula\.)/.test(path));
  assert.deepEqual(others, []);
}

/** Who may list and not watch is told that pages read now and then; who sees no tree here finds theirs. */
export async function withoutWatch(guest, { url }) {
  const team = "root:org-01:team-038";
  for (const path of [`/objects/${team}/configmaps.v1`, `/apis/${team}`, `/migrations/${team}`]) {
    await guest.goto(`${url}/console${path}`);
    await guest.getByText("Read every 30 s").waitFor();
  }
  await guest.evaluate(() => localStorage.setItem("home", "root"));
  await guest.goto(`${url}/console`);
  await guest.getByRole("alert").first().waitFor();
  await guest.getByLabel("Begin at another workspace").fill("root:org-01");
  await guest.keyboard.press("Enter");
  await guest.locator('[role=row][id="ws-root_org-01"]').waitFor();
}

/** `/` searches on every page: its list where it has one, pages and workspaces elsewhere. */
export async function searchEverywhere(page, { url, look }) {
  const team = "root:org-01:team-002";
  const box = page.getByRole("dialog", { name: "Go to" });
  const field = box.getByRole("combobox");
  for (const path of [
    `/objects/${team}/configmaps.v1/default/kube-root-ca.crt`,
    "/releases/root:provider/widgets",
    "/diff/root:provider/widgets",
    "/conversion/root:provider",
    "/servers",
  ]) {
    await page.goto(`${url}/console${path}`);
    await page.getByRole("button", { name: "Copy insula" }).first().waitFor();
    await page.keyboard.press("/");
    await field.waitFor();
    await page.keyboard.press("Escape");
    await box.waitFor({ state: "hidden" });
  }
  await page.keyboard.press("/");
  await page.keyboard.type("org-07 team-012");
  // No letter is lost that comes right after the key.
  assert.equal(await field.inputValue(), "org-07 team-012");
  await box.getByRole("option", { name: "root:org-07:team-012" }).waitFor();
  await look(page, "go-to");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/console\/workspaces\/root:org-07:team-012$/);
  // There a list is searched; elsewhere a page of what is open, by the arrow keys.
  await page.keyboard.press("/");
  assert.equal(await box.count(), 0);
  await page.goto(`${url}/console/releases/root:provider/widgets`);
  await page.getByRole("button", { name: "Copy insula" }).first().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("s");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  assert.match(await box.getByRole("option", { selected: true }).innerText(), /^Stuck\s/);
  await box.getByRole("option", { name: "Exports" }).click();
  await page.waitForURL(/\/console\/exports\/root:provider\/widgets$/);
  // What is written into a text stays there.
  await page.goto(`${url}/console/conversion/root:provider`);
  await page.getByLabel("Rules").focus();
  await page.keyboard.press("/");
  assert.equal(await box.count(), 0);
}

const TEAM = "root:org-01:team-002";
/** All pages. */
const PAGES = [
  "",
  `/objects/${TEAM}`,
  `/objects/${TEAM}/configmaps.v1`,
  `/stuck/${TEAM}`,
  `/apis/${TEAM}`,
  "/exports/root:provider",
  "/exports/root:provider/widgets",
  "/releases/root:provider/widgets",
  "/diff/root:provider/widgets",
  "/conversion/root:provider",
  `/migrations/${TEAM}`,
  "/traffic/root:org-01",
  `/usage/${TEAM}`,
  `/audit/${TEAM}`,
  "/servers",
];

/** Every page offers the commands behind it and what it shows as YAML. */
export async function commands(page, { url }) {
  for (const path of PAGES) {
    await page.goto(`${url}/console${path}`);
    for (const name of ["Copy kubectl", "Copy insula"]) {
      await page.getByRole("button", { name }).first().click();
      assert.match(await copied(page), name.endsWith("kubectl") ? /^kubectl --server https:/ : /^insula /, `${path}: ${name}`);
    }
    await page.getByRole("button", { name: "View YAML" }).first().click();
    const shown = page.getByRole("dialog").locator("pre", { hasText: /\w+:/ });
    await shown.waitFor().catch(() => assert.fail(`${path}: View YAML shows nothing`));
    await page.keyboard.press("Escape");
  }
}

/** Presses that lead from a page's first control to its last, at most. */
const TABS_MAX = 400;

/** Every control of every page can be reached with the keyboard alone, is left again, and shows that it has the focus. */
export async function reach(page, { url }) {
  for (const path of [...PAGES, `/objects/${TEAM}/configmaps.v1/default/kube-root-ca.crt`]) {
    await page.goto(`${url}/console${path}`);
    if (path.startsWith("/conversion")) await page.getByText("The server would accept these rules").waitFor();
    else await settled(page);
    const wanted = await page.evaluate(() => {
      const shown = (element) => element.checkVisibility() && element.getClientRects().length > 0;
      const controls = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex], [contenteditable=true]")];
      // Of a grid one place has the focus, and the arrow keys move in it.
      const own = controls.filter((one) => shown(one) && !one.disabled && one.tabIndex >= 0 && !one.closest("[tabindex='-1']"));
      own.forEach((one, index) => one.setAttribute("data-stop", index));
      document.activeElement?.blur();
      return own.length;
    });
    assert.ok(wanted > 10, `${path}: ${wanted} controls`);
    const reached = new Set();
    for (let presses = 0; presses < TABS_MAX && reached.size < wanted; presses += 1) {
      await page.keyboard.press("Tab");
      const { stop, visible, what } = await page.evaluate(() => {
        const one = document.activeElement;
        const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(one);
        const outlined = (outlineStyle !== "none" && outlineWidth !== "0px") || boxShadow !== "none";
        return { stop: one.getAttribute("data-stop"), visible: outlined || one.matches("body, .cm-content"), what: one.outerHTML.slice(0, 120) };
      });
      assert.ok(visible, `${path}: nothing shows the focus of ${what}`);
      if (stop !== null) reached.add(stop);
    }
    const missing = await page.evaluate(
      (stops) => [...document.querySelectorAll("[data-stop]")].filter((one) => !stops.includes(one.getAttribute("data-stop"))).map((one) => one.outerHTML.slice(0, 120)),
      [...reached],
    );
    assert.deepEqual(missing, [], `${path}: not reached by Tab`);
  }
}
