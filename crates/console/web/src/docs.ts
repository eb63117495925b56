// The script of the documents' site: a search over all parts of them, and buttons that copy commands.
// Pages are whole without it.
import MiniSearch from "minisearch";

/** A heading with the text below it; `id` is its address. */
interface Part {
  id: string;
  title: string;
  heading: string;
  text: string;
}

const RESULTS_MAX = 12;
/** Characters of the text in a result. */
const EXCERPT = 150;
const ROOT = new URL("../", import.meta.url);

interface Index {
  search: MiniSearch<Part>;
  parts: Map<string, Part>;
}

let loading: Promise<Index> | undefined;

async function load(): Promise<Index> {
  const answer = await fetch(new URL("search.json", ROOT));
  if (!answer.ok) throw new Error(`the search index: ${answer.status}`);
  const parts = (await answer.json()) as Part[];
  const search = new MiniSearch<Part>({
    fields: ["title", "heading", "text"],
    searchOptions: { prefix: true, combineWith: "AND", boost: { title: 3, heading: 4 } },
  });
  search.addAll(parts);
  return { search, parts: new Map(parts.map((part) => [part.id, part])) };
}

function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Record<string, string> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Returns the part of a text around the first of the words, with the words marked. */
function excerpt(text: string, words: string[]): (Node | string)[] {
  const lower = text.toLowerCase();
  const places = words.map((word) => lower.indexOf(word)).filter((place) => place >= 0);
  const first = Math.max(0, (places.length ? Math.min(...places) : 0) - 40);
  const begin = first === 0 ? 0 : text.indexOf(" ", first) + 1;
  const shown = text.slice(begin, begin + EXCERPT);
  const pattern = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
  const pieces = pattern ? shown.split(new RegExp(`(${pattern})`, "i")) : [shown];
  const marked = pieces.map((piece, index) => (index % 2 === 1 ? element("mark", {}, piece) : piece));
  return [begin > 0 ? "… " : "", ...marked, begin + EXCERPT < text.length ? " …" : ""];
}

function option(part: Part, words: string[], number: number): HTMLLIElement {
  const heading = part.heading === part.title ? part.title : `${part.title}: ${part.heading}`;
  return element(
    "li",
    { role: "option", id: `result-${number}`, "aria-selected": "false", "data-href": part.id },
    element("strong", {}, heading),
    element("span", {}, ...excerpt(part.text, words)),
  );
}

function searchField(place: HTMLElement): void {
  const field = element("input", {
    type: "search",
    placeholder: "Search  /",
    "aria-label": "Search the documents",
    role: "combobox",
    "aria-expanded": "false",
    "aria-controls": "results",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
  });
  const list = element("ul", { id: "results", role: "listbox", "aria-label": "Results", hidden: "" });
  const status = element("div", { class: "sr", role: "status" });
  place.append(field, list, status);
  let selected = -1;

  const options = () => [...list.querySelectorAll<HTMLElement>("[role=option]")];
  const open = (shown: boolean) => {
    list.hidden = !shown;
    field.setAttribute("aria-expanded", String(shown));
    if (!shown) field.removeAttribute("aria-activedescendant");
  };
  const select = (next: number) => {
    const all = options();
    selected = all.length ? (next + all.length) % all.length : -1;
    all.forEach((one, index) => one.setAttribute("aria-selected", String(index === selected)));
    const one = all[selected];
    if (!one) return;
    field.setAttribute("aria-activedescendant", one.id);
    one.scrollIntoView({ block: "nearest" });
  };
  const go = (one: HTMLElement | undefined) => {
    const href = one?.dataset["href"];
    if (href === undefined) return;
    open(false);
    field.blur();
    location.assign(new URL(href, ROOT));
  };
  const find = async () => {
    const text = field.value.trim();
    if (!text) return open(false);
    let index: Index;
    try {
      index = await (loading ??= load());
    } catch (error) {
      loading = undefined;
      status.textContent = `The search does not work: ${String(error)}`;
      return;
    }
    // Another letter came while the index was on its way.
    if (field.value.trim() !== text) return;
    const found = index.search.search(text);
    const words = text.toLowerCase().split(/\s+/);
    const shown = found.slice(0, RESULTS_MAX).flatMap(({ id }) => index.parts.get(id as string) ?? []);
    list.replaceChildren(...shown.map((part, number) => option(part, words, number)));
    status.textContent = found.length ? `${found.length} results` : "Nothing found";
    if (!found.length) list.append(element("li", { role: "presentation" }, "Nothing found"));
    open(true);
    select(0);
  };

  field.addEventListener("focus", () => (loading ??= load()).catch(() => (loading = undefined)));
  field.addEventListener("input", () => void find());
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") select(selected + 1);
    else if (event.key === "ArrowUp") select(selected - 1);
    else if (event.key === "Enter") go(options()[selected]);
    else if (event.key === "Escape") open(false);
    else return;
    event.preventDefault();
  });
  field.addEventListener("blur", () => open(false));
  // Before the field loses the focus.
  list.addEventListener("mousedown", (event) => {
    event.preventDefault();
    go((event.target as Element).closest<HTMLElement>("[role=option]") ?? undefined);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || document.activeElement === field) return;
    event.preventDefault();
    field.focus();
  });
}

function copyButtons(): void {
  const blocks = ["sh", "bash", "yaml"].map((language) => `pre[data-language="${language}"]`);
  for (const block of document.querySelectorAll<HTMLElement>(blocks.join())) {
    const button = element("button", { type: "button", class: "copy" }, "Copy");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.textContent ?? "");
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    const frame = element("div", { class: "code" });
    block.replaceWith(frame);
    frame.append(block, button);
  }
}

const place = document.getElementById("search");
if (place) searchField(place);
copyButtons();
