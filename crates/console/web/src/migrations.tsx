// The migrations of a workspace: how far each is, and buttons to begin and to stop them.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { stringify } from "yaml";
import { call, kube } from "./api";
import { insula, kubectl } from "./command";
import { age, count, counted, utc } from "./format";
import type { Column } from "./grid";
import { kindsOf } from "./kinds";
import type { Kind } from "./kinds";
import { Listing } from "./listing";
import { useLive } from "./live";
import { Paces, STEPS, advance, begun, readRows, request, watched } from "./migrating";
import type { Left, Row, UnderWay } from "./migrating";
import { go, link } from "./router";
import type { Place } from "./router";
import { Badge, Button, Conditions, Copy, Problem, ViewYaml, fits, useDenied, useWork } from "./ui";

const REQUESTS = { group: "storagemigration.k8s.io", resource: "storageversionmigrations" };

function Progress({ row }: { row: Row }) {
  if (row.done === undefined) return null;
  const { name, done } = row;
  return (
    <svg class="progress" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={`${name}: ${done}% done`}>
      <rect class="track" width="100" height="4" />
      <rect class="busy" width={done} height="4" />
    </svg>
  );
}

const COLUMNS: Column<Row>[] = [
  { title: "Objects", width: "minmax(150px, 1fr)", order: ({ resource }) => resource, cell: ({ resource }) => resource },
  { title: "Migration", width: "180px", order: ({ kind }) => kind, cell: ({ kind }) => kind },
  { title: "State", width: "118px", order: ({ state }) => state, cell: ({ state, tone }) => <Badge tone={tone}>{state}</Badge> },
  { title: "Done", width: "90px", cell: (row) => <Progress row={row} /> },
  { title: "Message", width: "minmax(140px, 2fr)", cell: ({ message }) => <span title={message}>{message}</span> },
  { title: "Since", width: "56px", number: true, cell: ({ since }) => age(since) },
];

export function Migrations({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const [rows, setRows] = useState<Row[]>();
  const [error, setError] = useState<unknown>();
  const [query, setQuery] = useState("");
  const [left, setLeft] = useState<ReadonlyMap<string, Left | undefined>>(new Map());
  const paces = useMemo(() => new Paces(), [workspace]);
  const read = async (signal: AbortSignal) => {
    try {
      const found = await readRows(workspace, signal);
      const now = Date.now();
      setRows(found);
      setLeft(new Map(found.map((row) => [row.key, paces.left(row, now)])));
      setError(undefined);
    } catch (failed) {
      if (!signal.aborted) setError(failed);
    }
  };
  const live = useLive(watched(workspace), read);
  const again = () => void read(new AbortController().signal);
  const shown = (rows ?? []).filter(({ name, kind, resource, state, message }) => fits(query, `${name} ${kind} ${resource} ${state} ${message}`));
  const wanted = place.query.get("show") ?? "";
  const chosen = rows?.find(({ key }) => key === wanted);
  return (
    <Listing
      label="Migrations"
      head={{
        title: workspace,
        kubectl: kubectl(workspace, "get", "storageversionmigrations"),
        insula: insula("migrate", "tpr", "--all", "--dry-run", "--workspace", workspace),
        yaml: `/clusters/${workspace}/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations?limit=50`,
        live,
      }}
      what="migrations"
      query={query}
      change={setQuery}
      found={counted(shown.length, "migration")}
      error={error}
      above={<Begin workspace={workspace} again={again} />}
      ready={rows !== undefined}
      columns={COLUMNS}
      rows={shown}
      keyOf={({ key }) => key}
      chosen={wanted}
      choose={({ key }) => go(`${link("migrations", workspace)}?show=${encodeURIComponent(key)}`, "replace")}
      empty={query ? "No migration has these words." : `Nothing was migrated in ${workspace}, and there is no ThirdPartyResource.`}
    >
      {chosen ? (
        <Chosen key={chosen.key} workspace={workspace} row={chosen} left={left.get(chosen.key)} again={again} />
      ) : (
        <aside class="details empty" aria-label="Migration">
          <p>Choose a migration to see how far it is, and to begin, continue or stop it.</p>
        </aside>
      )}
    </Listing>
  );
}

/** Asks that the objects of a resource be written in their storage version. */
function Begin({ workspace, again }: { workspace: string; again: () => void }) {
  const [kinds, setKinds] = useState<Kind[]>([]);
  const [resource, setResource] = useState("");
  const denied = useDenied(workspace, { verb: "create", ...REQUESTS });
  const { busy, error, run } = useWork();
  useEffect(() => {
    const ended = new AbortController();
    kindsOf(workspace, ended.signal).then(setKinds, () => undefined);
    return () => ended.abort();
  }, [workspace]);
  const written = kinds.filter(({ verbs }) => verbs.includes("update"));
  const names = [...new Set(written.map((kind) => [kind.resource, kind.group].filter(Boolean).join(".")))].sort();
  const known = names.includes(resource);
  const why = denied ?? (known ? undefined : "Choose a resource.");
  const begin = () =>
    run(async () => {
      const [plural = "", ...group] = resource.split(".");
      await request(workspace, group.join("."), plural);
      again();
    });
  return (
    <div class="begin">
      <label>
        Write all objects of{" "}
        <input list="resources" value={resource} placeholder="configmaps" onInput={(event) => setResource(event.currentTarget.value)} />
      </label>
      <datalist id="resources">
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <span>in their storage version</span>
      <Button busy={busy} why={why} onClick={begin}>
        Migrate
      </Button>
      <span class="faint">{denied}</span>
      {error !== undefined && <Problem error={error} />}
    </div>
  );
}

interface ChosenProps {
  workspace: string;
  row: Row;
  again: () => void;
}

const TITLES: Record<Row["kind"], string> = {
  StorageVersionMigration: "Requested migration of stored objects",
  Automatic: "Migration by the server, for the storage version changed",
  ThirdPartyResource: "Registration of an old kind",
};

function LeftOver({ left: { objects, pace } }: { left: Left }) {
  const rate = pace && (pace.rate < 10 ? pace.rate.toFixed(1) : count(Math.round(pace.rate)));
  return (
    <p>
      {counted(objects, "object")} left
      {pace && `, ${rate} in a second: about ${counted(Math.ceil(pace.seconds), "second")}`}
    </p>
  );
}

function Chosen({ workspace, row, left, again }: ChosenProps & { left: Left | undefined }) {
  const { kind, name, resource, state, tone, since, conditions, path } = row;
  return (
    <aside class="details" aria-label={`Migration ${name}`}>
      <header>
        <h2>{name}</h2>
        <Badge tone={tone}>{state}</Badge>
      </header>
      <div class="actions">
        {kind === "ThirdPartyResource" ? (
          <Copy text={insula("migrate", "tpr", name, "--workspace", workspace)}>Copy insula</Copy>
        ) : (
          <Copy text={kubectl(workspace, "get", path.split("/").at(-2) ?? "", name, "-o", "yaml")}>Copy kubectl</Copy>
        )}
        <ViewYaml path={`/clusters/${workspace}/${path}`} />
      </div>
      <p>{TITLES[kind]}</p>
      <dl class="facts">
        <dt>Objects</dt>
        <dd>{resource}</dd>
        {since && (
          <>
            <dt>Since</dt>
            <dd>{utc(since)}</dd>
          </>
        )}
      </dl>
      {!row.underWay && (
        <>
          <Progress row={row} />
          {left && <LeftOver left={left} />}
          <p>{row.message}</p>
        </>
      )}
      {kind === "StorageVersionMigration" && <Stop workspace={workspace} row={row} again={again} />}
      {kind === "ThirdPartyResource" && row.underWay && <UnderWayOf workspace={workspace} from={row.underWay} again={again} />}
      {kind === "ThirdPartyResource" && !row.underWay && <Replace workspace={workspace} row={row} again={again} />}
      {conditions.length > 0 && <Conditions conditions={conditions} />}
    </aside>
  );
}

/** Stops a requested migration: what is written stays as it is. */
function Stop({ workspace, row, again }: ChosenProps) {
  const denied = useDenied(workspace, { verb: "delete", ...REQUESTS, name: row.name });
  const { busy, error, run } = useWork();
  const stop = () =>
    run(async () => {
      await kube(`/clusters/${workspace}/${row.path}`, { method: "DELETE" });
      again();
    });
  return (
    <section>
      <p class="act">
        <Button busy={busy} why={denied} onClick={stop}>
          {row.over ? "Remove" : "Stop"}
        </Button>{" "}
        <span class="faint">{denied ?? (row.over ? "It has ended." : "Objects that are written stay in the new version.")}</span>
      </p>
      {error !== undefined && <Problem error={error} />}
    </section>
  );
}

/** Where a migration of a registration is, and the way on and back. */
function UnderWayOf({ workspace, from, again }: { workspace: string; from: UnderWay; again: () => void }) {
  const [now, setNow] = useState(from);
  const [plural = "", ...group] = from.resource.split(".");
  const denied = useDenied(workspace, { verb: "update", group: group.join("."), resource: plural });
  const { busy, error, run } = useWork();
  const ended = useRef(new AbortController());
  useEffect(() => () => ended.current.abort(), []);
  useEffect(() => setNow(from), [JSON.stringify(from)]);
  const follow = (begin?: () => Promise<UnderWay>) =>
    run(async () => {
      ended.current = new AbortController();
      const { signal } = ended.current;
      try {
        await advance(workspace, begin ? await begin() : now, setNow, signal);
      } catch (failed) {
        if (!signal.aborted) throw failed;
      } finally {
        again();
      }
    });
  const back = async () => {
    await call("MigrationService/UndoMigration", { workspace, resource: now.resource, requestId: crypto.randomUUID() });
    return { ...now, undo: true, message: "" };
  };
  const at = STEPS.findIndex(([step]) => step === now.step);
  return (
    <section>
      <h3>Steps</h3>
      <p>
        {now.formerApiVersion} becomes {now.apiVersion}, a {now.replacementKind} {now.replacement}. Clients read the objects
        meanwhile, and do not write them.
      </p>
      <Progress row={begun(now)} />
      <ol class="steps">
        {STEPS.map(([step, text], index) => (
          <li key={step} {...(index === at && { "aria-current": "step" as const })}>
            <Badge tone={index === at ? "busy" : index < at !== now.undo ? "good" : "idle"}>{text}</Badge>
            {index === at && now.objects > 0 && ` ${now.seen} of ${counted(now.objects, "object")}`}
          </li>
        ))}
      </ol>
      {now.message && <p class="note">{now.message}</p>}
      {error !== undefined && <Problem error={error} />}
      <p class="act">
        {busy ? (
          <button type="button" onClick={() => ended.current.abort()}>
            Pause
          </button>
        ) : (
          <Button class="primary" why={denied} onClick={() => follow()}>
            {now.undo ? "Continue to go back" : "Continue"}
          </Button>
        )}{" "}
        {!now.undo && (
          <Button busy={busy} why={denied} onClick={() => follow(back)}>
            Turn back
          </Button>
        )}{" "}
        <span class="faint">{denied}</span>
      </p>
    </section>
  );
}

interface Plan {
  manifest: unknown;
  objects: number;
  problems: string[];
}

/** What may replace a registration. */
const REPLACEMENTS = [
  ["definition", "a CustomResourceDefinition that accepts any object"],
  ["registration", "a registration of the second generation"],
  ["binding", "an APIBinding of an export"],
] as const;

/** The effects of a migration of a registration, before it begins. */
function Replace({ workspace, row, again }: ChosenProps) {
  const [to, setTo] = useState<string>("definition");
  const [exported, setExported] = useState("");
  const [plan, setPlan] = useState<Plan>();
  const denied = useDenied(workspace, { verb: "delete", group: row.group, resource: "thirdpartyresources", name: row.name });
  const { busy, error, run } = useWork();
  const split = exported.lastIndexOf(":");
  const source = {
    workspace,
    group: row.group,
    name: row.name,
    [to]: to === "binding" ? { exportWorkspace: exported.slice(0, split), export: exported.slice(split + 1) } : {},
  };
  const change = (set: (value: string) => void, value: string) => {
    set(value);
    setPlan(undefined);
  };
  const show = () => run(async () => setPlan(await call<Plan>("MigrationService/PlanMigration", { source })));
  const begin = () =>
    run(async () => {
      await call("MigrationService/BeginMigration", { source, requestId: crypto.randomUUID() });
      again();
    });
  const why = denied ?? (plan && plan.problems.length > 0 ? "Objects do not fit." : undefined);
  // A registration of the second generation is one already.
  const choices = REPLACEMENTS.filter(([name]) => name !== "registration" || row.group === "extensions");
  return (
    <section>
      <h3>Replace it by</h3>
      <label class="field">
        Replacement
        <select value={to} onChange={(event) => change(setTo, event.currentTarget.value)}>
          {choices.map(([name, text]) => (
            <option key={name} value={name}>
              {text}
            </option>
          ))}
        </select>
      </label>
      {to === "binding" && (
        <label class="field">
          Export
          <input value={exported} placeholder="root:apis:crontabs" onInput={(event) => change(setExported, event.currentTarget.value)} />
        </label>
      )}
      <p class="act">
        <Button busy={busy} why={to === "binding" && split < 1 ? "Name an export by its workspace and its name." : undefined} onClick={show}>
          Show its effects
        </Button>
      </p>
      {error !== undefined && <Problem error={error} />}
      {plan && (
        <>
          <p>
            {counted(plan.objects, "object")} {plan.problems.length === 0 ? "fit." : "were looked at. These do not fit:"}
          </p>
          <ul class="findings">
            {plan.problems.map((problem) => (
              <li key={problem}>{problem}</li>
            ))}
          </ul>
          <details>
            <summary>The replacement as YAML</summary>
            <pre tabIndex={0}>{stringify(plan.manifest, { lineWidth: 0 })}</pre>
          </details>
          <p class="act">
            <Button class="primary" busy={busy} why={why} onClick={begin}>
              Begin
            </Button>{" "}
            <span class="faint">{why}</span>
          </p>
        </>
      )}
    </section>
  );
}
