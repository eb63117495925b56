// Sign-in to the console at a provider of OpenID Connect, which runs here, and attacks on it.
//
// Variables beside those of browser.mjs: ISSUER (the URL at which the provider serves), CERTIFICATE
// and KEY (its files), CLIENT and SECRET (those of the console).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import Provider from "oidc-provider";
import { browser, look, problems, url, visitor as guest } from "./browser.mjs";

const { ISSUER: issuer, CERTIFICATE: certificate, KEY: key, CLIENT: client, SECRET: secret } = process.env;
/** Seconds of an ID token, which the last part shortens. */
let lifetime = 600;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: client,
      client_secret: secret,
      redirect_uris: [`${url}/console/login`],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
    },
  ],
  features: { revocation: { enabled: true } },
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
  ttl: { IdToken: () => lifetime },
});
const server = createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, provider.callback());
await new Promise((listening) => server.listen(new URL(issuer).port, "127.0.0.1", listening));

const OWN = { "Insula-Console": "1" };
const SESSION = "__Host-insula-console";
const LOGIN = "__Host-insula-console-login";
const RENEWAL = "__Host-insula-console-renewal";

/** Returns a page of a visitor of their own. The pages of the provider want fonts from another host, and get none. */
async function visitor() {
  const page = await guest();
  await page.context().route(
    ({ origin }) => ![url, issuer].includes(origin),
    (route) => route.abort(),
  );
  return page;
}

/** Signs in at the pages of the provider. */
async function atProvider(page, name) {
  await page.getByPlaceholder(/login/i).fill(name);
  await page.getByPlaceholder(/password/i).fill("any");
  await page.getByRole("button", { name: "Sign-in" }).click();
  await page.getByRole("button", { name: "Continue" }).click();
}

const button = (page) => page.getByRole("button", { name: `Sign in at ${new URL(issuer).host}` });

/** Sends a request of the console as the visitor of a page, with headers that no browser would send. */
async function send(page, method, path, headers = OWN) {
  const answer = await page.context().request.fetch(`${url}${path}`, { method, headers });
  return { status: answer.status(), text: await answer.text() };
}

async function cookie(page, name) {
  return (await page.context().cookies(`${url}/console/session`)).find((one) => one.name === name);
}

/** Begins a sign-in, and returns the answer of the provider, which no script brings to the console. */
async function answerFor(page, name, change = (address) => address) {
  const { status, text } = await send(page, "POST", "/console/session/begin");
  assert.equal(status, 200, text);
  const script = `${url}/console/assets/console.js`;
  await page.route(script, (route) => route.abort());
  await page.goto(change(JSON.parse(text).location));
  await atProvider(page, name);
  await page.waitForURL((address) => address.pathname === "/console/login");
  await page.unroute(script);
  return new URL(page.url()).searchParams;
}

const query = (parameters, changes = {}) => {
  const all = { code: parameters.get("code"), state: parameters.get("state"), iss: parameters.get("iss"), ...changes };
  const pairs = Object.entries(all).filter(([, value]) => value !== undefined);
  return `/console/session/code?${pairs.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`;
};

async function refused(page, path, want, reason, headers) {
  const { status, text } = await send(page, "POST", path, headers);
  assert.equal(status, want, text);
  assert.match(text, reason);
  assert.equal(await cookie(page, SESSION), undefined);
}

/** A viewer signs in, is shown the page that they wanted, works as themselves, and leaves. */
async function viewer() {
  const page = await visitor();
  await page.goto(`${url}/console/usage/root?view=1`);
  await button(page).waitFor();
  await look(page, "sign-in-provider");
  await button(page).click();
  await atProvider(page, "ada");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  assert.equal(page.url(), `${url}/console/usage/root?view=1`);
  assert.equal(await page.locator(".user").innerText(), "corp:ada");
  for (const name of [SESSION, RENEWAL]) {
    const kept = await cookie(page, name);
    assert.deepEqual([kept.httpOnly, kept.secure, kept.sameSite, kept.path], [true, true, "Strict", "/"], name);
    assert.ok(kept.expires > Date.now() / 1000 + 11 * 3600 && kept.expires < Date.now() / 1000 + 13 * 3600);
  }
  assert.equal(await cookie(page, LOGIN), undefined);
  const before = await page.context().cookies(`${url}/console/session`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await button(page).waitFor();
  assert.equal(await cookie(page, RENEWAL), undefined);
  // The provider takes the refresh token no longer, from nobody.
  await page.context().addCookies(before);
  const renewed = await send(page, "POST", "/console/session/renewal");
  assert.equal(renewed.status, 401, renewed.text);
  await page.context().close();
}

/** Answers of the provider that belong to another sign-in, another provider or another browser. */
async function attacks() {
  const [mallory, victim, other] = [await visitor(), await visitor(), await visitor()];
  const stolen = await answerFor(mallory, "mallory");
  // In a browser that began nothing: a link that signs others in as mallory.
  await refused(other, query(stolen), 401, /this browser began no sign-in/);
  await other.goto(`${url}/console/login?${stolen}`);
  await other.getByRole("alert").getByText("this browser began no sign-in").waitFor();
  assert.ok(await button(other).isVisible());
  assert.equal(other.url(), `${url}/console`);
  // In one that began a sign-in of its own; after a wrong answer it is not that any more.
  const own = await answerFor(victim, "victim");
  const begun = await cookie(victim, LOGIN);
  const again = () => victim.context().addCookies([begun]);
  for (const [path, want, reason] of [
    [query(stolen), 403, /belongs to another sign-in/],
    [query(own, { state: "" }), 403, /belongs to another sign-in/],
    [query(own, { state: undefined }), 403, /belongs to another sign-in/],
    [`${query(own)}&state=${own.get("state")}`, 403, /belongs to another sign-in/],
    [query(own, { iss: "https://evil.example.com" }), 403, /another provider/],
    [query(own, { iss: undefined }), 403, /another provider/],
    [query(own, { code: undefined }), 401, /gave no token/],
    [query(own, { code: "guess" }), 401, /gave no token/],
    // The code of a sign-in with another challenge, brought into this one.
    [query(own, { code: stolen.get("code") }), 401, /gave no token/],
  ]) {
    await again();
    await refused(victim, path, want, reason);
    assert.equal(await cookie(victim, LOGIN), undefined, path);
    await refused(victim, query(own), 401, /this browser began no sign-in/);
  }
  // What a page of another origin can make a browser send.
  await again();
  await refused(victim, query(own), 403, /Insula-Console/, {});
  await refused(victim, query(own), 403, /another origin/, { ...OWN, origin: "https://evil.example.com" });
  await refused(victim, "/console/session/begin", 403, /Insula-Console/, {});
  assert.equal((await send(victim, "GET", query(own))).status, 405);
  // The address that the provider knows is the only one.
  const elsewhere = { ...OWN, host: "localhost" };
  await refused(victim, "/console/session/begin", 400, /externalUrl/, elsewhere);
  for (const page of [mallory, victim, other]) await page.context().close();
}

/** An answer counts once, and only with the nonce of its sign-in. */
async function replays() {
  const page = await visitor();
  const answer = await answerFor(page, "ada");
  const begun = await cookie(page, LOGIN);
  const first = await send(page, "POST", query(answer));
  assert.equal(first.status, 201, first.text);
  assert.equal(JSON.parse(first.text).status.userInfo.username, "corp:ada");
  await page.context().clearCookies({ name: SESSION });
  await page.context().addCookies([begun]);
  await refused(page, query(answer), 401, /gave no token/);
  await page.context().close();
  const other = await visitor();
  const nonce = (address) => address.replace(/nonce=[^&]*/, "nonce=that-of-another");
  const changed = await answerFor(other, "ada", nonce);
  await refused(other, query(changed), 403, /not for this sign-in/);
  await other.context().close();
}

/** No place in the page sends a viewer elsewhere after the sign-in. */
async function redirects() {
  for (const left of ["https://evil.example.com/console/", "//evil.example.com", "/console/../clusters", "/console/login?code=x"]) {
    const page = await visitor();
    await page.goto(`${url}/console`);
    await button(page).click();
    await page.waitForURL(`${issuer}/**`);
    // As a script of another version of the page may have left it.
    await page.context().addInitScript(
      ([path, at]) => location.origin === at && location.pathname === "/console/login" && sessionStorage.setItem("return", path),
      [left, url],
    );
    await atProvider(page, "ada");
    await page.getByRole("button", { name: "Sign out" }).waitFor();
    assert.ok(page.url().startsWith(`${url}/c`), page.url());
    await page.context().close();
  }
}

/** A session outlives its tokens; a refresh token counts once. */
async function renewals() {
  lifetime = 4;
  const page = await visitor();
  await page.goto(`${url}/console/usage/root`);
  await button(page).click();
  await atProvider(page, "ada");
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  const before = await page.context().cookies(`${url}/console/session`);
  const renewed = page.waitForResponse((response) => response.url().includes("/console/session/renewal"));
  const [answer] = await Promise.all([renewed, sleepThenMove(page)]);
  assert.equal(answer.status(), 201);
  lifetime = 600;
  await page.getByRole("link", { name: "Workspaces" }).waitFor();
  assert.equal(await page.locator(".user").innerText(), "corp:ada");
  const after = await cookie(page, RENEWAL);
  assert.notEqual(after.value, before.find(({ name }) => name === RENEWAL).value);
  // Somebody else has the first refresh token: the provider ends both.
  const thief = await visitor();
  await thief.context().addCookies(before);
  await refused(thief, "/console/session/renewal", 401, /renews the session no longer/);
  await refused(page, "/console/session/renewal", 401, /renews the session no longer/);
  await page.reload();
  await button(page).waitFor();
}

async function sleepThenMove(page) {
  await new Promise((next) => setTimeout(next, (lifetime + 1) * 1000));
  await page.keyboard.press("g");
  await page.keyboard.press("s");
}

for (const part of [viewer, attacks, replays, redirects, renewals]) {
  await part();
  console.log(`${part.name} ok`);
}
assert.deepEqual(problems, []);
await browser.close();
server.close();
server.closeAllConnections();
