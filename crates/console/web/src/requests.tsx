// Requests of others for the right to bind the APIs of a workspace, and the decisions on them.

import { useState } from "preact/hooks";
import { call } from "./api";
import { insula } from "./command";
import { age, count, counted } from "./format";
import { Badge, Button, Copy, Problem, useDenied, useWork } from "./ui";
import type { Tone } from "./ui";

export interface BindRequest {
  name: string;
  export: string;
  requester: string;
  requesterGroups: string[];
  workspace: string;
  reason: string;
  createTime?: string;
  expireTime?: string;
  state: string;
  message: string;
  decidedBy: string;
  etag: string;
}

export const STATES: Record<string, { text: string; tone: Tone }> = {
  API_REQUEST_STATE_PENDING: { text: "Requested", tone: "warn" },
  API_REQUEST_STATE_APPROVED: { text: "Approved", tone: "busy" },
  API_REQUEST_STATE_GRANTED: { text: "Granted", tone: "good" },
  API_REQUEST_STATE_DENIED: { text: "Denied", tone: "bad" },
  API_REQUEST_STATE_FAILED: { text: "Failed", tone: "bad" },
};

interface RequestsProps {
  workspace: string;
  requests: BindRequest[];
  again: () => void;
}

export function Requests({ workspace, requests, again }: RequestsProps) {
  const denied = useDenied(workspace, { verb: "patch", group: "apis.insula.io", resource: "apibindrequests" });
  const pending = requests.filter(({ state }) => state === "API_REQUEST_STATE_PENDING");
  const decided = requests.filter(({ state }) => state !== "API_REQUEST_STATE_PENDING");
  return (
    <section class="requests" aria-label="Requests">
      <header>
        <h3>
          {counted(pending.length, "request")} without a decision
          {decided.length > 0 && `, ${count(decided.length)} with one`}
        </h3>
        <Copy text={insula("apis", "requests", "-W", workspace)}>Copy insula</Copy>
      </header>
      <ul>
        {[...pending, ...decided].map((request) => (
          <li key={request.name}>
            <Decision workspace={workspace} request={request} denied={denied} again={again} />
          </li>
        ))}
      </ul>
    </section>
  );
}

interface DecisionProps {
  workspace: string;
  request: BindRequest;
  denied: string | undefined;
  again: () => void;
}

function Decision({ workspace, request, denied, again }: DecisionProps) {
  const [message, setMessage] = useState("");
  const [group, setGroup] = useState("");
  const { busy, error, run } = useWork();
  const state = STATES[request.state];
  const decide = (decision: "APPROVE" | "DENY") =>
    run(async () => {
      await call("ApiService/DecideApiRequest", {
        workspace,
        name: request.name,
        decision: `API_REQUEST_DECISION_${decision}`,
        message,
        // What was seen is what is decided on.
        etag: request.etag,
        requestId: crypto.randomUUID(),
        ...(decision === "APPROVE" && group && { group }),
      });
      again();
    });
  return (
    <>
      <p>
        {state && <Badge tone={state.tone}>{state.text}</Badge>} <strong>{request.requester}</strong> asks for{" "}
        <strong>{request.export}</strong> in {request.workspace} <span class="faint">{age(request.createTime)}</span>
        {request.reason && <q>{request.reason}</q>}
        {request.decidedBy && (
          <span class="faint">
            {" "}
            decided by {request.decidedBy} {request.message}
          </span>
        )}
      </p>
      {request.state === "API_REQUEST_STATE_PENDING" && (
        <p class="act">
          <input
            aria-label={`Note to ${request.requester}`}
            placeholder="Note"
            value={message}
            onInput={(event) => setMessage(event.currentTarget.value)}
          />
          {request.requesterGroups.length > 0 && (
            <select aria-label="Gets the right" value={group} onChange={(event) => setGroup(event.currentTarget.value)}>
              <option value="">{request.requester} alone</option>
              {request.requesterGroups.map((name) => (
                <option key={name} value={name}>
                  group {name}
                </option>
              ))}
            </select>
          )}
          <Button busy={busy} why={denied} onClick={() => decide("APPROVE")}>
            Approve
          </Button>
          <Button busy={busy} why={denied} onClick={() => decide("DENY")}>
            Deny
          </Button>
        </p>
      )}
      {error !== undefined && <Problem error={error} />}
    </>
  );
}
