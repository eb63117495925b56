// Requests to the server, as the viewer: `/console/api` is the ordinary API with the session's
// credential.

import { isPath } from "./router";

export interface Cause {
  reason?: string;
  message: string;
  field?: string;
}

/** A refusal of the server. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly reason: string,
    readonly requestId: string,
    /** Parts of the refusal: fields that are wrong, or whose manager is another one. */
    readonly causes: Cause[] = [],
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
  let causes: Cause[] = [];
  try {
    const body = JSON.parse(text) as { message?: string; reason?: string; details?: { causes?: Cause[] } };
    message = body.message ?? text;
    reason = body.reason ?? "";
    causes = body.details?.causes ?? [];
  } catch {
    // Not JSON: the text is the message.
  }
  return new Refused(response.status, message || response.statusText, reason, requestId, causes);
}

/** Refuses a path that a browser would make another one of, as one with "..": names in it come from addresses. */
function checkPath(path: string): void {
  const { pathname, hash } = new URL(path, "https://here.invalid");
  if (hash !== "" || pathname !== path.split("?")[0]) throw new Error(`There is no such path: ${path}`);
}

/** Sends a request of the console's own, or of the viewer. A session that has ended is renewed first, if it can be. */
export async function send(path: string, init: RequestInit): Promise<Response> {
  checkPath(path);
  const sent = Date.now();
  const headers = { ...OWN, ...(init.headers as Record<string, string> | undefined) };
  const again = () => fetch(path, { ...init, headers, credentials: "same-origin" });
  let response = await again();
  if (response.status === 401 && path.startsWith("/console/api/") && (await renew(sent))) response = await again();
  if (!response.ok) {
    const refused = await refusal(response);
    if (refused.status === 401) signedOut();
    throw refused;
  }
  return response;
}

/** Has the provider renew a session that ended after `since`, once for all tabs. */
async function renew(since: number): Promise<boolean> {
  if (!localStorage.getItem("renewed")) return false;
  return navigator.locks.request("insula-session", async () => {
    if (Number(localStorage.getItem("renewed")) > since) return true;
    const workspace = signedInAt();
    const init: RequestInit = { method: "POST", headers: OWN, credentials: "same-origin" };
    const { ok, status } = await fetch(`/console/session/renewal?workspace=${encodeURI(workspace)}`, init);
    if (ok) localStorage.setItem("renewed", String(Date.now()));
    // Where the provider only did not answer, the next request tries again.
    else if (status < 500) localStorage.removeItem("renewed");
    return ok;
  });
}

/** Sends a request of the Kubernetes API. */
export async function kube<T>(path: string, init: RequestInit = {}): Promise<T> {
  const response = await send(`/console/api${path}`, {
    ...init,
    headers: {
      Accept: "application/json",
      ...(init.body ? { "Content-Type": "application/json" } : {}),
      ...(init.headers as Record<string, string> | undefined),
    },
  });
  return (await response.json()) as T;
}

/** Reads a document that is no JSON. */
export async function text(path: string, signal: AbortSignal): Promise<string> {
  return (await send(`/console/api${path}`, { signal })).text();
}

/** The workspace of the sign-in. What is no path of one, as a mistyped text, would make every request another one. */
function signedInAt(): string {
  const workspace = localStorage.getItem("workspace") ?? "";
  return isPath(workspace) ? workspace : "root";
}

/** The workspace whose issuers know the viewer, if it is not the root. */
function home(): Record<string, string> {
  const workspace = signedInAt();
  return workspace !== "root" ? { "Insula-Workspace": workspace } : {};
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

/** Items of one page of a list. */
const PAGE = 500;

/** Returns what all pages of a list have. */
export async function pages<P, T>(method: string, message: object, items: (page: P) => T[], signal: AbortSignal): Promise<T[]> {
  const found: T[] = [];
  let pageToken = "";
  do {
    const page = await call<P & { nextPageToken: string }>(method, { ...message, pageSize: PAGE, pageToken }, signal);
    found.push(...items(page));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  return found;
}

/** Reads the lines of an answer, each of which is JSON. */
async function readLines<T>(response: Response, receive: (line: T) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) receive(JSON.parse(line) as T);
  }
}

/** Calls a method that answers with a stream, and hands over each message. */
export async function stream<T>(
  method: string,
  message: object,
  receive: (message: T) => void,
  signal: AbortSignal,
): Promise<void> {
  const response = await send(`/console/api/insula.admin.v1.${method}`, posted(message, signal));
  await readLines<T & { error?: { message: string; reason: string; code: string } }>(response, (line) => {
    if (line.error) throw new Refused(0, line.error.message, line.error.code, "");
    receive(line);
  });
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
  const workspace = signedInAt();
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
  localStorage.removeItem("home");
  localStorage.removeItem("renewed");
  return ((await response.json()) as Review).status.userInfo;
}

export async function signOut(): Promise<void> {
  localStorage.removeItem("workspace");
  localStorage.removeItem("home");
  localStorage.removeItem("renewed");
  await send("/console/session", { method: "DELETE" });
}

/** Returns the provider of sign-ins, if the server has one. */
export async function provider(): Promise<string | null> {
  const response = await send("/console/session", {});
  return ((await response.json()) as { issuer: string | null }).issuer;
}

/** Path to which the provider sends the browser back. */
const RETURN = "/console/login";

/** Begins a sign-in by the provider, to which the browser goes. */
export async function beginLogin(workspace: string): Promise<void> {
  const response = await send("/console/session/begin", { method: "POST" });
  const { location } = (await response.json()) as { location: string };
  localStorage.setItem("workspace", workspace);
  localStorage.removeItem("home");
  sessionStorage.setItem("return", window.location.pathname + window.location.search);
  window.location.assign(location);
}

/** Returns the answer of the provider in the address, in whose place the page that the viewer left is from here on. */
export function takeAnswer(): URLSearchParams | undefined {
  if (window.location.pathname !== RETURN) return undefined;
  const answer = new URLSearchParams(window.location.search);
  const left = sessionStorage.getItem("return") ?? "";
  sessionStorage.removeItem("return");
  history.replaceState(null, "", left.startsWith("/console/") && !left.startsWith(RETURN) ? left : "/console");
  return answer;
}

/** Ends a sign-in by the provider with its answer. */
export async function endLogin(answer: URLSearchParams): Promise<User> {
  const workspace = signedInAt();
  const parts = ["code", "state", "iss"].map((name) => [name, answer.get(name)] as const);
  const query = parts.flatMap(([name, value]) => (value === null ? [] : [`${name}=${encodeURIComponent(value)}`]));
  const path = `/console/session/code?${[...query, `workspace=${encodeURI(workspace)}`].join("&")}`;
  const response = await send(path, { method: "POST" });
  localStorage.setItem("renewed", String(Date.now()));
  return ((await response.json()) as Review).status.userInfo;
}

/** A right of the viewer, for an access review. */
export interface Right {
  verb: string;
  group: string;
  resource: string;
  namespace?: string;
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

export interface Event<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T;
}

interface WatchOptions<T> {
  /** The form of the objects: JSON, or a table. */
  accept?: string;
  /** Runs when the server has begun to answer. */
  opened: () => void;
  receive: (event: Event<T>) => void;
  signal: AbortSignal;
}

/** Follows the objects of a path of the Kubernetes API, until the signal or the end of the watch. */
export async function watch<T>(path: string, options: WatchOptions<T>): Promise<void> {
  const { accept = "application/json", opened, receive, signal } = options;
  const response = await send(`/console/api${path}`, { headers: { Accept: accept }, signal });
  opened();
  await readLines<Event<T>>(response, (event) => {
    // The last event of a watch that the server ends with a reason.
    if (event.type === "ERROR") {
      const { code = 0, message = "", reason = "" } = event.object as { code?: number; message?: string; reason?: string };
      throw new Refused(code, message, reason, "");
    }
    receive(event);
  });
}
