// Packs the console: one script, one style sheet, a page and an icon, into the folder of the first
// argument.
import { build } from "esbuild";
import { copyFileSync, mkdirSync } from "node:fs";

const into = process.argv[2] ?? "../packed";
mkdirSync(into, { recursive: true });
await build({
  entryPoints: { console: "src/main.tsx" },
  outdir: into,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
await build({
  entryPoints: { console: "src/style.css" },
  outdir: into,
  minify: true,
  logLevel: "warning",
});
for (const file of ["index.html", "icon.svg"]) copyFileSync(`src/${file}`, `${into}/${file}`);
