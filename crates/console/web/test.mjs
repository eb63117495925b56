// Checks what an edit applies, and what pages read of metrics and migrations: parts that take no browser.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { build } from "esbuild";

/** Returns the module of a source file. */
async function load(file) {
  const { outputFiles } = await build({ entryPoints: [file], bundle: true, format: "esm", write: false });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);
}

const { configuration, rebased, remaining } = await load("src/applied.ts");
const { Paces, automatic, begun, requested } = await load("src/migrating.ts");
const { Tree } = await load("src/tree.ts");
const { parseMetrics, quantile, sum } = await load("src/metrics.ts");
const { apply } = await load("src/draft.ts");
const { objectArgs, quoted } = await load("src/command.ts");
const { isPath, parse } = await load("src/router.ts");
const { RATES_MAX, Readings } = await load("src/rates.ts");
const { nextOf, prepared } = await load("src/prepared.ts");

/** Runs a test with a server of its own, and a browser's parts that it has not. */
async function served(fetch, run) {
  const before = { fetch: globalThis.fetch, requestAnimationFrame: globalThis.requestAnimationFrame, localStorage: globalThis.localStorage };
  const frame = (next) => setTimeout(next, 0);
  Object.assign(globalThis, { fetch, requestAnimationFrame: frame, localStorage: { getItem: () => null } });
  try {
    await run();
  } finally {
    Object.assign(globalThis, before);
  }
}

const answered = (body, status = 200) => new Response(typeof body === "string" ? body : JSON.stringify(body), { status });

const HEAD = { apiVersion: "v1", kind: "Pod", metadata: { name: "a", namespace: "b" } };
const pod = (spec) => ({ ...HEAD, spec });
const manager = (name, operation, fieldsV1) => ({ manager: name, operation, apiVersion: "v1", fieldsV1 });
/** The fields of a pod of somebody else: a list of maps, one of values, and one that is a single value. */
const OTHERS = manager("kubectl", "Update", {
  "f:spec": {
    "f:containers": { 'k:{"name":"x"}': { ".": {}, "f:name": {}, "f:image": {} }, 'k:{"name":"y"}': { ".": {}, "f:image": {} } },
    "f:args": {},
    "f:nodes": {},
  },
});
const BEFORE = pod({ containers: [{ name: "x", image: "1" }, { name: "y", image: "1" }], args: ["a", "b"], nodes: { n: "1" } });

test("an object that nobody changed applies nothing", () => {
  assert.deepEqual(configuration(BEFORE, BEFORE, [OTHERS]), HEAD);
});

test("a change of an item names the item alone", () => {
  const after = structuredClone(BEFORE);
  after.spec.containers[1].image = "2";
  assert.deepEqual(configuration(BEFORE, after, [OTHERS]), pod({ containers: [{ name: "y", image: "2" }] }));
});

test("a new item comes whole, and a list that is one value as well", () => {
  const after = structuredClone(BEFORE);
  after.spec.containers.push({ name: "z", image: "3" });
  after.spec.args[1] = "c";
  const wanted = pod({ containers: [{ name: "z", image: "3" }], args: ["a", "c"] });
  assert.deepEqual(configuration(BEFORE, after, [OTHERS]), wanted);
});

test("fields that were applied before are applied again, until they are taken out", () => {
  const own = manager("console", "Apply", {
    "f:spec": { "f:containers": { 'k:{"name":"x"}': { ".": {}, "f:image": {} } }, "f:nodes": {} },
  });
  const wanted = pod({ containers: [{ name: "x", image: "1" }], nodes: { n: "1" } });
  assert.deepEqual(configuration(BEFORE, BEFORE, [OTHERS, own]), wanted);
  const after = structuredClone(BEFORE);
  delete after.spec.nodes;
  assert.deepEqual(configuration(BEFORE, after, [OTHERS, own]), pod({ containers: [{ name: "x", image: "1" }] }));
  assert.deepEqual(remaining(BEFORE, after, BEFORE), [".spec.nodes"]);
  assert.deepEqual(remaining(BEFORE, after, after), []);
});

test("a new object is applied whole", () => {
  assert.deepEqual(configuration(HEAD, pod({ args: [], empty: {} }), []), pod({ args: [], empty: {} }));
});

test("an edit is made on the object as it is now, and applies what another tab applied meanwhile", () => {
  const after = structuredClone(BEFORE);
  after.spec.containers[1].image = "2";
  const now = structuredClone(BEFORE);
  now.spec.nodes.n = "7";
  now.spec.containers.unshift({ name: "w", image: "5" });
  const own = manager("console", "Apply", {
    "f:spec": { "f:containers": { 'k:{"name":"w"}': { ".": {}, "f:name": {}, "f:image": {} } }, "f:nodes": {} },
  });
  const { object, clashes } = rebased(BEFORE, after, now, [OTHERS, own]);
  assert.deepEqual(clashes, []);
  const [x, y, w] = [{ name: "x", image: "1" }, { name: "y", image: "2" }, { name: "w", image: "5" }];
  assert.deepEqual(object, pod({ containers: [w, x, y], args: ["a", "b"], nodes: { n: "7" } }));
  assert.deepEqual(configuration(now, object, [OTHERS, own]), pod({ containers: [w, y], nodes: { n: "7" } }));
});

test("a field that changed in two ways is a clash, and one that changed in one way is none", () => {
  const edit = (change) => {
    const copy = structuredClone(BEFORE);
    change(copy.spec);
    return copy;
  };
  const clashesOf = (mine, theirs) => rebased(BEFORE, edit(mine), edit(theirs), [OTHERS]);
  const image = (value) => (spec) => (spec.containers[1].image = value);
  assert.deepEqual(clashesOf(image("2"), image("3")).clashes, [{ field: '.spec.containers[name="y"].image', now: "3" }]);
  assert.deepEqual(clashesOf(image("2"), image("2")).clashes, []);
  // The viewer's value stands if they insist.
  assert.equal(clashesOf(image("2"), image("3")).object.spec.containers[1].image, "2");
  const gone = clashesOf((spec) => spec.containers.pop(), image("3"));
  assert.deepEqual(gone.clashes, [{ field: '.spec.containers[name="y"]', now: { name: "y", image: "3" } }]);
  const none = clashesOf((spec) => delete spec.nodes, (spec) => spec.containers.pop());
  assert.deepEqual([none.clashes, none.object], [[], pod({ containers: [{ name: "x", image: "1" }], args: ["a", "b"] })]);
  const taken = clashesOf((spec) => (spec.nodes.n = "2"), (spec) => delete spec.nodes);
  assert.deepEqual(taken.clashes, [{ field: ".spec.nodes", now: undefined }]);
});

test("a tree of many workspaces is shown a few times while it is read, its first level at once", async () => {
  const lineOf = (path, parent) =>
    `${JSON.stringify({ header: { revision: 7 }, workspace: { path, parent, type: "", phase: "Ready", cluster: "", conditions: [] } })}\n`;
  const [root, child] = [lineOf("root", ""), (n) => lineOf(`root:${String(n).padStart(5, "0")}`, "root")];
  // Each of a hundred parts of the whole tree comes by itself.
  const fetch = async (_, { body }) => {
    const [parts, size] = JSON.parse(body).maxDepth === 1 ? [1, 10] : [100, 20];
    let part = 0;
    const pull = async (stream) => {
      await new Promise((next) => setTimeout(next, 1));
      const lines = Array.from({ length: size }, (_, n) => child(part * size + n)).join("");
      stream.enqueue(new TextEncoder().encode(part === 0 ? root + lines : lines));
      part += 1;
      if (part === parts) stream.close();
    };
    return new Response(new ReadableStream({ pull }));
  };
  await served(fetch, async () => {
    const tree = new Tree("root");
    const sizes = [];
    tree.subscribe(() => sizes.push(tree.nodes.size));
    const began = performance.now();
    await tree.load();
    const most = 3 + (performance.now() - began) / 100;
    await new Promise((next) => setTimeout(next, 200));
    assert.equal(tree.nodes.size, 2001);
    assert.ok(sizes[0] < 100 && sizes.at(-1) === 2001, String(sizes));
    assert.ok(sizes.length <= most, `${sizes.length} pictures, not ${most}: ${sizes}`);
  });
});

test("a tree that may not be watched says so, and its use is read again after a while", async (context) => {
  const asked = [];
  const fetch = async (path) => {
    asked.push(path.split("/").at(-1));
    const workspace = { path: "root", parent: "", type: "", phase: "Ready", cluster: "", conditions: [] };
    if (path.endsWith("/TreeWorkspaces")) return answered(`${JSON.stringify({ header: { revision: 7 }, workspace })}\n`);
    if (path.endsWith("/ListUsage")) return answered({ workspaces: [], nextPageToken: "" });
    return answered({ message: "no right to watch", reason: "Forbidden" }, 403);
  };
  await served(fetch, async () => {
    context.mock.timers.enable({ apis: ["Date"], now: 1_000_000 });
    const tree = new Tree("root");
    await tree.load();
    tree.follow(["root"]);
    await new Promise((next) => setTimeout(next, 50));
    assert.deepEqual(tree.live, { state: "read", every: 30 });
    await tree.loadUsage("root");
    await tree.loadUsage("root");
    context.mock.timers.setTime(1_031_000);
    await tree.loadUsage("root");
    tree.close();
    assert.equal(asked.filter((method) => method === "ListUsage").length, 2);
  });
});

test("an edit takes over the conflicts that were agreed to, and no other", async () => {
  const kind = { group: "", version: "v1", resource: "configmaps", kind: "ConfigMap", namespaced: true, verbs: [] };
  const metadata = { name: "a", namespace: "b", uid: "u", resourceVersion: "7" };
  const base = { apiVersion: "v1", kind: "ConfigMap", metadata, data: { x: "1", y: "1" } };
  const draft = { workspace: "root", kind, base, text: JSON.stringify({ ...base, data: { x: "2", y: "2" } }) };
  const cause = (field) => ({ reason: "FieldManagerConflict", field, message: 'conflict with "painter"' });
  const [x, y] = [cause(".data.x"), cause(".data.y")];
  let conflicts = [x];
  const written = [];
  const fetch = async (path, { method }) => {
    if (method !== "PATCH") return answered(base);
    const query = new URLSearchParams(path.split("?")[1]);
    if (query.get("force") === "true") written.push(path);
    else if (conflicts.length > 0) return answered({ message: "conflicts", reason: "Conflict", details: { causes: conflicts } }, 409);
    return answered(base);
  };
  await served(fetch, async () => {
    const shown = await apply(draft, []).catch(({ causes }) => causes);
    assert.deepEqual(shown, [x]);
    // Another field has got another manager since.
    conflicts = [x, y];
    const more = await apply(draft, shown).catch(({ causes }) => causes);
    assert.deepEqual([more, written], [[x, y], []]);
    await apply(draft, more);
    assert.equal(written.length, 1);
  });
});

test("a copied command runs nothing of a name", () => {
  const cases = [
    ["root:org-01", "root:org-01"],
    ["https://a:1/clusters/root", "https://a:1/clusters/root"],
    ["$(touch x)", "'$(touch x)'"],
    ["it's; ls", String.raw`'it'\''s; ls'`],
    ["=ls", "'=ls'"],
    ["~", "'~'"],
    ["a\u0003b'\n", String.raw`$'a\u0003b\'\u000a'`],
    ["", "''"],
  ];
  for (const [name, wanted] of cases) assert.equal(quoted(name), wanted);
  assert.deepEqual(objectArgs("clusterroles", "--server=evil"), ["clusterroles/--server=evil"]);
  assert.deepEqual(objectArgs("clusterroles", "admin"), ["clusterroles", "admin"]);
});

test("an address names a workspace, and nothing beside it", () => {
  for (const path of ["root", "root:org-01:team", "system:admin", "2xj8k1p0q9z7w3ab"]) assert.ok(isPath(path), path);
  for (const path of ["", "..", "a/b", "a?b", "a#b", "a%2fb", "root:", "A", "a b"]) assert.ok(!isPath(path), path);
  assert.equal(parse({ pathname: "/console/exports/..%2Fx/..", search: "" }).workspace, "../x");
});

test("paths that a browser makes others of are not asked for", async () => {
  const asked = [];
  const { kube } = await load("src/api.ts");
  await served(
    async (path) => asked.push(path) && answered({}),
    async () => {
      await kube("/clusters/root/api/v1/namespaces/a%2Fb?x=../y");
      for (const path of ["/clusters/../version", "/clusters/%2e%2e/version", "/clusters/a/./b", "/clusters/a#b"]) {
        await assert.rejects(kube(path), /no such path/);
      }
    },
  );
  assert.equal(asked.length, 1);
});

test("what is disabled says why: no page has a control that is disabled otherwise", () => {
  const pages = readdirSync("src").filter((file) => file.endsWith(".tsx"));
  const disabling = pages.filter((file) => /\bdisabled=/.test(readFileSync(`src/${file}`, "utf8")));
  assert.deepEqual(disabling, ["ui.tsx"]);
});

test("metrics have labels, sums and quantiles", () => {
  const bucket = (bound, times) => `t_bucket{le="${bound}",verb="Get"} ${times}`;
  const samples = parseMetrics(
    ["# HELP t", 'n{verb="Get",code="a\\"b"} 2', 'n{verb="List"} 3', bucket("0.1", 50), bucket("1", 100), bucket("+Inf", 100)].join("\n"),
  );
  assert.equal(sum(samples, "n", {}), 5);
  assert.equal(sum(samples, "n", { verb: "Get" }), 2);
  assert.equal(quantile(samples, "t", 0.5, { verb: "Get" }), 0.1);
  assert.equal(quantile(samples, "t", 0.75), 0.55);
  assert.equal(quantile(samples, "u", 0.5), undefined);
});

test("rates are those between readings, and a counter that fell began anew", () => {
  const readings = new Readings();
  const add = (seconds, counts) => readings.add(seconds * 1000, new Map(Object.entries(counts)));
  add(10, { a: 100 });
  assert.equal(readings.rate("a"), undefined);
  add(20, { a: 150, b: 5 });
  add(25, { a: 10, b: 5 });
  assert.deepEqual(readings.rates("a"), [5, 2]);
  assert.deepEqual([readings.rate("a"), readings.rates("b")], [2, [undefined, 0]]);
  for (let time = 26; time < 126; time += 1) add(time, { a: time });
  assert.equal(readings.rates("a").length, RATES_MAX);
});

test("a counter that a reading misses has no rate there, and none of all that it ever counted behind", () => {
  const readings = new Readings();
  const add = (seconds, counts) => readings.add(seconds * 1000, new Map(Object.entries(counts)));
  add(10, { a: 10_000, "a get": 10_000 });
  add(20, {});
  assert.equal(readings.rate("a"), undefined);
  add(30, { a: 10_040, "a get": 10_010, "a list": 30 });
  assert.deepEqual(readings.rates("a"), [undefined, 2]);
  // The one of the whole is the sign that a verb that is absent was not used.
  assert.deepEqual([readings.rate("a get", "a"), readings.rate("a list", "a"), readings.rate("a list")], [0.5, 1.5, undefined]);
  assert.equal(readings.rate("b"), undefined);
});

test("one place reads trees of workspaces, follows and closes them", () => {
  const sources = readdirSync("src").filter((file) => readFileSync(`src/${file}`, "utf8").includes("new Tree("));
  assert.deepEqual(sources, ["use-tree.ts"]);
});

test("a migration shows how far the objects are", () => {
  const condition = (type, status, reason, message) => ({ type, status, reason, message });
  const running = condition("StorageMigrating", "True", "MigrationRunning", "40% of 300 objects are stored in v2");
  const definition = {
    metadata: { name: "widgets.example.io" },
    spec: { group: "example.io", names: { plural: "widgets" } },
    status: { conditions: [running] },
  };
  const owners = automatic([definition], "definitions");
  assert.deepEqual([owners[0].resource, owners[0].state, owners[0].done], ["widgets.example.io", "Running", 40]);
  // A built-in resource has no owner that could say it.
  const request = (conditions) => ({
    metadata: { name: "r" },
    spec: { resource: { resource: "configmaps" } },
    status: { conditions },
  });
  const shown = (...conditions) => {
    const { state, done, over, message } = requested(request(conditions));
    return [state, done, over, message];
  };
  const waits = "An earlier one of this resource runs first, or it begins shortly";
  assert.deepEqual(shown(), ["Waiting", undefined, false, waits]);
  const told = "70% of 900 objects are stored in v1";
  assert.deepEqual(shown(condition("Running", "True", "", told)), ["Running", 70, false, told]);
  assert.deepEqual(shown(condition("Running", "True", "", "it runs")), ["Running", undefined, false, "it runs"]);
  assert.deepEqual(shown(condition("Failed", "True", "", "2 of 3 objects")), ["Failed", undefined, true, "2 of 3 objects"]);
  assert.deepEqual(shown(condition("Succeeded", "True", "", "")), ["Succeeded", undefined, true, ""]);
  const bound = { metadata: { name: "b" }, status: { conditions: [condition("StorageMigrating", "False", "MigrationFailed", "no")] } };
  assert.deepEqual(automatic([{ ...bound, status: { ...bound.status, boundResources: [] } }], "bindings"), []);
  const under = { registrationGroup: "extensions", registration: "a.b", resource: "as.b", objects: 4, seen: 2, message: "", undo: false };
  assert.equal(begun({ ...under, step: "MIGRATION_STEP_RECREATE" }).done, 50);
  assert.equal(begun({ ...under, step: "MIGRATION_STEP_RECREATE", undo: true }).done, undefined);
  assert.equal(begun({ ...under, step: "MIGRATION_STEP_EXPORT", message: "differs" }).state, "Blocked");
});

test("what is left of a migration, and for how long, is told from what was seen of it", () => {
  const row = (done, over = false) => ({ key: "a", message: `${done}% of 300 objects are stored in v2`, done, over });
  const paces = new Paces();
  // Objects that were there before tell no pace.
  assert.deepEqual(paces.left(row(40), 1000), { objects: 180 });
  assert.deepEqual(paces.left(row(40), 2000), { objects: 180 });
  assert.deepEqual(paces.left(row(60), 7000), { objects: 120, pace: { rate: 10, seconds: 12 } });
  assert.equal(paces.left({ ...row(60), message: "it runs", done: undefined }, 8000), undefined);
  // The next one of the same name begins anew.
  assert.equal(paces.left(row(100, true), 9000), undefined);
  assert.deepEqual(paces.left(row(50), 10_000), { objects: 150 });
});

test("a schema is prepared that is newer than the one on offer, and was not on offer before", () => {
  const offered = (...schemas) => schemas.map((schema) => ({ group: "example.io", resource: "any", schema }));
  const known = (ages) => Object.entries(ages).map(([name, created]) => ({ name, created: `2026-01-0${created}T00:00:00Z` }));
  const schemas = known({ "a.x.io": 1, "b.x.io": 2, "c.x.io": 3, "d.x.io": 4, "z.y.io": 5, "old.y.io": 1 });
  assert.deepEqual(prepared(offered("b.x.io", "z.y.io"), [], schemas), ["d.x.io"]);
  // One that was taken back does not wait, and neither do those before the one on offer.
  const history = [{ resources: offered("d.x.io") }];
  assert.deepEqual(prepared(offered("b.x.io"), history, schemas), ["c.x.io"]);
  assert.deepEqual(prepared(offered("c.x.io"), history, schemas), []);
  // Of one that is not there nothing is known.
  assert.deepEqual(prepared(offered("gone.x.io"), [], schemas), []);
  // What was not prepared stays as it is.
  assert.deepEqual(nextOf({ resources: offered("b.x.io", "z.y.io") }, ["d.x.io"]), ["d.x.io", "z.y.io"]);
});
