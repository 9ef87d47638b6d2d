// What the runbook says about a reason.
import hints from '../generated/runbook.json';

const ADDRESS = 'https://github.com/volferry/volferry/blob/main/docs/src/reference/runbooks';
const byReason = new Map<string, string>(Object.entries(hints));

/** Returns where the page of a reason is; nothing for a word that the runbook does not know. */
export function address(reason: string | undefined): string | undefined {
  return reason !== undefined && byReason.has(reason) ? `${ADDRESS}/${reason}.md` : undefined;
}

/** Returns what to do; nothing if nothing has to be done. */
export function hint(reason: string | undefined): string | undefined {
  const words = byReason.get(reason ?? '');
  return words === 'Nothing.' ? undefined : words;
}
