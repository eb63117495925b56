// Fills a server for the console's tests: organizations with teams, an export with two versions, and
// bindings of it. One team is stuck, one is frozen, and one user sees a single organization.

import https from "node:https";
import { readFileSync } from "node:fs";

/** A client of a server, with a bearer token. */
export class Client {
  constructor(url, ca, token) {
    this.base = new URL(url);
    this.token = token;
    this.agent = new https.Agent({ ca, keepAlive: true, maxSockets: 16 });
  }

  /** Sends a request with a JSON body, and returns the status and the answer. */
  send(method, path, body, headers = {}) {
    return new Promise((resolve, reject) => {
      const text = body === undefined ? "" : JSON.stringify(body);
      const request = https.request(
        {
          host: this.base.hostname,
          port: this.base.port,
          agent: this.agent,
          method,
          path,
          headers: {
            ...(this.token && { authorization: `Bearer ${this.token}` }),
            "content-type": "application/json",
            "content-length": Buffer.byteLength(text),
            ...headers,
          },
        },
        (response) => {
          const parts = [];
          response.on("data", (part) => parts.push(part));
          response.on("end", () =>
            resolve({
              status: response.statusCode,
              headers: response.headers,
              text: Buffer.concat(parts).toString(),
            }),
          );
        },
      );
      request.on("error", reject);
      request.end(text);
    });
  }

  /** Creates an object; one that exists already is left as it is. */
  async create(path, object) {
    const made = await this.send("POST", path, object);
    if (made.status !== 201 && made.status !== 409) {
      throw new Error(`POST ${path}: ${made.status} ${made.text}`);
    }
  }

  /** Calls a method of the admin API. */
  async call(method, message) {
    const answer = await this.send("POST", `/insula.admin.v1.${method}`, message);
    if (answer.status !== 200) throw new Error(`${method}: ${answer.status} ${answer.text}`);
    return JSON.parse(answer.text);
  }
}

const TENANCY = "apis/tenancy.kcp.io/v1alpha1/workspaces";

function workspace(name, type, labels) {
  return {
    apiVersion: "tenancy.kcp.io/v1alpha1",
    kind: "Workspace",
    metadata: { name, labels },
    spec: { type: { name: type, path: "root" } },
  };
}

/** Runs a function for each item, a few at a time. */
async function each(items, run, width = 8) {
  const queue = [...items];
  const work = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await run(item);
  };
  await Promise.all(Array.from({ length: width }, work));
}

async function until(what, check) {
  for (let tries = 0; tries < 600; tries++) {
    if (await check()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`not in a minute: ${what}`);
}

async function ready(client, parent, count) {
  await until(`${count} workspaces in ${parent}`, async () => {
    const list = await client.send("GET", `/clusters/${parent}/${TENANCY}?limit=1000`);
    const items = JSON.parse(list.text).items ?? [];
    return items.filter((item) => item.status?.phase === "Ready").length >= count;
  });
}

const RBAC = "apis/rbac.authorization.k8s.io/v1";

/** The right to enter a workspace. */
const ENTER = { nonResourceURLs: ["/"], verbs: ["access"] };

/** Gives a user the right to enter a workspace, and others. */
async function admit(client, path, user, right) {
  const name = `console-${user}`;
  const rules = [ENTER, right];
  const version = "rbac.authorization.k8s.io/v1";
  await client.create(`/clusters/${path}/${RBAC}/clusterroles`, {
    apiVersion: version,
    kind: "ClusterRole",
    metadata: { name },
    rules,
  });
  await client.create(`/clusters/${path}/${RBAC}/clusterrolebindings`, {
    apiVersion: version,
    kind: "ClusterRoleBinding",
    metadata: { name },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name },
    subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: user }],
  });
}

/** A type whose initializer nobody completes, so that its workspaces stay in Initializing. */
const WAITING = {
  apiVersion: "tenancy.kcp.io/v1alpha1",
  kind: "WorkspaceType",
  metadata: { name: "waiting" },
  spec: { initializer: true, extend: { with: [{ name: "universal", path: "root" }] } },
};

/** Makes organizations with teams. */
export async function tree(client, organizations, teams) {
  const names = Array.from({ length: organizations }, (_, n) => `org-${String(n + 1).padStart(2, "0")}`);
  await each(names, (name) => client.create(`/clusters/root/${TENANCY}`, workspace(name, "organization")));
  await ready(client, "root", organizations);
  const all = names.flatMap((org) =>
    Array.from({ length: teams }, (_, n) => ({ org, team: `team-${String(n + 1).padStart(3, "0")}` })),
  );
  await each(all, ({ org, team }) => client.create(`/clusters/root:${org}/${TENANCY}`, workspace(team, "universal")));
  for (const org of names) await ready(client, `root:${org}`, teams);
  const types = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspacetypes";
  await client.create(types, WAITING);
  await client.create(`/clusters/root:org-02/${TENANCY}`, workspace("stuck", "waiting"));
  const tree = { apiGroups: ["tenancy.kcp.io"], resources: ["workspaces"], verbs: ["get", "list", "watch"] };
  await admit(client, "root:org-01", "alice", tree);
  // One team is hers, one she may only look at, and one she may not even watch.
  await admit(client, "root:org-01:team-038", "alice", { apiGroups: ["*"], resources: ["*"], verbs: ["get", "list"] });
  await admit(client, "root:org-01:team-040", "alice", { apiGroups: ["*"], resources: ["*"], verbs: ["*"] });
  await admit(client, "root:org-01:team-039", "alice", { apiGroups: ["*"], resources: ["*"], verbs: ["get", "list", "watch"] });
}

/** Publishes an API that nobody may bind without having asked. */
export async function gears(client) {
  const base = "/clusters/root:provider/apis/apis.kcp.io";
  const schema = { type: "object", properties: { spec: { type: "object", properties: { teeth: { type: "integer" } } } } };
  await client.create(`${base}/v1alpha1/apiresourceschemas`, {
    apiVersion: "apis.kcp.io/v1alpha1",
    kind: "APIResourceSchema",
    metadata: { name: "rev0001.gears.example.io" },
    spec: {
      group: "example.io",
      scope: "Namespaced",
      names: { plural: "gears", singular: "gear", kind: "Gear", listKind: "GearList" },
      versions: [{ name: "v1", served: true, storage: true, schema }],
    },
  });
  await client.create(`${base}/v1alpha2/apiexports`, {
    apiVersion: "apis.kcp.io/v1alpha2",
    kind: "APIExport",
    metadata: {
      name: "gears",
      annotations: { "apis.insula.io/title": "Gears", "apis.insula.io/listed": "true", "apis.insula.io/requests": "allowed" },
    },
    spec: {
      resources: [{ group: "example.io", name: "gears", schema: "rev0001.gears.example.io", storage: { crd: {} } }],
      permissionClaims: [{ group: "", resource: "configmaps", verbs: ["get", "list"] }],
    },
  });
}

/** Publishes a schema whose second version bounds what the first one does not, with rules. */
export async function bolts(client) {
  const base = "/clusters/root:provider/apis/apis.kcp.io/v1alpha1";
  const name = "rev0003.bolts.example.io";
  const version = (name, field, type) => ({
    name,
    served: true,
    storage: name === "v2",
    schema: { type: "object", properties: { spec: { type: "object", properties: { [field]: { type: "string", ...type } } } } },
  });
  await client.create(`${base}/apiresourceschemas`, {
    apiVersion: "apis.kcp.io/v1alpha1",
    kind: "APIResourceSchema",
    metadata: { name },
    spec: {
      group: "example.io",
      scope: "Namespaced",
      names: { plural: "bolts", singular: "bolt", kind: "Bolt", listKind: "BoltList" },
      versions: [version("v1", "size", {}), version("v2", "diameter", { maxLength: 3 })],
    },
  });
  const rule = (from, to, field, destination) => ({ from, to, rules: [{ field, destination }] });
  await client.create(`${base}/apiconversions`, {
    apiVersion: "apis.kcp.io/v1alpha1",
    kind: "APIConversion",
    metadata: { name },
    spec: { conversions: [rule("v1", "v2", ".spec.size", ".spec.diameter"), rule("v2", "v1", ".spec.diameter", ".spec.size")] },
  });
}

/** A definition of a workspace that has the name of the widgets already. */
const CONFLICTING = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.io" },
  spec: {
    group: "example.io",
    scope: "Namespaced",
    names: { plural: "widgets", singular: "widget", kind: "Widget" },
    versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: { type: "object" } } }],
  },
};

/** Publishes the widgets of the samples, and binds them in some teams of the first organizations. One
 * more binding conflicts with a definition, and some workspaces are near their limits. */
export async function apis(client, samples, bindings) {
  await client.create(`/clusters/root/${TENANCY}`, workspace("provider", "organization"));
  await until("the provider", async () => {
    const answer = await client.send("GET", "/clusters/root:provider/apis/apis.kcp.io/v1alpha2/apiexports");
    return answer.status === 200;
  });
  const objects = JSON.parse(readFileSync(samples, "utf8"));
  for (const { path, object } of objects) await client.create(`/clusters/root:provider/${path}`, object);
  const binding = {
    apiVersion: "apis.kcp.io/v1alpha2",
    kind: "APIBinding",
    metadata: { name: "widgets" },
    spec: { reference: { export: { path: "root:provider", name: "widgets" } } },
  };
  const teams = Array.from({ length: bindings }, (_, n) => {
    const org = `org-${String((n % 20) + 1).padStart(2, "0")}`;
    return { path: `root:${org}:team-${String(Math.floor(n / 20) + 1).padStart(3, "0")}`, n };
  });
  await each(teams, async ({ path, n }) => {
    await client.create(`/clusters/${path}/apis/apis.kcp.io/v1alpha2/apibindings`, binding);
    const version = n % 3 === 0 ? "v1" : "v2";
    const at = `/clusters/${path}/apis/example.io/${version}/namespaces/default/widgets`;
    await until(`widgets in ${path}`, async () => (await client.send("GET", at)).status === 200);
    const spec = version === "v1" ? { firstName: "Ada", lastName: "Lovelace" } : { name: { first: "Ada" }, color: "blue" };
    await client.create(at, { apiVersion: `example.io/${version}`, kind: "Widget", metadata: { name: "ada" }, spec });
  });
  const last = "root:org-21:team-001";
  const definitions = `/clusters/${last}/apis/apiextensions.k8s.io/v1/customresourcedefinitions`;
  await client.create(definitions, CONFLICTING);
  // Until it is established a binding may take its names.
  await until("the definition", async () => {
    const answer = await client.send("GET", `${definitions}/${CONFLICTING.metadata.name}`);
    const conditions = JSON.parse(answer.text).status?.conditions ?? [];
    return conditions.some(({ type, status }) => type === "Established" && status === "True");
  });
  await client.create(`/clusters/${last}/apis/apis.kcp.io/v1alpha2/apibindings`, binding);
  await until("the conflict", async () => {
    const answer = await client.send("GET", `/clusters/${last}/apis/apis.kcp.io/v1alpha2/apibindings/widgets`);
    return answer.text.includes("NamingConflicts");
  });
  for (const [team, objects] of [["team-001", 12], ["team-002", 10], ["team-003", 9]]) {
    await client.call("QuotaService/SetLimits", { workspace: `root:org-01:${team}`, limits: { objects } });
  }
}
