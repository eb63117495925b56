// Packs the console into the folder of the first argument: one script, the editor that pages load when
// they need it, one style sheet, a page, an icon, and the licences of the libraries in the scripts.
// The site of the documents has a script and a style sheet there as well.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const into = process.argv[2] ?? "../packed";
mkdirSync(into, { recursive: true });
const scripts = await build({
  entryPoints: { console: "src/main.tsx", editor: "src/editor.ts", docs: "src/docs.ts" },
  outdir: into,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  // They are in `licenses.txt`, of the libraries that say nothing in their files as well.
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});
await build({
  entryPoints: { console: "src/style.css", docs: "src/docs.css" },
  outdir: into,
  bundle: true,
  minify: true,
  logLevel: "warning",
});
for (const file of ["index.html", "icon.svg"]) copyFileSync(`src/${file}`, `${into}/${file}`);
writeFileSync(`${into}/licenses.txt`, licenses(Object.keys(scripts.metafile.inputs)));

/** Returns the licences of the packages that files belong to. A package without one fails. */
function licenses(files) {
  const folders = files.map((file) => /^node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0]).filter(Boolean);
  const texts = [...new Set(folders)].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no licence`);
    const text = readFileSync(`${folder}/${file}`, "utf8").replaceAll("\r\n", "\n").trim();
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}
