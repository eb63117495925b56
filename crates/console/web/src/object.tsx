// One object: its YAML, which is applied as the viewer, and its state.

import { useEffect, useMemo, useState } from "preact/hooks";
import { stringify } from "yaml";
import { kube } from "./api";
import type { Cause } from "./api";
import { equal, fieldCount } from "./applied";
import { insula, kubectl } from "./command";
import { NOTHING, apply, check, conflictsOf, inOtherVersion, metadataOf, plain, versionOfConsole } from "./draft";
import type { Checked, Map } from "./draft";
import { utc } from "./format";
import { commandOf, named, pathOf, watchOf } from "./kinds";
import type { Kind } from "./kinds";
import { useLive } from "./live";
import type { Condition } from "./model";
import { go, link } from "./router";
import { Badge, Button, Conditions, Copy, Problem, Toolbar, masked, useDenied, useWork } from "./ui";
import type { Live } from "./ui";
import { YamlEditor } from "./yaml-editor";

/** Milliseconds without a key before the server is asked. */
const QUIET = 400;

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
  const followed = watchOf(pathOf(workspace, kind, namespace), name);
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
  const other = versionOfConsole(served, kind);
  const locked =
    denied ??
    (hidden ? "Show the values first." : undefined) ??
    (other ? inOtherVersion(other) : undefined);
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
  const save = (agreed: Cause[]) =>
    work.run(async () => {
      const result = await apply({ workspace, kind, base, text }, agreed).catch((failed: unknown) => {
        const conflicts = conflictsOf(failed);
        if (conflicts.length === 0) throw failed;
        setChecked({ ...NOTHING, conflicts });
      });
      if (!result) return;
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
        {...(!isNew && { live, kubectl: kubectl(workspace, ...commandOf(kind, namespace, name)) })}
        insula={insula("ws", "usage", workspace)}
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
        <Button why={dirty ? undefined : "You have changed nothing."} onClick={() => reset(served)}>
          Undo
        </Button>
        <Button class="primary" why={why} busy={work.busy} onClick={() => save([])}>
          Apply
        </Button>
      </Toolbar>
      {metadataOf(served).deletionTimestamp && <p class="note inset">This object is being deleted.</p>}
      {changed && (
        <p class="note inset">
          <Badge tone="warn">Changed</Badge> The object has changed on the server since you began. Your changes will be made on it as it
          is now.{" "}
          <button type="button" onClick={() => reset(served)}>
            Begin again
          </button>
        </p>
      )}
      {locked !== undefined && denied !== "Asking for your rights…" && <p class="note inset faint">{locked}</p>}
      {work.error !== undefined && <Problem error={work.error} />}
      <Verdict checked={checked} dirty={dirty} busy={work.busy} take={() => save(checked.conflicts)} />
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

interface VerdictProps {
  checked: Checked;
  dirty: boolean;
  busy: boolean;
  /** Applies it, with the fields of the conflicts that are shown. */
  take: () => void;
}

/** The server's word about a change that is not made yet. */
function Verdict({ checked, dirty, busy, take }: VerdictProps) {
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
          <Button busy={busy} onClick={take}>
            Take these fields over
          </Button>
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
