// The documents in a browser. Variables: those of browser.mjs.

import assert from "node:assert/strict";
import { browser, look, problems, url, visitor } from "./browser.mjs";

/** Pages that differ in what they hold: code, pictures, wide tables, screenshots, lists. */
const KINDS = ["index", "quickstart", "ARCHITECTURE", "compatibility", "console", "conversion", "guides/releases", "for/tenant"];

const page = await visitor();

/** The search: the keyboard alone, a result that names a part of a page, words that are nowhere. */
async function search() {
  await page.goto(url);
  await page.keyboard.press("/");
  await page.keyboard.type("freeze a works");
  const results = page.getByRole("option");
  await results.filter({ hasText: "Freeze a workspace" }).first().waitFor();
  assert.ok((await results.first().locator("mark").count()) > 0);
  const names = await results.locator("strong").allInnerTexts();
  const wanted = names.findIndex((name) => name.endsWith(": Freeze a workspace"));
  assert.ok(wanted >= 0 && wanted < 3, names.join(", "));
  for (let step = 0; step < wanted; step += 1) await page.keyboard.press("ArrowDown");
  await look(page, "docs-search");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/guides\/access-over-grpc\.html#freeze-a-workspace$/);
  const heading = page.getByRole("heading", { name: "Freeze a workspace" });
  const { y } = await heading.boundingBox();
  assert.ok(y > 40 && y < 200, `the heading is at ${y}`);
  await page.getByRole("combobox").fill("xyzzyplugh");
  await page.getByRole("status").getByText("Nothing found").waitFor();
  await page.keyboard.press("Escape");
  assert.ok(await page.getByRole("listbox").isHidden());
}

async function copiesCommands() {
  await page.goto(`${url}quickstart.html`);
  await page.getByRole("button", { name: "Copy" }).first().click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^DATA=.*\ninsula start /);
}

/** Every page: it loads with all its pictures, and what it links to in the site is there. */
async function everyPage() {
  const parts = await (await page.request.get(`${url}search.json`)).json();
  const pages = [...new Set(parts.map(({ id }) => id.split("#")[0]))];
  assert.ok(pages.length > 60, `${pages.length} pages`);
  const targets = new Set();
  for (const name of pages) {
    const answer = await page.goto(url + name);
    assert.equal(answer.status(), 200, name);
    const { title, broken, links } = await page.evaluate(() => ({
      title: document.title,
      broken: [...document.images].filter((image) => image.complete && !image.naturalWidth).map(({ src }) => src),
      links: [...document.links].map(({ href }) => href.split("#")[0]),
    }));
    assert.ok(title, name);
    assert.deepEqual(broken, [], name);
    for (const link of links) if (link.startsWith(url)) targets.add(link);
  }
  for (const target of targets) {
    const { status } = await page.evaluate(async (href) => ({ status: (await fetch(href)).status }), target);
    assert.equal(status, 200, target);
  }
  console.log(`${pages.length} pages, ${targets.size} targets of links`);
}

async function looks(visiting, mode) {
  for (const kind of KINDS) {
    await visiting.goto(`${url}${kind}.html`);
    await look(visiting, `docs-${kind.replace("/", "-")}${mode}`);
  }
}

async function dark() {
  const visiting = await visitor("dark");
  await looks(visiting, "-dark");
  const background = await visiting.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.ok(background.match(/\d+/g).slice(0, 3).every((part) => Number(part) < 60), background);
  await visiting.context().close();
}

async function narrow() {
  const visiting = await visitor("light", { viewport: { width: 390, height: 800 } });
  for (const kind of KINDS) {
    await visiting.goto(`${url}${kind}.html`);
    const [wide, has] = await visiting.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= has, `${kind}: ${wide} of ${has}`);
  }
  await look(visiting, "docs-narrow");
  await visiting.context().close();
}

async function withoutScripts() {
  const visiting = await visitor("light", { javaScriptEnabled: false });
  await visiting.goto(url);
  await visiting.getByRole("navigation").getByRole("link", { name: "Quickstart" }).click();
  await visiting.getByRole("heading", { name: "Quickstart" }).waitFor();
  await visiting.context().close();
}

await search();
await copiesCommands();
await everyPage();
await looks(page, "");
await dark();
await narrow();
await withoutScripts();
assert.deepEqual(problems, []);
await browser.close();
