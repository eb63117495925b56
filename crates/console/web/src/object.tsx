// One object: its YAML, which is applied as the viewer, and its state.

import { useEffect, useMemo, useState } from "preact/hooks";
import { parse, stringify } from "yaml";
import { Refused, kube } from "./api";
import type { Cause } from "./api";
import { CONSOLE, configuration, equal, fieldCount, remaining } from "./applied";
import type { Manager } from "./applied";
import type { Mistake } from "./editor";
import type { Json } from "./fields";
import { utc } from "./format";
import { commandOf, named, pathOf } from "./kinds";
import type { Kind } from "./kinds";
import { useLive } from "./live";
import type { Condition } from "./model";
import { go, link } from "./router";
import { Badge, Conditions, Copy, Problem, Toolbar, kubectl, masked, useDenied, useWork } from "./ui";
import type { Live } from "./ui";
import { YamlEditor, locate, syntax } from "./yaml-editor";

/** Milliseconds without a key before the server is asked. */
const QUIET = 400;

type Map = { [key: string]: Json };

interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: { apiVersion: string; kind: string; name: string }[];
  managedFields?: Manager[];
}

function metadataOf(object: Map): Metadata {
  return (object["metadata"] ?? {}) as unknown as Metadata;
}

/** Returns an object without the records of managers, which the page shows apart. */
function plain(object: Map): Map {
  const { managedFields: _, ...metadata } = (object["metadata"] ?? {}) as Map;
  return { ...object, metadata };
}

function textOf(object: Map, hidden: boolean): string {
  return stringify(hidden ? masked(plain(object)) : plain(object), { lineWidth: 0 });
}

interface ObjectProps {
  workspace: string;
  kind: Kind;
  /** The kind in all served versions. */
  versions: Kind[];
  namespace: string;
  /** The name; empty for a new object. */
  name: string;
}

export function ObjectPage(props: ObjectProps) {
  const { workspace, kind, namespace, name } = props;
  const [served, setServed] = useState<Map | undefined>(() => (name === "" ? skeleton(kind, namespace) : undefined));
  const [error, setError] = useState<unknown>();
  const followed = `${pathOf(workspace, kind, namespace)}?watch=true&fieldSelector=metadata.name%3D${encodeURIComponent(name)}`;
  const live = useLive(name === "" ? [] : [followed], async (signal) => {
    try {
      setServed(await kube<Map>(pathOf(workspace, kind, namespace, name), { signal }));
      setError(undefined);
    } catch (failed) {
      if (!signal.aborted) setError(failed);
    }
  });
  const title = (
    <>
      <a href={link("objects", workspace)}>{workspace}</a> /{" "}
      <a href={link("objects", workspace, named(kind))}>{kind.kind}</a>
      {namespace && ` / ${namespace}`} / {name || "new"}
    </>
  );
  return (
    <>
      {error !== undefined && <Problem error={error} />}
      {served && <Edited {...props} served={served} setServed={setServed} title={title} live={live} />}
    </>
  );
}

function skeleton(kind: Kind, namespace: string): Map {
  const apiVersion = kind.group === "" ? kind.version : `${kind.group}/${kind.version}`;
  const metadata = { name: "", ...(kind.namespaced && { namespace: namespace || "default" }) };
  return { apiVersion, kind: kind.kind, metadata };
}

interface Checked {
  mistakes: Mistake[];
  /** Fields that other managers have. */
  conflicts: Cause[];
  /** Fields that stay, because others have them, too. */
  stay: string[];
  error?: unknown;
  /** The server would take it. */
  accepted: boolean;
}

const NOTHING: Checked = { mistakes: [], conflicts: [], stay: [], accepted: false };

interface Draft {
  workspace: string;
  kind: Kind;
  base: Map;
  text: string;
}

interface ApplyOptions {
  dryRun: boolean;
  force: boolean;
}

async function exists(path: string): Promise<boolean> {
  try {
    await kube(path);
    return true;
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return false;
    throw error;
  }
}

/** Applies what a viewer changed, and nothing else. */
async function apply({ workspace, kind, base, text }: Draft, { dryRun, force }: ApplyOptions): Promise<Map> {
  const after = parse(text) as Map;
  const body = configuration(plain(base), after, metadataOf(base).managedFields ?? []);
  const { name, namespace = "" } = metadataOf(after);
  if (!name) throw new Error("The object needs a name: .metadata.name");
  const known = metadataOf(base);
  if (known.uid !== undefined && (name !== known.name || namespace !== (known.namespace ?? ""))) {
    throw new Error("The name and the namespace of an object stay what they are.");
  }
  const path = pathOf(workspace, kind, namespace, name);
  // To apply what is there already would change it.
  if (known.uid === undefined && (await exists(path))) throw new Error(`${kind.kind} ${name} exists already.`);
  const query = new URLSearchParams({ fieldManager: CONSOLE, fieldValidation: "Strict" });
  if (dryRun) query.set("dryRun", "All");
  if (force) query.set("force", "true");
  return kube<Map>(`${path}?${query}`, {
    method: "PATCH",
    headers: { "Content-Type": "application/apply-patch+yaml" },
    body: JSON.stringify(body),
  });
}

/** Asks the server what it would say. */
async function check(draft: Draft): Promise<Checked> {
  const { text, base } = draft;
  const wrong = syntax(text);
  if (wrong.length > 0) return { ...NOTHING, mistakes: wrong };
  try {
    const result = await apply(draft, { dryRun: true, force: false });
    const stay = remaining(plain(base), parse(text) as Map, result).filter((path) => !/^\.(status|metadata)\b/.test(path));
    return { ...NOTHING, stay, accepted: true };
  } catch (error) {
    if (!(error instanceof Refused)) return { ...NOTHING, error };
    const conflicts = error.causes.filter(({ reason }) => reason === "FieldManagerConflict");
    if (conflicts.length > 0) return { ...NOTHING, conflicts };
    return { ...NOTHING, error, mistakes: mistakesOf(error, text) };
  }
}

/** Returns the places of what a refusal names. */
function mistakesOf({ causes, message }: Refused, text: string): Mistake[] {
  const mistake = (path: string, why: string) => locate(text, path, path ? `${path}: ${why}` : why);
  if (causes.length > 0) return causes.map((cause) => mistake(cause.field ?? "", cause.message));
  // A patch that fits no schema is refused by lines such as "  .spec.name: expected string, got 7". A
  // single one follows its subject: "failed to create typed patch object (…): .spec.name: expected …".
  const lines = message.matchAll(/(?:^|\): )\s*(\.[^:\n]+): (.*)$/gm);
  return [...lines].map(([, path = "", why = ""]) => mistake(path, why));
}

interface EditedProps extends ObjectProps {
  served: Map;
  setServed: (object: Map) => void;
  title: preact.ComponentChildren;
  live: Live;
}

function Edited({ workspace, kind, versions, namespace, name, served, setServed, title, live }: EditedProps) {
  const isSecret = kind.group === "" && kind.resource === "secrets";
  const [shown, setShown] = useState(name === "");
  const hidden = isSecret && !shown;
  // The object on which the text is based.
  const [base, setBase] = useState(served);
  const [start, setStart] = useState(() => ({ text: textOf(served, hidden) }));
  const [text, setText] = useState(start.text);
  const [checked, setChecked] = useState(NOTHING);
  const work = useWork();
  const isNew = name === "";
  const right = { verb: "patch", group: kind.group, resource: kind.resource, ...(namespace && { namespace }), ...(name && { name }) };
  const denied = useDenied(workspace, right);
  const before = useMemo(() => textOf(base, hidden), [base, hidden]);
  const dirty = text !== before;
  const begin = (object: Map, hide: boolean) => {
    const first = textOf(object, hide);
    setBase(object);
    setStart({ text: first });
    setText(first);
    setChecked(NOTHING);
  };
  const reset = (object: Map) => begin(object, hidden);
  useEffect(() => {
    if (!dirty) reset(served);
  }, [served]);
  const other = versionOfConsole(base, kind);
  const locked =
    denied ??
    (hidden ? "Show the values first." : undefined) ??
    (other ? `You applied this object in ${other}: change it in that version.` : undefined);
  useEffect(() => {
    setChecked(NOTHING);
    if (!dirty || locked !== undefined) return;
    let current = true;
    const timer = setTimeout(() => void check({ workspace, kind, base, text }).then((got) => current && setChecked(got)), QUIET);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [text, base, dirty, locked]);
  const save = (force: boolean) =>
    work.run(async () => {
      const result = await apply({ workspace, kind, base, text }, { dryRun: false, force });
      setServed(result);
      reset(result);
      const { name: made, namespace: inside = "" } = metadataOf(result);
      if (isNew) go(link("objects", workspace, named(kind), ...(kind.namespaced ? [inside, made] : [made])), "replace");
    });
  const why = locked ?? (dirty ? (checked.accepted ? undefined : "The server does not accept it yet.") : "Nothing is changed.");
  const changed = dirty && !equal(metadataOf(base).resourceVersion, metadataOf(served).resourceVersion);
  return (
    <>
      <Toolbar
        title={title}
        {...(!isNew && { live, kubectl: kubectl(workspace, commandOf(kind, namespace, name)) })}
        insula={`insula ws usage ${workspace}`}
      >
        {isSecret && !isNew && (
          <button
            type="button"
            aria-pressed={shown}
            onClick={() => {
              begin(base, shown);
              setShown(!shown);
            }}
          >
            {shown ? "Hide values" : "Show values"}
          </button>
        )}
        <Copy text={text}>Copy YAML</Copy>
        <button type="button" disabled={!dirty} onClick={() => reset(served)}>
          Undo
        </button>
        <button type="button" class="primary" disabled={why !== undefined || work.busy} title={why ?? ""} onClick={() => save(false)}>
          Apply
        </button>
      </Toolbar>
      {metadataOf(served).deletionTimestamp && <p class="note inset">This object is being deleted.</p>}
      {changed && (
        <p class="note inset">
          <Badge tone="warn">Changed</Badge> The object has changed on the server since you began.{" "}
          <button type="button" onClick={() => reset(served)}>
            Begin again
          </button>
        </p>
      )}
      {locked !== undefined && denied !== "Asking for your rights…" && <p class="note inset faint">{locked}</p>}
      {work.error !== undefined && <Problem error={work.error} />}
      <Verdict checked={checked} dirty={dirty} busy={work.busy} force={() => save(true)} />
      <div class="split">
        <YamlEditor
          label={`YAML of ${kind.kind} ${name || "new"}`}
          start={start}
          readOnly={locked !== undefined}
          mistakes={checked.mistakes}
          change={setText}
        />
        {!isNew && <State workspace={workspace} kind={kind} versions={versions} object={served} />}
      </div>
    </>
  );
}

/** Returns the version in which the console applied an object, if that is another one: to apply it in
 * this one would take away what the other has. */
function versionOfConsole(object: Map, { group, version }: Kind): string | undefined {
  const present = group === "" ? version : `${group}/${version}`;
  const managers = metadataOf(object).managedFields ?? [];
  const own = managers.find(({ manager, operation }) => manager === CONSOLE && operation === "Apply");
  return own && own.apiVersion !== present ? own.apiVersion : undefined;
}

interface VerdictProps {
  checked: Checked;
  dirty: boolean;
  busy: boolean;
  force: () => void;
}

/** The server's word about a change that is not made yet. */
function Verdict({ checked, dirty, busy, force }: VerdictProps) {
  const { conflicts, stay, mistakes, error, accepted } = checked;
  if (!dirty) return null;
  return (
    <div class="verdict" role="status">
      {accepted && <Badge tone="good">The server accepts it</Badge>}
      {stay.length > 0 && (
        <p>
          <Badge tone="warn">Stays</Badge> {stay.map((path) => <code key={path}>{path}</code>)} has another manager as well: to
          apply an object removes only what you applied.
        </p>
      )}
      {conflicts.length > 0 && (
        <>
          <p>
            <Badge tone="bad">Conflict</Badge> Others manage fields that you changed:
          </p>
          <ul class="findings">
            {conflicts.map(({ field, message }) => (
              <li key={`${field}${message}`}>
                <code>{field}</code> {message}
              </li>
            ))}
          </ul>
          <button type="button" disabled={busy} onClick={force}>
            Take these fields over
          </button>
        </>
      )}
      {mistakes.map(({ from, message }) => (
        <p key={`${from}${message}`}>
          <Badge tone="bad">Refused</Badge> {message}
        </p>
      ))}
      {error !== undefined && mistakes.length === 0 && <Problem error={error} />}
    </div>
  );
}

interface StateProps {
  workspace: string;
  kind: Kind;
  versions: Kind[];
  object: Map;
}

function State({ workspace, kind, versions, object }: StateProps) {
  const metadata = metadataOf(object);
  const { namespace, name } = metadata;
  const status = (object["status"] ?? {}) as { conditions?: Condition[] };
  const labels = Object.entries(metadata.labels ?? {});
  return (
    <aside class="details" aria-label="State of the object">
      <dl class="facts">
        <dt>Created</dt>
        <dd>{utc(metadata.creationTimestamp)}</dd>
        <dt>Revision</dt>
        <dd>{metadata.resourceVersion}</dd>
        {versions.length > 1 && (
          <>
            <dt>Versions</dt>
            <dd>
              {versions.map((one) => (
                <a
                  key={one.version}
                  href={link("objects", workspace, named(one), ...(kind.namespaced ? [namespace ?? "", name] : [name]))}
                  {...(one.version === kind.version && { "aria-current": "true" as const })}
                >
                  {one.version}{" "}
                </a>
              ))}
            </dd>
          </>
        )}
        {labels.length > 0 && (
          <>
            <dt>Labels</dt>
            <dd>
              {labels.map(([key, value]) => (
                <code key={key}>
                  {key}={value}
                </code>
              ))}
            </dd>
          </>
        )}
        {(metadata.ownerReferences ?? []).map((owner) => (
          <>
            <dt>Owner</dt>
            <dd>
              {owner.kind} {owner.name}
            </dd>
          </>
        ))}
        {metadata.finalizers && (
          <>
            <dt>Finalizers</dt>
            <dd>{metadata.finalizers.join(", ")}</dd>
          </>
        )}
      </dl>
      {Array.isArray(status.conditions) && <Conditions conditions={status.conditions} />}
      <section>
        <h3>Managers of its fields</h3>
        <table>
          <thead>
            <tr>
              <th scope="col">Manager</th>
              <th scope="col">By</th>
              <th scope="col">Version</th>
              <th scope="col" class="number">
                Fields
              </th>
            </tr>
          </thead>
          <tbody>
            {(metadata.managedFields ?? []).map(({ manager, operation, apiVersion, subresource, time, fieldsV1 }) => (
              <tr key={`${manager}${operation}${apiVersion}${subresource ?? ""}`} title={utc(time)}>
                <td>{manager}</td>
                <td>
                  {operation} {subresource && `of ${subresource}`}
                </td>
                <td>{apiVersion.split("/").at(-1)}</td>
                <td class="number">{fieldCount(fieldsV1)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </aside>
  );
}
