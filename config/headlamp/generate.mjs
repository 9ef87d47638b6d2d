// Writes what the plugin has from other parts of the repository, the types of the CRDs and what the runbook says to do about each reason, so
// that nothing is told twice: `node generate.mjs REPOSITORY FOLDER`.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { load } from 'js-yaml';

const [repository, out] = process.argv.slice(2);

/** Returns the files of a folder by their names. */
function filesIn(folder) {
  const path = join(repository, folder);
  return readdirSync(path).map(name => [name, readFileSync(join(path, name), 'utf8')]);
}

/** Returns the type of a schema. A field that the schema does not require may be absent. */
function typeOf(schema) {
  switch (schema?.type) {
    case 'string':
      return schema.enum ? schema.enum.filter(Boolean).map(word => JSON.stringify(word)).join(' | ') : 'string';
    case 'integer':
    case 'number':
      return 'number';
    case 'boolean':
      return 'boolean';
    case 'array':
      return `Array<${typeOf(schema.items)}>`;
    case 'object':
      return objectOf(schema);
    default:
      return 'unknown';
  }
}

function objectOf({ properties, additionalProperties, required = [] }) {
  if (!properties) {
    return `Record<string, ${typeOf(additionalProperties)}>`;
  }
  const field = ([name, schema]) => `${name}${required.includes(name) ? '' : '?'}: ${typeOf(schema)};`;
  return `{ ${Object.entries(properties).map(field).join(' ')} }`;
}

const types = filesIn('crds').map(([, text]) => {
  const { names, versions } = load(text).spec;
  const { spec, status } = versions[0].schema.openAPIV3Schema.properties;
  return `export interface ${names.kind}Fields { spec: ${typeOf(spec)}; status?: ${typeOf(status)}; }\n`;
});
const hints = filesIn('docs/src/reference/runbooks').map(([name, text]) => {
  const words = text.split('## What to do')[1] ?? '';
  return [name.replace('.md', ''), words.replaceAll('`', '').replace(/\s+/g, ' ').trim()];
});
mkdirSync(out, { recursive: true });
writeFileSync(join(out, 'crds.d.ts'), types.join(''));
writeFileSync(join(out, 'runbook.json'), JSON.stringify(Object.fromEntries(hints)));
