// The APIs that one may bind in a workspace, or ask for; and the requests that others made for the APIs
// of this workspace.

import { useState } from "preact/hooks";
import { call, pages } from "./api";
import { insula, kubectl } from "./command";
import { counted, utc } from "./format";
import type { Column } from "./grid";
import { Listing } from "./listing";
import { useLive } from "./live";
import { Requests, STATES } from "./requests";
import type { BindRequest } from "./requests";
import { go, link } from "./router";
import type { Place } from "./router";
import { Badge, Button, Copy, Problem, ViewYaml, fits, useDenied, useWork } from "./ui";

interface Claim {
  group: string;
  resource: string;
  verbs: string[];
}

interface Api {
  export: string;
  workspace: string;
  title: string;
  description: string;
  docs: string;
  owner: string;
  resources: { group: string; resource: string; kind: string; versions: { name: string; deprecated: boolean }[] }[];
  claims: Claim[];
  bindable: boolean;
  binding: string;
  requestable: boolean;
  request?: BindRequest;
}

async function readApis(workspace: string, signal: AbortSignal): Promise<Api[]> {
  const items = ({ apis }: { apis: Api[] }) => apis;
  const found = await pages("ApiService/ListApis", { workspace, listed: true }, items, signal);
  // Exports without a resource offer nothing.
  return found.filter(({ resources }) => resources.length > 0);
}

async function readRequests(workspace: string, signal: AbortSignal): Promise<BindRequest[]> {
  const items = ({ requests }: { requests: BindRequest[] }) => requests;
  return pages("ApiService/ListApiRequests", { workspace }, items, signal);
}

function titleOf(api: Api): string {
  return api.title || api.export;
}

function keyOf({ workspace, export: name }: Api): string {
  return `${workspace}:${name}`;
}

function StateOf({ api }: { api: Api }) {
  const requested = api.request && STATES[api.request.state];
  if (api.binding) return <Badge tone="good">Bound</Badge>;
  if (requested && !api.bindable) return <Badge tone={requested.tone}>{requested.text}</Badge>;
  if (api.bindable) return <Badge tone="busy">Bindable</Badge>;
  return <Badge tone="idle">{api.requestable ? "On request" : "Closed"}</Badge>;
}

const COLUMNS: Column<Api>[] = [
  { title: "API", width: "minmax(130px, 1fr)", cell: titleOf },
  { title: "Workspace", width: "minmax(120px, 1fr)", cell: ({ workspace }) => workspace },
  {
    title: "Resources",
    width: "minmax(160px, 2fr)",
    cell: ({ resources }) => resources.map(({ resource, group }) => `${resource}.${group}`).join(" "),
  },
  { title: "Versions", width: "90px", cell: ({ resources }) => versionsOf(resources).join(" ") },
  { title: "State", width: "118px", cell: (api) => <StateOf api={api} /> },
];

function versionsOf(resources: Api["resources"]): string[] {
  return [...new Set(resources.flatMap(({ versions }) => versions.map(({ name }) => name)))].sort();
}

export function Apis({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const [apis, setApis] = useState<Api[]>();
  const [requests, setRequests] = useState<BindRequest[]>([]);
  const [error, setError] = useState<unknown>();
  const [query, setQuery] = useState("");
  const base = `/clusters/${workspace}/apis`;
  const read = async (signal: AbortSignal) => {
    try {
      // Who may not see requests decides on none.
      const asked = readRequests(workspace, signal).catch(() => []);
      setApis(await readApis(workspace, signal));
      setRequests(await asked);
      setError(undefined);
    } catch (failed) {
      if (!signal.aborted) setError(failed);
    }
  };
  const live = useLive(
    [`${base}/apis.kcp.io/v1alpha2/apibindings?watch=true`, `${base}/apis.insula.io/v1alpha1/apibindrequests?watch=true`],
    read,
  );
  const again = () => void read(new AbortController().signal);
  const rows = (apis ?? [])
    .filter((api) => fits(query, `${keyOf(api)} ${api.title} ${api.description} ${api.owner} ${JSON.stringify(api.resources)}`))
    .sort((a, b) => (titleOf(a) + keyOf(a) < titleOf(b) + keyOf(b) ? -1 : 1));
  const wanted = place.rest[0] === undefined ? "" : `${place.name}:${place.rest[0]}`;
  const chosen = apis?.find((api) => keyOf(api) === wanted);
  return (
    <Listing
      label="APIs"
      head={{
        title: workspace,
        kubectl: kubectl(workspace, "get", "apibindings"),
        insula: insula("apis", "--all", "-W", workspace),
        yaml: `${base}/apis.kcp.io/v1alpha2/apibindings?limit=50`,
        live,
      }}
      what="APIs"
      query={query}
      change={setQuery}
      found={counted(rows.length, "API")}
      error={error}
      above={requests.length > 0 && <Requests workspace={workspace} requests={requests} again={again} />}
      ready={apis !== undefined}
      columns={COLUMNS}
      rows={rows}
      keyOf={keyOf}
      chosen={wanted}
      choose={(api) => go(link("apis", workspace, api.workspace, api.export), "replace")}
      empty={query ? "No API has these words." : `There is no API that you may bind in ${workspace}, or ask for.`}
    >
      {chosen ? (
        <Offer key={wanted} workspace={workspace} api={chosen} again={again} />
      ) : (
        <aside class="details empty" aria-label="API">
          <p>
            {wanted && apis
              ? `You see no API ${wanted} from ${workspace}.`
              : "Choose an API to see what it offers, what it asks for, and to bind it."}
          </p>
        </aside>
      )}
    </Listing>
  );
}

interface OfferProps {
  workspace: string;
  api: Api;
  again: () => void;
}

function Offer({ workspace, api, again }: OfferProps) {
  const path = `/clusters/${workspace}/apis/apis.kcp.io/v1alpha2/apibindings/${api.binding}`;
  const bound = link("objects", workspace, "apibindings.v1alpha2.apis.kcp.io", api.binding);
  return (
    <aside class="details" aria-label={`API ${titleOf(api)}`}>
      <header>
        <h2>{titleOf(api)}</h2>
        <StateOf api={api} />
      </header>
      <div class="actions">
        <Copy text={insula("apis", "show", keyOf(api), "-W", workspace)}>Copy insula</Copy>
        {api.binding && (
          <>
            <Copy text={kubectl(workspace, "get", "apibinding", api.binding, "-o", "yaml")}>Copy kubectl</Copy>
            <ViewYaml path={path} />
            <a class="button" href={bound}>
              Binding
            </a>
          </>
        )}
      </div>
      {api.description && <p>{api.description}</p>}
      <dl class="facts">
        <dt>Export</dt>
        <dd>
          {api.workspace} / {api.export}
        </dd>
        {api.owner && (
          <>
            <dt>Owner</dt>
            <dd>{api.owner}</dd>
          </>
        )}
        {/^https?:\/\//.test(api.docs) && (
          <>
            <dt>Documents</dt>
            <dd>
              <a href={api.docs} target="_blank" rel="noopener noreferrer">
                {api.docs}
              </a>
            </dd>
          </>
        )}
      </dl>
      <section>
        <h3>Resources</h3>
        <ul class="conditions">
          {api.resources.map(({ group, resource, kind, versions }) => (
            <li key={resource + group}>
              <strong>{kind || resource}</strong>
              <span>
                {resource}.{group}{" "}
                {versions.map(({ name, deprecated }) => (
                  <code key={name}>
                    {name}
                    {deprecated && " (deprecated)"}
                  </code>
                ))}
              </span>
            </li>
          ))}
        </ul>
      </section>
      {!api.binding && api.bindable && <Bind workspace={workspace} api={api} again={again} />}
      {!api.binding && !api.bindable && <Ask workspace={workspace} api={api} again={again} />}
    </aside>
  );
}

function claimOf({ group, resource }: Claim): string {
  return [resource, group].filter(Boolean).join(".");
}

function Bind({ workspace, api, again }: OfferProps) {
  const [accepted, setAccepted] = useState<ReadonlySet<string>>(new Set());
  const denied = useDenied(workspace, { verb: "create", group: "apis.kcp.io", resource: "apibindings" });
  const { busy, error, run } = useWork();
  const turn = (claim: string) => {
    const next = new Set(accepted);
    if (!next.delete(claim)) next.add(claim);
    setAccepted(next);
  };
  const bind = () =>
    run(async () => {
      await call("ApiService/BindApi", {
        workspace,
        exportWorkspace: api.workspace,
        export: api.export,
        acceptClaims: [...accepted],
        requestId: crypto.randomUUID(),
      });
      again();
    });
  return (
    <section>
      <h3>Bind</h3>
      {api.claims.length > 0 && (
        <>
          <p>It asks for these rights in your workspace. It gets those that you accept:</p>
          <ul class="claims">
            {api.claims.map((claim) => (
              <li key={claimOf(claim)}>
                <label>
                  <input type="checkbox" checked={accepted.has(claimOf(claim))} onChange={() => turn(claimOf(claim))} />{" "}
                  <strong>{claimOf(claim)}</strong> {claim.verbs.join(", ")}
                </label>
              </li>
            ))}
          </ul>
        </>
      )}
      {error !== undefined && <Problem error={error} />}
      <p class="act">
        <Button class="primary" busy={busy} why={denied} onClick={bind}>
          Bind in {workspace}
        </Button>{" "}
        <span class="faint">{denied}</span>
      </p>
    </section>
  );
}

/** The request for the right to bind an API. */
function Ask({ workspace, api, again }: OfferProps) {
  const [reason, setReason] = useState("");
  const right = useDenied(workspace, { verb: "create", group: "apis.kcp.io", resource: "apibindings" });
  const { busy, error, run } = useWork();
  const { request } = api;
  const state = request && STATES[request.state];
  const denied = right ?? (api.requestable ? undefined : "Its owner takes no requests: only who has the right binds it.");
  const ask = () =>
    run(async () => {
      const message = { workspace, exportWorkspace: api.workspace, export: api.export, reason };
      await call("ApiService/RequestApi", { ...message, requestId: crypto.randomUUID() });
      again();
    });
  if (request && state) {
    return (
      <section>
        <h3>Your request</h3>
        <p>
          <Badge tone={state.tone}>{state.text}</Badge> {request.message}
        </p>
        <p class="faint">
          Made {utc(request.createTime)}
          {request.expireTime && `, kept until ${utc(request.expireTime)}`}
        </p>
      </section>
    );
  }
  return (
    <section>
      <h3>Ask for the right to bind it</h3>
      <label class="field">
        Reason
        <input value={reason} maxLength={1024} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      {error !== undefined && <Problem error={error} />}
      <p class="act">
        <Button class="primary" busy={busy} why={denied} onClick={ask}>
          Request
        </Button>{" "}
        <span class="faint">{denied}</span>
      </p>
    </section>
  );
}
