// The servers of the installation and their store.

import { useState } from "preact/hooks";
import { Amounts } from "./amounts";
import { call, text } from "./api";
import { insula, kubectl } from "./command";
import { age, bytes, count, duration, utc } from "./format";
import { Parts, usePolled } from "./live";
import { parseMetrics, quantile, value } from "./metrics";
import type { Sample } from "./metrics";
import { link } from "./router";
import { Badge, Bar, Copy, Problem, Toolbar } from "./ui";

/** Seconds between two readings. */
const EVERY = 10;

interface Health {
  ready: boolean;
  checks: { name: string; ok: boolean; message: string }[];
  alarm: string;
  header: { revision: number };
}

interface Members {
  servers: { name: string; url: string; version: string; startTime?: string; seenTime?: string; answers: boolean }[];
  etcdMembers: { id: string; name: string; clientUrls: string[]; learner: boolean }[];
}

interface Info {
  version: string;
  kubernetesVersion: string;
  store: string;
  startTime?: string;
  storage?: { objects: number; bytes: number; bytesPerWorkspace: number; workspaces: { name: string; path: string; objects: number; bytes: number }[] };
}

interface Shown {
  info: Info;
  health: Health | undefined;
  members: Members | undefined;
  metrics: Sample[] | undefined;
  /** The first refusal of a part. */
  refused: unknown;
}

/** Reads what the viewer may see. */
async function read(parts: Parts, signal: AbortSignal): Promise<Shown> {
  const info = await call<Info>("ClusterService/GetInfo", {}, signal);
  const [health, members, metrics] = await Promise.all([
    parts.take(call<Health>("MaintenanceService/GetHealth", {}, signal)),
    parts.take(call<Members>("MaintenanceService/ListMembers", {}, signal)),
    parts.take(text("/metrics", signal).then(parseMetrics)),
  ]);
  return { info, health, members, metrics, refused: parts.refused };
}

export function Servers() {
  const [shown, setShown] = useState<Shown>();
  const live = usePolled("servers", EVERY, async (signal) => {
    const parts = new Parts();
    const now = await read(parts, signal);
    setShown((last) => parts.over(last, now));
    if (parts.failed !== undefined) throw parts.failed;
  });
  return (
    <div class="page">
      <Toolbar
        title="Servers and store"
        kubectl={kubectl("root", "get", "--raw", "/readyz?verbose")}
        insula={insula("server", "members")}
        yaml={{ name: insula("server", "config"), read: config }}
        live={live}
      />
      {live.error !== undefined && <Problem error={live.error} />}
      {shown?.refused !== undefined && <Problem error={shown.refused} />}
      {shown && (
        <div class="board">
          {shown.health && <HealthCard health={shown.health} info={shown.info} />}
          {shown.metrics && <StoreCard metrics={shown.metrics} info={shown.info} />}
          {shown.members && <MembersCard members={shown.members} />}
          {shown.info.storage && <LargestCard storage={shown.info.storage} />}
        </div>
      )}
    </div>
  );
}

/** Reads the configuration of the server that answers. */
async function config(): Promise<unknown> {
  return (await call<{ config: unknown }>("MaintenanceService/GetConfig", {})).config;
}

function HealthCard({ health, info }: { health: Health; info: Info }) {
  return (
    <section class="card">
      <header>
        <h2>Health</h2>
        <Badge tone={health.ready ? "good" : "bad"}>{health.ready ? "Ready" : "Not ready"}</Badge>
      </header>
      {health.alarm && (
        <p class="note">
          <Badge tone="bad">Alarm</Badge> {health.alarm}
        </p>
      )}
      <ul class="conditions">
        {health.checks.map(({ name, ok, message }) => (
          <li key={name}>
            <Badge tone={ok ? "good" : "bad"}>{name}</Badge>
            <span>{message}</span>
          </li>
        ))}
      </ul>
      <dl class="facts wide">
        <dt>Version</dt>
        <dd>
          {info.version}, Kubernetes {info.kubernetesVersion}
        </dd>
        <dt>Started</dt>
        <dd>{utc(info.startTime)}</dd>
      </dl>
    </section>
  );
}

function StoreCard({ metrics, info }: { metrics: Sample[]; info: Info }) {
  const metric = (name: string) => value(metrics, `insula_${name}`);
  const revision = metric("store_revision") ?? 0;
  const oldest = metric("store_compacted_revision") ?? 0;
  const file = metric("store_file_bytes");
  const rows: [string, string][] = [
    ["Revision", count(revision)],
    ["Readable from", `${count(oldest)}: ${count(revision - oldest)} revisions`],
    ["History", `${count(metric("store_history_changes") ?? 0)} changes, ${bytes(metric("store_history_bytes") ?? 0)}`],
    ["Objects", `${count(info.storage?.objects ?? 0)}, ${bytes(info.storage?.bytes ?? 0)}`],
    ["Flush p99", duration(quantile(metrics, "insula_store_fsync_duration_seconds", 0.99))],
    ["Commit p99", duration(quantile(metrics, "insula_commit_duration_seconds", 0.99, { outcome: "Committed" }))],
    ["Compactions", count(metric("store_compactions_total") ?? 0)],
  ];
  if (file !== undefined) rows.splice(4, 0, ["File", bytes(file)]);
  return (
    <section class="card">
      <header>
        <h2>Store</h2>
        <span class="faint">{info.store}</span>
        {metric("store_disk_full") === 1 && <Badge tone="bad">Disk full</Badge>}
      </header>
      <dl class="facts wide">
        {rows.map(([title, shown]) => (
          <>
            <dt>{title}</dt>
            <dd>{shown}</dd>
          </>
        ))}
      </dl>
    </section>
  );
}

function MembersCard({ members }: { members: Members }) {
  return (
    <section class="card">
      <header>
        <h2>Members</h2>
        <Copy text={insula("server", "members", "-o", "wide")}>Copy insula</Copy>
      </header>
      <table>
        <thead>
          <tr>
            <th scope="col">Server</th>
            <th scope="col">Version</th>
            <th scope="col" class="number">
              Up
            </th>
            <th scope="col">Seen</th>
          </tr>
        </thead>
        <tbody>
          {members.servers.map(({ name, url, version, startTime, seenTime, answers }) => (
            <tr key={name}>
              <td>
                {url} {answers && <Badge tone="good">answers</Badge>}
              </td>
              <td>{version}</td>
              <td class="number">{age(startTime)}</td>
              <td>{age(seenTime)} ago</td>
            </tr>
          ))}
          {members.etcdMembers.map(({ id, name, clientUrls, learner }) => (
            <tr key={id}>
              <td>
                etcd {name} {clientUrls.join(" ")}
              </td>
              <td>{learner ? "learner" : "voter"}</td>
              <td />
              <td />
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function LargestCard({ storage }: { storage: NonNullable<Info["storage"]> }) {
  const limit = storage.bytesPerWorkspace;
  return (
    <section class="card">
      <header>
        <h2>Largest workspaces</h2>
      </header>
      <Amounts
        title="Workspace"
        rows={storage.workspaces}
        keyOf={({ name }) => name}
        name={({ name, path }) => (path ? <a href={link("usage", path)}>{path}</a> : <code>{name}</code>)}
        last={["Of its limit", ({ bytes: stored }) => <Bar used={stored} limit={limit} label={`of ${bytes(limit)}`} />]}
      />
    </section>
  );
}
