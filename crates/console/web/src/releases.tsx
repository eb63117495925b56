// The release of an export: how far it is, who stays behind and why, and the effects of the next one
// before it is made.

import { useEffect, useState } from "preact/hooks";
import { parseAllDocuments, stringify } from "yaml";
import { Refused, call, kube, whyNot } from "./api";
import { Whom, byConsent } from "./effects";
import type { Effect } from "./effects";
import { ExportBar, useExport } from "./exports";
import { List } from "./exports-list";
import { count, utc } from "./format";
import type { Export, Rollout } from "./model";
import { nextOf, prepared, schemasOf, schemasPath } from "./prepared";
import { link } from "./router";
import type { Place } from "./router";
import { Badge, Button, Problem, useWork } from "./ui";
import type { Tone } from "./ui";

export function Releases({ place, home }: { place: Place; home: string }) {
  if (place.workspace === "" || place.name === "") return <List workspace={place.workspace || home} page="releases" />;
  return <Release workspace={place.workspace} name={place.name} />;
}

const TONES: Record<string, Tone> = {
  Complete: "good",
  Progressing: "busy",
  Paused: "idle",
  Held: "warn",
  TooManyHeld: "bad",
  SchemaInvalid: "bad",
};

/** What a release, or the way back to one, would do. */
interface Plan {
  steps?: { kind: string; name: string; action: string; details: string[] }[];
  removals?: { version: string; workspaces: number; deprecated: boolean; message: string }[];
  notes?: string[];
  effects?: Effect[];
}

function Release({ workspace, name }: { workspace: string; name: string }) {
  const [shown, setShown] = useState<Export>();
  const [denied, setDenied] = useState<string | undefined>("Asking for your rights…");
  const [waiting, setWaiting] = useState<string[]>();
  const read = async (signal: AbortSignal) => {
    const [{ export: got }, known] = await Promise.all([
      call<{ export: Export }>("ApiService/GetExport", { workspace, export: name }, signal),
      schemasOf(workspace, signal),
    ]);
    setShown(got);
    setWaiting(prepared(got.resources, got.rollout?.history ?? [], known));
  };
  const { live, error } = useExport(workspace, name, read, [`${schemasPath(workspace)}?watch=true`]);
  useEffect(() => {
    void whyNot(workspace, { verb: "update", group: "apis.kcp.io", resource: "apiexports", name }).then(setDenied);
  }, [workspace, name]);
  return (
    <div class="page">
      <ExportBar page="releases" workspace={workspace} name={name} command="show" live={live}>
        <a class="button" href={link("exports", workspace, name)}>
          Bindings
        </a>
        <a class="button" href={link("diff", workspace, name)}>
          Compare
        </a>
      </ExportBar>
      {error !== undefined && <Problem error={error} />}
      {shown?.rollout && (
        <>
          <Progress exported={shown} rollout={shown.rollout} denied={denied} />
          <Next exported={shown} waiting={waiting ?? []} denied={denied} />
          <History exported={shown} rollout={shown.rollout} denied={denied} />
        </>
      )}
    </div>
  );
}

interface Denied {
  denied: string | undefined;
}

function Progress({ exported, rollout, denied }: { exported: Export; rollout: Rollout } & Denied) {
  const [error, setError] = useState<unknown>();
  const turn = async () => {
    const method = rollout.paused ? "ApiService/ResumeRollout" : "ApiService/PauseRollout";
    try {
      await call(method, { workspace: exported.workspace, export: exported.name, requestId: crypto.randomUUID() });
      setError(undefined);
    } catch (failed) {
      setError(failed);
    }
  };
  const parts: [string, Tone, number][] = [
    ["serve it", "good", rollout.current],
    ["stay behind", "warn", rollout.held],
    ["wait for their step", "busy", rollout.waiting],
  ];
  if (rollout.unbound > 0) parts.push(["were never served", "idle", rollout.unbound]);
  const other = rollout.bindings - rollout.current - rollout.held - rollout.waiting - rollout.unbound;
  if (other > 0) parts.push(["are on the way", "idle", other]);
  let at = 0;
  return (
    <section class="card">
      <header>
        <h2>
          Release <code>{rollout.release}</code>
        </h2>
        <Badge tone={TONES[rollout.reason] ?? "busy"}>{rollout.reason}</Badge>
        <Button why={denied} onClick={() => void turn()}>
          {rollout.paused ? "Resume" : "Pause"}
        </Button>
      </header>
      {error !== undefined && <Problem error={error} />}
      {rollout.message && <p>{rollout.message}</p>}
      <svg class="progress" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="4" />
        {parts.map(([what, tone, some]) => {
          const width = rollout.bindings === 0 ? 0 : (some / rollout.bindings) * 100;
          const start = at;
          at += width;
          return <rect key={what} class={tone} x={start} width={width} height="4" />;
        })}
      </svg>
      <p class="legend">
        {count(rollout.bindings)} bindings:
        {parts.map(([what, tone, some]) => (
          <span key={what}>
            <Badge tone={tone}>{count(some)}</Badge> {what}
          </span>
        ))}
        {rollout.steps > 0 && (
          <span>
            step {rollout.step} of {rollout.steps}
          </span>
        )}
        <span>strategy {rollout.strategy}</span>
      </p>
      {rollout.heldBindings.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Held</th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {rollout.heldBindings.map(({ workspace, binding, message }) => (
              <tr key={workspace + binding}>
                <td>
                  <a href={link("workspaces", workspace)}>{workspace}</a> / {binding}
                </td>
                <td>{message}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

/** Reads schemas and their rules, as the beginning of the next release. */
export async function manifestsOf(workspace: string, schemas: string[]): Promise<string> {
  const documents: string[] = [];
  const base = `/clusters/${workspace}/apis/apis.kcp.io/v1alpha1`;
  for (const schema of schemas) {
    for (const [plural, kind] of [
      ["apiresourceschemas", "APIResourceSchema"],
      ["apiconversions", "APIConversion"],
    ]) {
      try {
        const { spec } = await kube<{ spec: unknown }>(`${base}/${plural}/${schema}`);
        documents.push(
          stringify({ apiVersion: "apis.kcp.io/v1alpha1", kind, metadata: { name: schema }, spec }, { lineWidth: 0 }),
        );
      } catch (error) {
        // A schema without rules is whole.
        if (!(error instanceof Refused && error.status === 404)) throw error;
      }
    }
  }
  return documents.join("---\n");
}

/** Returns the objects of a text of YAML. */
export function documentsOf(text: string): unknown[] {
  const objects = parseAllDocuments(text).map((document) => {
    if ("errors" in document && document.errors[0]) throw document.errors[0];
    return "toJS" in document ? (document.toJS() as unknown) : undefined;
  });
  return objects.filter(Boolean);
}

function Codes({ names }: { names: string[] }) {
  return (
    <>
      {names.map((name) => (
        <code key={name}>{name} </code>
      ))}
    </>
  );
}

function Next({ exported, waiting, denied }: { exported: Export; waiting: string[] } & Denied) {
  const { workspace, name } = exported;
  const [text, setText] = useState<string>();
  const [plan, setPlan] = useState<Plan>();
  const { busy, error, run } = useWork();
  const [done, setDone] = useState(false);
  const publish = async (manifests: string, accepted: Accepted, validateOnly: boolean) => {
    return call<Plan>("ApiService/PublishApi", {
      workspace,
      export: name,
      manifests: documentsOf(manifests),
      acceptedEffects: accepted.effects,
      confirmRemovals: accepted.removals,
      validateOnly,
      // What was seen in the plan is what is published.
      ...(validateOnly ? {} : { etag: exported.etag, requestId: crypto.randomUUID() }),
    });
  };
  const begin = async (schemas: string[]): Promise<string> => {
    const manifests = await manifestsOf(workspace, schemas);
    setText(manifests);
    setPlan(undefined);
    return manifests;
  };
  const show = async (manifests: string) => {
    setDone(false);
    setPlan(await publish(manifests, { effects: [], removals: [] }, true));
  };
  const look = () => run(async () => show(await begin(nextOf(exported, waiting))));
  // Whom it would hurt is what one comes here for: nobody has to ask. What is being written stays.
  useEffect(() => {
    if (waiting.length > 0 && text === undefined) look();
  }, [waiting.join(" ")]);
  return (
    <section class="card">
      <header>
        <h2>Next release</h2>
        {waiting.length > 0 && (
          <button type="button" onClick={look}>
            Begin with what is prepared
          </button>
        )}
        {(text === undefined || waiting.length > 0) && (
          <button type="button" onClick={() => run(async () => void (await begin(exported.resources.map(({ schema }) => schema))))}>
            Begin with what is on offer
          </button>
        )}
        {text !== undefined && (
          <Button class="primary" busy={busy} onClick={() => run(() => show(text))}>
            {busy ? "Asking…" : "Show its effects"}
          </Button>
        )}
      </header>
      {waiting.length > 0 && (
        <p>
          Prepared, and not on offer: <Codes names={waiting} />
        </p>
      )}
      {text === undefined && (
        <p class="faint">Change the schemas and rules on offer, and see what becomes of stored objects before anything happens.</p>
      )}
      {text !== undefined && (
        <details open={waiting.length === 0}>
          <summary>Schemas and rules</summary>
          <textarea
            class="manifests"
            aria-label="Schemas and rules of the next release"
            spellcheck={false}
            value={text}
            onInput={(event) => {
              setText(event.currentTarget.value);
              setPlan(undefined);
            }}
          />
        </details>
      )}
      {error !== undefined && <Problem error={error} />}
      {done && <Badge tone="good">Published</Badge>}
      {plan && (
        <Effects
          exported={exported}
          plan={plan}
          action="Publish"
          denied={denied}
          busy={busy}
          accept={(accepted) =>
            run(async () => {
              await publish(text ?? "", accepted, false);
              setPlan(undefined);
              setDone(true);
            })
          }
        />
      )}
    </section>
  );
}

interface Accepted {
  effects: string[];
  removals: string[];
}

interface EffectsProps extends Denied {
  exported: Export;
  plan: Plan;
  action: string;
  busy: boolean;
  accept: (accepted: Accepted) => void;
}

/** The effects of a plan. Those that need a word have to be accepted before the plan is run. */
function Effects({ exported, plan, action, denied, busy, accept }: EffectsProps) {
  const effects = plan.effects ?? [];
  const removals = plan.removals ?? [];
  const steps = plan.steps ?? [];
  const { askable, impossible } = byConsent(effects);
  const wanted = [...askable.map(({ id }) => id), ...removals.map(({ version }) => version)];
  const [taken, setTaken] = useState<ReadonlySet<string>>(new Set());
  const open = wanted.filter((id) => !taken.has(id)).length;
  const turn = (id: string) => {
    const next = new Set(taken);
    if (!next.delete(id)) next.add(id);
    setTaken(next);
  };
  const asked = open > 0 ? `Accept ${open === 1 ? "the effect" : `all ${open} effects`} first.` : undefined;
  const why = denied ?? (impossible.length > 0 ? "No word accepts what is not possible: change the release." : asked);
  return (
    <div class="plan">
      {effects.length + removals.length === 0 && (
        <p>
          <Badge tone="good">No effect hurts</Badge> No stored object loses a value, and no client loses a version.
        </p>
      )}
      <ul class="findings">
        {effects.map((effect) => (
          <li key={effect.id}>
            <label>
              {askable.includes(effect) && (
                <>
                  <input type="checkbox" checked={taken.has(effect.id)} onChange={() => turn(effect.id)} /> Accept{" "}
                </>
              )}
              {impossible.includes(effect) && "Not possible: "}
              <strong>{effect.detail || effect.id}</strong>
            </label>
            {effect.becomes && <p>{effect.becomes}</p>}
            <Whom effect={effect} />
            {effect.examples.length > 0 && <p>For example {effect.examples.join(", ")}</p>}
            {effect.detail && (
              <p>
                <code>{effect.id}</code>
              </p>
            )}
          </li>
        ))}
        {removals.map(({ version, message, deprecated }) => (
          <li key={version}>
            <label>
              <input type="checkbox" checked={taken.has(version)} onChange={() => turn(version)} /> Remove{" "}
              <strong>{version}</strong>
            </label>
            <p>
              {message}
              {!deprecated && " Its users got no warning before."}
            </p>
            <p>
              <a href={`${link("exports", exported.workspace, exported.name)}?version=${encodeURIComponent(version)}`}>Its users</a>
            </p>
          </li>
        ))}
      </ul>
      {(plan.notes ?? []).map((note) => (
        <p key={note}>{note}</p>
      ))}
      {steps.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Object</th>
              <th scope="col">Action</th>
              <th scope="col">Changes</th>
            </tr>
          </thead>
          <tbody>
            {steps.map(({ kind, name, action: does, details }) => (
              <tr key={kind + name}>
                <td>
                  {kind} {name}
                </td>
                <td>{does}</td>
                <td>
                  {details.map((detail) => (
                    <div key={detail}>{detail}</div>
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <p class="act">
        <Button
          class="primary"
          busy={busy}
          why={why}
          onClick={() =>
            accept({
              effects: askable.map(({ id }) => id),
              removals: removals.map(({ version }) => version),
            })
          }
        >
          {action}
        </Button>{" "}
        <span class="faint">{why}</span>
      </p>
    </div>
  );
}

function History({ exported, rollout, denied }: { exported: Export; rollout: Rollout } & Denied) {
  const [chosen, setChosen] = useState<string>();
  const [plan, setPlan] = useState<Plan>();
  const { busy, error, run } = useWork();
  const back = (release: string, accepted: Accepted, validateOnly: boolean) =>
    run(async () => {
      const answer = await call<Plan>("ApiService/RollbackRelease", {
        workspace: exported.workspace,
        export: exported.name,
        release,
        acceptedEffects: accepted.effects,
        confirmRemovals: accepted.removals,
        validateOnly,
        ...(validateOnly ? {} : { etag: exported.etag, requestId: crypto.randomUUID() }),
      });
      setPlan(validateOnly ? answer : undefined);
      setChosen(validateOnly ? release : undefined);
    });
  return (
    <section class="card">
      <header>
        <h2>Releases before</h2>
      </header>
      {rollout.history.length === 0 && <p class="faint">This is the first release.</p>}
      {rollout.history.length > 0 && (
        <table>
          <thead>
            <tr>
              <th scope="col">Release</th>
              <th scope="col">Replaced</th>
              <th scope="col">Schemas</th>
              <th scope="col">Way back</th>
            </tr>
          </thead>
          <tbody>
            {rollout.history.map(({ release, endTime, resources }) => (
              <tr key={release}>
                <td>
                  <code>{release}</code>
                </td>
                <td>{utc(endTime)}</td>
                <td>{resources.map(({ schema }) => schema).join(" ")}</td>
                <td>
                  <Button
                    busy={busy}
                    why={denied}
                    onClick={() => back(release, { effects: [], removals: [] }, true)}
                  >
                    Roll back…
                  </Button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {error !== undefined && <Problem error={error} />}
      {plan && chosen !== undefined && (
        <Effects
          exported={exported}
          plan={plan}
          action={`Roll back to ${chosen}`}
          denied={denied}
          busy={busy}
          accept={(accepted) => back(chosen, accepted, false)}
        />
      )}
    </section>
  );
}
