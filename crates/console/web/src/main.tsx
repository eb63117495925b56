// The console: sign-in, the frame around pages, and the page that the address names.

import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Refused, beginLogin, endLogin, onSignedOut, provider, signIn, signOut, takeAnswer, whoAmI } from "./api";
import type { User } from "./api";
import { Apis } from "./apis";
import { Audit } from "./audit";
import { Diff } from "./diff";
import { Exports } from "./exports";
import { GoTo } from "./goto";
import { Migrations } from "./migrations";
import { Objects } from "./objects";
import { Playground } from "./playground";
import { Releases } from "./releases";
import { PAGES, go, homeOf, isPath, link, usePlace } from "./router";
import type { Place } from "./router";
import { Servers } from "./servers";
import { Stuck } from "./stuck";
import { Traffic } from "./traffic";
import { Button, Problem, isCommand, useWork } from "./ui";
import { Usage } from "./usage";
import { Workspaces } from "./workspaces";

type Theme = "auto" | "light" | "dark";
const THEMES: Theme[] = ["auto", "light", "dark"];

function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState<Theme>(() => (localStorage.getItem("theme") as Theme | null) ?? "auto");
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto")];
}

/** What the provider of sign-ins sent the browser back with, before the router reads the address. */
const answer = takeAnswer();

function App() {
  const [refused, setRefused] = useState<unknown>();
  const [user, setUser] = useState<User | null | undefined>();
  const [error, setError] = useState<unknown>();
  const [theme, nextTheme] = useTheme();
  useLayoutEffect(() => {
    onSignedOut(() => setUser(null));
    const failed = (problem: unknown) => {
      if (answer === undefined || !(problem instanceof Refused)) return setError(problem);
      setRefused(problem);
      setUser(null);
    };
    (answer ? endLogin(answer) : whoAmI()).then((known) => setUser(known ?? null), failed);
  }, []);
  if (error !== undefined) return <Problem error={error} retry={() => window.location.reload()} />;
  if (user === undefined) return <p class="loading">Loading…</p>;
  if (user === null) return <SignIn done={setUser} refused={refused} />;
  return <Frame user={user} theme={theme} nextTheme={nextTheme} leave={() => void signOut().finally(() => setUser(null))} />;
}

/** Pages whose addresses name an export. */
const OF_EXPORTS: ReadonlySet<string> = new Set(["exports", "releases", "diff"]);

/** Milliseconds for the second key. */
const SECOND_KEY = 1500;

function addressOf(page: string, place: Place): string {
  return link(page, place.workspace, OF_EXPORTS.has(page) && OF_EXPORTS.has(place.page) ? place.name : "");
}

/** Leads to a page by `g` and its key. */
function usePageKeys(place: Place): void {
  const begun = useRef(0);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!isCommand(event)) return;
      const page = PAGES.find(([, , key]) => key === event.key)?.[0];
      if (page && Date.now() - begun.current < SECOND_KEY) go(addressOf(page, place));
      begun.current = event.key === "g" ? Date.now() : 0;
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [place]);
}

interface FrameProps {
  user: User;
  theme: Theme;
  nextTheme: () => void;
  leave: () => void;
}

function Frame({ user, theme, nextTheme, leave }: FrameProps) {
  const place = usePlace();
  const home = homeOf();
  usePageKeys(place);
  const title = PAGES.find(([page]) => page === place.page)?.[1] ?? "";
  useEffect(() => {
    document.title = `${[...place.rest, place.name, place.workspace, title].filter(Boolean).join(" · ")} · Insula`;
  }, [place, title]);
  return (
    <>
      <a class="skip" href="#main">
        Skip to the page
      </a>
      <header class="top">
        <a class="brand" href={link("workspaces")}>
          <img src="/console/assets/icon.svg" alt="" width="20" height="20" /> Insula
        </a>
        <nav aria-label="Pages">
          {PAGES.map(([page, text, key]) => (
            <a
              key={page}
              href={addressOf(page, place)}
              title={`${text}  ( g ${key} )`}
              aria-keyshortcuts={`g ${key}`}
              {...(page === place.page && { "aria-current": "page" as const })}
            >
              {text}
            </a>
          ))}
        </nav>
        <span class="user" title={(user.groups ?? []).join(", ")}>
          {user.username}
        </span>
        <button type="button" onClick={nextTheme} aria-label={`Theme: ${theme}`}>
          {theme === "auto" ? "Auto" : theme === "dark" ? "Dark" : "Light"}
        </button>
        <button type="button" onClick={leave}>
          Sign out
        </button>
      </header>
      <main id="main" tabIndex={-1}>
        <h1 class="sr">{title}</h1>
        {place.workspace !== "" && !isPath(place.workspace) ? (
          <Problem error={new Error(`The address names no workspace: ${place.workspace}`)} />
        ) : (
          <Page place={place} home={home} />
        )}
      </main>
      <GoTo place={place} home={home} addressOf={addressOf} />
    </>
  );
}

function Page({ place, home }: { place: Place; home: string }) {
  return (
    <>
      {place.page === "workspaces" && <Workspaces place={place} home={home} />}
      {place.page === "objects" && <Objects key={place.workspace} place={place} home={home} />}
      {place.page === "stuck" && <Stuck key={place.workspace} place={place} home={home} />}
      {place.page === "apis" && <Apis key={place.workspace} place={place} home={home} />}
      {place.page === "diff" && <Diff key={place.workspace + place.name} place={place} home={home} />}
      {place.page === "migrations" && <Migrations key={place.workspace} place={place} home={home} />}
      {place.page === "traffic" && <Traffic key={place.workspace} place={place} home={home} />}
      {place.page === "usage" && <Usage key={place.workspace} place={place} home={home} />}
      {place.page === "audit" && <Audit key={place.workspace + place.query} place={place} home={home} />}
      {place.page === "servers" && <Servers />}
      {place.page === "exports" && <Exports key={place.workspace + place.name} place={place} home={home} />}
      {place.page === "conversion" && <Playground place={place} home={home} />}
      {place.page === "releases" && <Releases key={place.workspace + place.name} place={place} home={home} />}
    </>
  );
}

interface SignInProps {
  done: (user: User) => void;
  /** Why the provider's sign-in failed. */
  refused: unknown;
}

function SignIn({ done, refused }: SignInProps) {
  const { busy, error = refused, run } = useWork();
  const [issuer, setIssuer] = useState<string | null>(null);
  const form = useRef<HTMLFormElement>(null);
  const text = (name: string) => String(new FormData(form.current ?? undefined).get(name) ?? "").trim();
  const workspace = () => text("workspace") || "root";
  useEffect(() => void provider().then(setIssuer, () => undefined), []);
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    run(async () => done(await signIn(text("token"), workspace())));
  };
  return (
    <main class="sign-in">
      <form ref={form} onSubmit={submit}>
        <h1>
          <img src="/console/assets/icon.svg" alt="" width="32" height="32" /> Insula
        </h1>
        {issuer !== null && (
          <>
            <Button class="primary" busy={busy} title={issuer} onClick={() => run(() => beginLogin(workspace()))}>
              Sign in at {new URL(issuer).host}
            </Button>
            <p class="faint">or with a token:</p>
          </>
        )}
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="off" required autofocus />
        <label for="workspace">Workspace</label>
        <input id="workspace" name="workspace" placeholder="root" autocomplete="off" spellcheck={false} />
        <Button {...(issuer === null && { class: "primary" })} type="submit" busy={busy}>
          Sign in
        </Button>
        {error !== undefined && <Problem error={error} />}
        <p class="faint">
          You have the rights of the token, and no others. The server keeps it sealed in a cookie for twelve hours.
          A token of a service account: <code>kubectl create token NAME</code>
          <br />
          <a href="/console/assets/licenses.txt" target="_blank" rel="noopener">
            Licences of the libraries in these pages
          </a>
        </p>
      </form>
    </main>
  );
}

render(<App />, document.getElementById("app") as HTMLElement);
