// Commands for a shell, which pages offer to copy. Names in them may be those that a tenant chose.

/** What every shell takes as it is. */
const PLAIN = /^[\w@%+:,./-][\w@%+=:,./-]*$/;
/** Characters that a terminal acts upon, although they are quoted. */
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Returns an argument as a shell takes it: nothing in it runs, expands, or ends it. */
export function quoted(argument: string): string {
  if (PLAIN.test(argument)) return argument;
  if (!CONTROL.test(argument)) return `'${argument.replaceAll("'", String.raw`'\''`)}'`;
  // A pasted control character reaches the terminal before the shell: it is spelt out.
  const spelt = [...argument].map((char) =>
    CONTROL.test(char) ? "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0") : char.replace(/['\\]/, String.raw`\$&`),
  );
  return `$'${spelt.join("")}'`;
}

function command(program: string, args: string[]): string {
  return [program, ...args.map(quoted)].join(" ");
}

/** Returns a command of kubectl in a workspace. */
export function kubectl(workspace: string, ...args: string[]): string {
  return command("kubectl", ["--server", `${window.location.origin}/clusters/${workspace}`, ...args]);
}

/** Returns a command of kubectl that reads a document of the server. */
export function kubectlRaw(path: string): string {
  return command("kubectl", ["--server", window.location.origin, "get", "--raw", path]);
}

/** Returns a command of the program. */
export function insula(...args: string[]): string {
  return command("insula", args);
}

/** Returns the arguments of kubectl that name an object, whatever its name begins with. */
export function objectArgs(type: string, name: string): string[] {
  return name.startsWith("-") ? [`${type}/${name}`] : [type, name];
}
