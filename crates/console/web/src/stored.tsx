// The versions in which the objects of an export are stored, and how far their migration is. Counting
// reads all objects, so the viewer asks for it.

import { useState } from "preact/hooks";
import { call } from "./api";
import { count, counted } from "./format";
import { Badge, Button, Problem } from "./ui";

interface StoredVersion {
  version: string;
  objects: number;
  current: boolean;
}

interface Counted {
  versions: StoredVersion[];
  /** Workspaces with objects that are to be migrated. */
  behind: { workspace: string; objects: number }[];
}

/** Bindings whose objects one request counts. */
const PAGE = 50;

async function read(workspace: string, name: string, progress: (bindings: number) => void): Promise<Counted> {
  const versions = new Map<string, StoredVersion>();
  const behind: Counted["behind"] = [];
  let pageToken = "";
  let bindings = 0;
  do {
    const request = { workspace, export: name, countObjects: true, pageSize: PAGE, pageToken };
    const page = await call<{
      consumers: { workspace: string; storedVersions: StoredVersion[] }[];
      nextPageToken: string;
    }>("ApiService/ListConsumers", request);
    for (const consumer of page.consumers) {
      let late = 0;
      for (const { version, objects, current } of consumer.storedVersions) {
        const known = versions.get(version) ?? { version, objects: 0, current: false };
        versions.set(version, { version, objects: known.objects + objects, current: known.current || current });
        if (!current) late += objects;
      }
      if (late > 0) behind.push({ workspace: consumer.workspace, objects: late });
    }
    bindings += page.consumers.length;
    progress(bindings);
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return { versions: [...versions.values()], behind };
}

export function Stored({ workspace, name }: { workspace: string; name: string }) {
  const [shown, setShown] = useState<Counted>();
  const [error, setError] = useState<unknown>();
  const [bindings, setBindings] = useState<number>();
  const ask = () => {
    setBindings(0);
    setError(undefined);
    void read(workspace, name, setBindings)
      .then(setShown, setError)
      .finally(() => setBindings(undefined));
  };
  const all = shown?.versions.reduce((sum, { objects }) => sum + objects, 0) ?? 0;
  return (
    <section class="card" aria-label="Stored versions">
      <header>
        <h2>Stored versions</h2>
        <Button why={bindings === undefined ? undefined : "Objects are being counted."} onClick={ask}>
          {bindings === undefined ? "Count objects" : `${counted(bindings, "binding")} counted`}
        </Button>
      </header>
      {error !== undefined && <Problem error={error} />}
      {shown?.versions.length === 0 && <p class="faint">Nothing is bound.</p>}
      {shown && shown.versions.length > 0 && (
        <table>
          <tbody>
            {shown.versions.map(({ version, objects, current }) => (
              <tr key={version}>
                <td>{version}</td>
                <td class="number">{count(objects)}</td>
                <td class="number">{all === 0 ? "" : `${Math.floor((objects / all) * 100)}%`}</td>
                <td>
                  {current && <Badge tone="good">storage version</Badge>}
                  {!current && objects > 0 && <Badge tone="busy">to be migrated</Badge>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {shown?.behind.map((late) => (
        <p key={late.workspace} class="faint">
          {late.workspace}: {counted(late.objects, "object")} to be migrated
        </p>
      ))}
    </section>
  );
}
