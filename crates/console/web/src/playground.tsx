// The playground of conversions: an object in one version, the rules, the object in the other version
// and back, and what becomes of each field.

import { useEffect, useMemo, useState } from "preact/hooks";
import { parse, stringify } from "yaml";
import { call, kube, whyNot } from "./api";
import { insula, kubectl } from "./command";
import { OUTCOMES, fates } from "./fields";
import type { Coverage, Json } from "./fields";
import { count } from "./format";
import { go, link } from "./router";
import type { Place } from "./router";
import { Badge, Copy, Problem, ViewYaml, save } from "./ui";

/** Milliseconds without a key before the server is asked. */
const QUIET = 300;

interface Schema {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  spec: {
    group: string;
    names: { kind: string; plural: string };
    versions: { name: string; schema?: Json; served: boolean; storage: boolean }[];
  };
}

interface Outcome {
  result?: Json;
  back?: Json;
  coverage?: Coverage;
  verdict?: { valid: boolean; violations: { field: string; message: string; kind: keyof typeof FINDINGS }[]; warnings: string[] };
  cost?: Cost;
  error?: unknown;
}

/** Of the expressions that ran, in cost units. */
interface Cost {
  cost: number;
  costLimit: number;
}

const SCHEMAS = "apis/apis.kcp.io/v1alpha1/apiresourceschemas";
const CONVERSIONS = "apis/apis.kcp.io/v1alpha1/apiconversions";

/** Returns an object without what the server adds. */
function bare<T>(object: T): T {
  const { apiVersion, kind, metadata, spec } = object as unknown as {
    apiVersion: string;
    kind: string;
    metadata: { name: string };
    spec: unknown;
  };
  return { apiVersion, kind, metadata: { name: metadata.name }, spec } as unknown as T;
}

/** Makes an example of a schema: a value for each field. */
function example(schema: Json | undefined, name: string): Json {
  const of = (schema ?? {}) as { type?: string; properties?: Record<string, Json>; items?: Json; default?: Json; enum?: Json[] };
  if (of.default !== undefined) return of.default;
  if (of.enum?.[0] !== undefined) return of.enum[0];
  switch (of.type) {
    case "object":
      return Object.fromEntries(Object.entries(of.properties ?? {}).map(([key, value]) => [key, example(value, key)]));
    case "array":
      return [example(of.items, name)];
    case "integer":
    case "number":
      return 1;
    case "boolean":
      return true;
    default:
      return name;
  }
}

function sample(schema: Schema, version: string): string {
  const known = schema.spec.versions.find(({ name }) => name === version);
  const made = example(known?.schema, "") as Record<string, Json>;
  const { spec } = made;
  return stringify({
    apiVersion: `${schema.spec.group}/${version}`,
    kind: schema.spec.names.kind,
    metadata: { name: "example", namespace: "default" },
    ...(spec !== undefined && { spec }),
  });
}

export function Playground({ place, home }: { place: Place; home: string }) {
  const workspace = place.workspace || home;
  const [schemas, setSchemas] = useState<Schema[]>();
  const [error, setError] = useState<unknown>();
  const [denied, setDenied] = useState<string>();
  useEffect(() => {
    setSchemas(undefined);
    setError(undefined);
    kube<{ items: Schema[] }>(`/clusters/${workspace}/${SCHEMAS}?limit=500`).then(({ items }) => {
      const full = items.map((item) => bare({ ...item, apiVersion: "apis.kcp.io/v1alpha1", kind: "APIResourceSchema" }));
      setSchemas(full);
    }, setError);
    void whyNot(workspace, { verb: "create", group: "apis.kcp.io", resource: "apiresourceschemas" }).then(setDenied);
  }, [workspace]);
  // Without a name, one that has something to convert.
  const several = schemas?.find(({ spec }) => spec.versions.length > 1);
  const chosen = schemas?.find(({ metadata }) => metadata.name === place.name) ?? several ?? schemas?.[0];
  return (
    <div class="page">
      {error !== undefined && <Problem error={error} />}
      {schemas && !chosen && (
        <p class="empty">
          {workspace} has no APIResourceSchema: choose the workspace of an export on the{" "}
          <a href={link("exports")}>page of exports</a>.
        </p>
      )}
      {schemas && chosen && (
        <Bench
          key={workspace + chosen.metadata.name}
          workspace={workspace}
          schema={chosen}
          names={schemas.map(({ metadata }) => metadata.name)}
          denied={denied}
        />
      )}
    </div>
  );
}

interface BenchProps {
  workspace: string;
  schema: Schema;
  names: string[];
  denied: string | undefined;
}

function Bench({ workspace, schema, names, denied }: BenchProps) {
  const versions = schema.spec.versions.map(({ name }) => name);
  const stored = schema.spec.versions.find(({ storage }) => storage)?.name ?? versions[0] ?? "";
  const [from, setFrom] = useState(stored);
  const [to, setTo] = useState(versions.find((name) => name !== stored) ?? stored);
  const [object, setObject] = useState(() => sample(schema, stored));
  const [rules, setRules] = useState("");
  const [hasRules, setHasRules] = useState(false);
  const [outcome, setOutcome] = useState<Outcome>({});
  useEffect(() => {
    const path = `/clusters/${workspace}/${CONVERSIONS}/${schema.metadata.name}`;
    kube<Json>(path).then(
      (found) => {
        setRules(stringify(bare(found), { lineWidth: 0 }));
        setHasRules(true);
      },
      () => setRules("# no rules: fields of equal paths are the same field\n"),
    );
  }, [workspace, schema]);
  useEffect(() => {
    if (rules === "" || denied !== undefined) return;
    const ended = new AbortController();
    const timer = setTimeout(() => {
      void convert({ workspace, schema, rules, object, from, to }, ended.signal).then(
        (got) => ended.signal.aborted || setOutcome(got),
      );
    }, QUIET);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [workspace, schema, rules, object, from, to, denied]);
  const test = useMemo(() => testFile(schema, rules, object), [schema, rules, object]);
  const choose = (version: string) => {
    setFrom(version);
    setObject(sample(schema, version));
    if (version === to) setTo(versions.find((name) => name !== version) ?? version);
  };
  return (
    <>
      <div class="toolbar">
        <label>
          Schema{" "}
          <select
            value={schema.metadata.name}
            onChange={(event) => go(link("conversion", workspace, event.currentTarget.value))}
          >
            {names.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <Versions label="From" versions={versions} value={from} choose={choose} />
        {versions.length > 1 && <Versions label="to" versions={versions.filter((name) => name !== from)} value={to} choose={setTo} />}
        <span class="spread" />
        <button type="button" onClick={() => save(`${schema.spec.names.plural}.yaml`, test, "application/yaml")}>
          Save as a test
        </button>
        <Copy text={test}>Copy as YAML</Copy>
        <Copy text={kubectl(workspace, "get", hasRules ? "apiresourceschema,apiconversion" : "apiresourceschema", schema.metadata.name, "-o", "yaml")}>Copy kubectl</Copy>
        <ViewYaml path={`/clusters/${workspace}/${SCHEMAS}/${schema.metadata.name}`} />
        <Copy text={insula("conversion", "test", "-f", `${schema.spec.names.plural}.yaml`)}>Copy insula</Copy>
      </div>
      {denied !== undefined && (
        <p class="problem" role="alert">
          {denied} Rules are tried in a workspace in which you may publish an API.
        </p>
      )}
      <div class="bench">
        <Editor label={`Object in ${from}`} text={object} change={setObject} />
        <Editor label="Rules" text={rules} change={setRules} />
        <Result title={`Result in ${to}`} object={outcome.result} cost={outcome.cost} />
      </div>
      {outcome.error !== undefined && <Problem error={outcome.error} />}
      {outcome.verdict && <Verdict verdict={outcome.verdict} />}
      <Fields object={object} outcome={outcome} from={from} to={to} />
    </>
  );
}

interface VersionsProps {
  label: string;
  versions: string[];
  value: string;
  choose: (version: string) => void;
}

function Versions({ label, versions, value, choose }: VersionsProps) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => choose(event.currentTarget.value)}>
        {versions.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

interface Asked {
  workspace: string;
  schema: Schema;
  rules: string;
  object: string;
  from: string;
  to: string;
}

async function convert(asked: Asked, signal: AbortSignal): Promise<Outcome> {
  const { workspace, schema, from, to } = asked;
  try {
    const rules = parse(asked.rules) as Json;
    const object = parse(asked.object) as Json;
    const inline = { schema, workspace, ...(rules !== null && { rules }) };
    const verdict = await call<NonNullable<Outcome["verdict"]>>("ConversionService/Validate", inline, signal);
    if (!verdict.valid) return { verdict };
    const there = await call<{ object: Json } & Cost>(
      "ConversionService/Convert",
      { inline, object, toVersion: to },
      signal,
    );
    const back = await call<{ object: Json }>(
      "ConversionService/Convert",
      { inline, object: there.object, toVersion: from },
      signal,
    );
    const coverage = await call<Coverage>("ConversionService/GetCoverage", { inline }, signal);
    return { verdict, result: there.object, back: back.object, coverage, cost: there };
  } catch (error) {
    return signal.aborted ? {} : { error };
  }
}

function Editor({ label, text, change }: { label: string; text: string; change: (text: string) => void }) {
  return (
    <label class="card editor">
      <h2>{label}</h2>
      <textarea spellcheck={false} value={text} onInput={(event) => change(event.currentTarget.value)} />
    </label>
  );
}

function Result({ title, object, cost }: { title: string; object: Json | undefined; cost: Cost | undefined }) {
  return (
    <section class="card editor">
      <h2>
        {title}
        {cost && (
          <span class="faint">
            {" "}
            cost {count(cost.cost)} of {count(cost.costLimit)} units
          </span>
        )}
      </h2>
      <pre role="region" tabIndex={0} aria-label={title}>
        {object === undefined ? "" : stringify(object, { lineWidth: 0 })}
      </pre>
    </section>
  );
}

/** What the findings of a verdict are, by their kinds. */
const FINDINGS = {
  FINDING_KIND_COUNTEREXAMPLE: { label: "Counterexample", what: "An object that the rules cannot convert, or whose values they lose." },
  FINDING_KIND_MISFIT: {
    label: "Not valid in every version",
    what: "A value that one version accepts and another would refuse. The server accepts such rules, unless they ask it not to.",
  },
  FINDING_KIND_MISTAKE: { label: "Mistake", what: "Rules or a schema that make no sense as they are." },
};

function Finding({ kind }: { kind: keyof typeof FINDINGS }) {
  const { label, what } = FINDINGS[kind];
  return <strong title={what}>{label}</strong>;
}

function Verdict({ verdict }: { verdict: NonNullable<Outcome["verdict"]> }) {
  return (
    <section class="card" role="status">
      <header>
        <h2>Verdict</h2>
        <Badge tone={verdict.valid ? (verdict.warnings.length > 0 ? "warn" : "good") : "bad"}>
          {verdict.valid ? "The server would accept these rules" : "The server would refuse these rules"}
        </Badge>
      </header>
      <ul class="findings">
        {verdict.violations.map(({ field, message, kind }) => (
          <li key={field + message}>
            <Finding kind={kind} /> <code>{field}</code> {message}
          </li>
        ))}
        {verdict.warnings.map((warning) => (
          <li key={warning} class="soft">
            <Finding kind="FINDING_KIND_MISFIT" /> {warning}
          </li>
        ))}
      </ul>
      {verdict.valid && verdict.warnings.length === 0 && <p class="faint">No counterexample was found, and no value that one version alone accepts.</p>}
    </section>
  );
}

function Fields({ object, outcome, from, to }: { object: string; outcome: Outcome; from: string; to: string }) {
  const direction = outcome.coverage?.directions.find((some) => some.from === from && some.to === to);
  const shown = useMemo(() => {
    if (outcome.result === undefined) return [];
    try {
      return fates(parse(object) as Json, outcome.back, direction);
    } catch {
      return [];
    }
  }, [object, outcome, direction]);
  if (shown.length === 0) return null;
  return (
    <section class="card">
      <header>
        <h2>
          Fields from {from} to {to} and back
        </h2>
        <div class="legend">
          {Object.entries(OUTCOMES).map(([name, { tone, what }]) => (
            <span key={name} title={what}>
              <Badge tone={tone}>{name}</Badge>
            </span>
          ))}
        </div>
      </header>
      <table>
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Value</th>
            <th scope="col">Outcome</th>
            <th scope="col">In {to}</th>
            <th scope="col">Back in {from}</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ path, value, outcome: name, to: places, rule, back }) => (
            <tr key={path}>
              <td>
                <code>{path}</code>
              </td>
              <td>{value}</td>
              <td title={OUTCOMES[name]?.what}>
                <Badge tone={OUTCOMES[name]?.tone ?? "idle"}>{name}</Badge>
              </td>
              <td>
                {places.map((place) => (
                  <code key={place}>{place}</code>
                ))}{" "}
                <span class="faint">{rule}</span>
              </td>
              <td>
                {back === value ? "the same" : back ?? (name === "preserved" ? "from what the server keeps" : "absent")}
              </td>
            </tr>
          ))}
          {direction?.made.map(({ path, by, rule }) => (
            <tr key={`made ${path}`}>
              <td class="faint">none</td>
              <td />
              <td>
                <Badge tone="idle">made</Badge>
              </td>
              <td>
                <code>{path}</code>{" "}
                <span class="faint">
                  {by} {rule}
                </span>
              </td>
              <td />
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Returns the schema, the rules and the object in one file, which `insula conversion test` checks. */
function testFile(schema: Schema, rules: string, object: string): string {
  const file = `${schema.spec.names.plural}.yaml`;
  return [`# insula conversion test -f ${file}`, stringify(schema, { lineWidth: 0 }).trimEnd(), "---", rules.trimEnd(), "---", object.trimEnd(), ""].join("\n");
}
