// Requests to the server, as the viewer: `/console/api` is the ordinary API with the session's
// credential.

/** A refusal of the server. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly reason: string,
    readonly requestId: string,
  ) {
    super(message);
  }
}

const OWN = { "Insula-Console": "1" };

/** Runs when the session has ended. */
let signedOut: () => void = () => undefined;

export function onSignedOut(run: () => void): void {
  signedOut = run;
}

async function refusal(response: Response): Promise<Refused> {
  const text = await response.text();
  const requestId = response.headers.get("audit-id") ?? "";
  let message = text;
  let reason = "";
  try {
    const body = JSON.parse(text) as { message?: string; reason?: string };
    message = body.message ?? text;
    reason = body.reason ?? "";
  } catch {
    // Not JSON: the text is the message.
  }
  return new Refused(response.status, message || response.statusText, reason, requestId);
}

async function send(path: string, init: RequestInit): Promise<Response> {
  const headers = { ...OWN, ...(init.headers as Record<string, string> | undefined) };
  const response = await fetch(path, { ...init, headers, credentials: "same-origin" });
  if (!response.ok) {
    const refused = await refusal(response);
    if (refused.status === 401) signedOut();
    throw refused;
  }
  return response;
}

/** Sends a request of the Kubernetes API. */
export async function kube<T>(path: string, init: RequestInit = {}): Promise<T> {
  const response = await send(`/console/api${path}`, {
    ...init,
    headers: { Accept: "application/json", ...(init.body ? { "Content-Type": "application/json" } : {}) },
  });
  return (await response.json()) as T;
}

/** The workspace whose issuers know the viewer, if it is not the root. */
function home(): Record<string, string> {
  const workspace = localStorage.getItem("workspace");
  return workspace && workspace !== "root" ? { "Insula-Workspace": workspace } : {};
}

function posted(message: object, signal?: AbortSignal): RequestInit {
  return {
    method: "POST",
    headers: { "Content-Type": "application/json", ...home() },
    body: JSON.stringify(message),
    ...(signal && { signal }),
  };
}

/** Calls a method of the admin API: "WorkspaceService/GetWorkspace". */
export async function call<T>(method: string, message: object, signal?: AbortSignal): Promise<T> {
  const response = await send(`/console/api/insula.admin.v1.${method}`, posted(message, signal));
  return (await response.json()) as T;
}

/** Calls a method that answers with a stream, and hands over each message. */
export async function stream<T>(
  method: string,
  message: object,
  receive: (message: T) => void,
  signal: AbortSignal,
): Promise<void> {
  const response = await send(`/console/api/insula.admin.v1.${method}`, posted(message, signal));
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const parsed = JSON.parse(line) as T & { error?: { message: string; reason: string; code: string } };
      if (parsed.error) throw new Refused(0, parsed.error.message, parsed.error.code, "");
      receive(parsed);
    }
  }
}

export interface User {
  username: string;
  groups?: string[];
}

interface Review {
  status: { userInfo: User };
}

const REVIEWS = "apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEW = JSON.stringify({ apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" });

/** Returns the viewer, by session or client certificate; nothing for a stranger. */
export async function whoAmI(): Promise<User | undefined> {
  const workspace = localStorage.getItem("workspace") ?? "root";
  try {
    const review = await kube<Review>(`/clusters/${workspace}/${REVIEWS}`, { method: "POST", body: REVIEW });
    const user = review.status.userInfo;
    return user.username === "system:anonymous" ? undefined : user;
  } catch (error) {
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) return undefined;
    throw error;
  }
}

/** Begins a session with a token. The server checks it, and keeps it in a cookie that no script reads. */
export async function signIn(token: string, workspace: string): Promise<User> {
  const response = await fetch(`/console/session?workspace=${encodeURI(workspace)}`, {
    method: "POST",
    headers: { ...OWN, Authorization: `Bearer ${token}` },
    credentials: "same-origin",
  });
  if (!response.ok) throw await refusal(response);
  localStorage.setItem("workspace", workspace);
  return ((await response.json()) as Review).status.userInfo;
}

export async function signOut(): Promise<void> {
  localStorage.removeItem("workspace");
  await send("/console/session", { method: "DELETE" });
}

/** A right of the viewer, for an access review. */
export interface Right {
  verb: string;
  group: string;
  resource: string;
  name?: string;
}

/** Returns the reason why the viewer may not do something in a workspace; nothing if they may. */
export async function whyNot(workspace: string, right: Right): Promise<string | undefined> {
  interface AccessReview {
    status: { allowed: boolean; reason?: string };
  }
  try {
    const review = await kube<AccessReview>(
      `/clusters/${workspace}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews`,
      {
        method: "POST",
        body: JSON.stringify({
          apiVersion: "authorization.k8s.io/v1",
          kind: "SelfSubjectAccessReview",
          spec: { resourceAttributes: right },
        }),
      },
    );
    if (review.status.allowed) return undefined;
    return `You may not ${right.verb} ${right.resource} in ${workspace}.`;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Follows the objects of a path of the Kubernetes API, until the signal or the end of the watch. */
export async function watch(path: string, changed: () => void, signal: AbortSignal): Promise<void> {
  const response = await send(`/console/api${path}`, { headers: { Accept: "application/json" }, signal });
  const reader = response.body?.getReader();
  while (reader) {
    const { done } = await reader.read();
    if (done) return;
    changed();
  }
}
