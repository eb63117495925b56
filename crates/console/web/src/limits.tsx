// The limits of a workspace, beside its use, and the form that sets them.

import { useEffect, useState } from "preact/hooks";
import { call } from "./api";
import { insula } from "./command";
import { bytes, count } from "./format";
import type { Limits } from "./model";
import { Badge, Bar, Button, Copy, Problem, useDenied, useWork } from "./ui";

interface Known {
  effective: Limits;
  own: Limits;
  server: Limits;
  etag: string;
}

const ROWS: { key: keyof Limits; field: string; title: string; text: (value: number) => string; flag: string }[] = [
  { key: "objects", field: "objects", title: "Objects", text: count, flag: "--objects" },
  { key: "storageBytes", field: "storage_bytes", title: "Stored", text: bytes, flag: "--storage-bytes" },
  { key: "requestsInFlight", field: "requests_in_flight", title: "In flight", text: count, flag: "--requests-in-flight" },
  { key: "requestsPerSecond", field: "requests_per_second", title: "Requests/s", text: count, flag: "--requests-per-second" },
  { key: "watches", field: "watches", title: "Watches", text: count, flag: "--watches" },
  { key: "bytesInFlight", field: "bytes_in_flight", title: "Bytes in flight", text: bytes, flag: "--bytes-in-flight" },
];

interface LimitsProps {
  workspace: string;
  used: Partial<Limits>;
}

export function LimitsOf({ workspace, used }: LimitsProps) {
  const [known, setKnown] = useState<Known>();
  const [error, setError] = useState<unknown>();
  const read = () => call<Known>("QuotaService/GetLimits", { workspace }).then(setKnown, setError);
  useEffect(() => void read(), [workspace]);
  if (error !== undefined) return <Problem error={error} />;
  if (!known) return null;
  return (
    <section>
      <h3>Limits</h3>
      <dl class="facts wide">
        {ROWS.map(({ key, title, text }) => {
          const limit = known.effective[key];
          const value = used[key];
          return (
            <>
              <dt>{title}</dt>
              <dd>
                {value !== undefined && `${text(value)} `}
                {limit > 0 ? `of ${text(limit)} ` : "no limit "}
                {limit > 0 && value !== undefined && <Bar used={value} limit={limit} label={`${text(value)} of ${text(limit)}`} />}
                {known.own[key] !== 0 && <Badge tone="idle">its own</Badge>}
              </dd>
            </>
          );
        })}
      </dl>
      <Set workspace={workspace} known={known} done={() => void read()} />
    </section>
  );
}

interface SetProps {
  workspace: string;
  known: Known;
  done: () => void;
}

function Set({ workspace, known, done }: SetProps) {
  const [open, setOpen] = useState(false);
  const [values, setValues] = useState<Partial<Record<keyof Limits, string>>>({});
  const { busy, error, run } = useWork();
  const parent = workspace.split(":").slice(0, -1).join(":");
  const name = workspace.split(":").at(-1) ?? "";
  const right = useDenied(parent || "root", { verb: "limit", group: "tenancy.kcp.io", resource: "workspaces", name });
  const denied = parent === "" ? "The root workspace has the limits of the server." : right;
  const changed = ROWS.filter(({ key }) => values[key] !== undefined && Number(values[key]) !== known.own[key]);
  const wrong = changed.find(({ key }) => !Number.isSafeInteger(Number(values[key])) || Number(values[key]) < -1);
  const why =
    denied ??
    (wrong ? `${wrong.title} takes a whole number: -1 for no limit, 0 for the server's.` : undefined) ??
    (changed.length === 0 ? "Nothing is changed." : undefined);
  const set = () =>
    run(async () => {
      const limits = Object.fromEntries(changed.map(({ key }) => [key, Number(values[key])]));
      const updateMask = changed.map(({ key }) => key).join(",");
      await call("QuotaService/SetLimits", {
        workspace,
        limits,
        updateMask,
        // What was seen is what is changed.
        etag: known.etag,
        requestId: crypto.randomUUID(),
      });
      setValues({});
      setOpen(false);
      done();
    });
  const flags = changed.flatMap(({ key, flag }) => [flag, values[key] ?? ""]);
  if (!open) {
    return (
      <p class="act">
        <Button why={denied} onClick={() => setOpen(true)}>
          Set limits…
        </Button>
        <span class="faint">{denied}</span>
      </p>
    );
  }
  return (
    <form
      class="limits"
      onSubmit={(event) => {
        event.preventDefault();
        set();
      }}
    >
      {ROWS.map(({ key, title }) => (
        <label key={key}>
          {title}
          <input
            inputMode="numeric"
            value={values[key] ?? String(known.own[key])}
            onInput={(event) => setValues({ ...values, [key]: event.currentTarget.value })}
          />
        </label>
      ))}
      <p class="faint">0 takes the server's limit, -1 is no limit.</p>
      {error !== undefined && <Problem error={error} />}
      <p class="act">
        <Button type="submit" class="primary" busy={busy} why={why}>
          Set
        </Button>
        <button type="button" onClick={() => setOpen(false)}>
          Cancel
        </button>
        <Copy text={insula("ws", "limits", workspace, ...flags)}>Copy insula</Copy>
        <span class="faint">{why}</span>
      </p>
    </form>
  );
}
