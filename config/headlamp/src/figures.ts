// Figures and words as `kubectl volferry` prints them.
import { Condition, JobStatus, PastRun, Progress, SyncJob, Timings } from './resources';

/** The placeholder for a missing value. */
export const NONE = '-';

/** The phases of a run in their order. */
export const PHASES = [
  'queue',
  'podStart',
  'connect',
  'scan',
  'plan',
  'delta',
  'transfer',
  'apply',
  'commit',
  'snapshot',
] as const;

const UNITS = ['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi', 'Ei'];

export function bytes(count: number | undefined): string {
  if (count === undefined || count < 1024) {
    return `${count ?? NONE}`;
  }
  let [value, unit] = [count, 0];
  // 1023.96 would be shown as 1024.0.
  while (value >= 1023.95 && unit + 1 < UNITS.length) {
    [value, unit] = [value / 1024, unit + 1];
  }
  return `${value.toFixed(1)}${UNITS[unit]}`;
}

/** Formats milliseconds in at most two units: `340ms`, `1.2s`, `5m12s`, `2h05m`, `3d04h`. */
export function duration(ms: number | undefined): string {
  if (ms === undefined) {
    return NONE;
  }
  const seconds = Math.max(Math.floor(ms / 1000), 0);
  const padded = (value: number) => `${Math.floor(value)}`.padStart(2, '0');
  if (ms < 1000) {
    return `${Math.max(ms, 0)}ms`;
  } else if (seconds < 60) {
    return `${(Math.floor(ms / 100) / 10).toFixed(1)}s`;
  } else if (seconds < 3600) {
    return `${Math.floor(seconds / 60)}m${padded(seconds % 60)}s`;
  } else if (seconds < 86_400) {
    return `${Math.floor(seconds / 3600)}h${padded((seconds / 60) % 60)}m`;
  }
  return `${Math.floor(seconds / 86_400)}d${padded((seconds / 3600) % 24)}h`;
}

/** Escapes what could make a text look like another one, but for new lines: syncer pods write statuses. */
export function plain(text: string | undefined): string {
  const escaped = (found: string) => `\\u{${found.codePointAt(0)!.toString(16)}}`;
  return (text ?? NONE).replace(/(?!\n)[\p{Cc}\p{Cf}]/gu, escaped);
}

export function state(job: SyncJob): string {
  const phase = job.status?.phase ?? 'Pending';
  if (!job.spec.suspend) {
    return phase;
  }
  const isStarted = !['', 'Queued'].includes(job.status?.activeRun?.stage ?? '');
  return isStarted ? `${phase}, suspended after this run` : 'Suspended';
}

/** Tells how a state or result is drawn. */
export function severity(word: string | undefined): 'success' | 'warning' | 'error' | '' {
  switch (word) {
    case 'Succeeded':
    case 'True':
      return 'success';
    case 'Failed':
    case 'Stalled':
      return 'error';
    case 'PartiallyFailed':
    case 'Canceled':
    case 'Suspended':
      return 'warning';
    default:
      return '';
  }
}

/** Returns how old the copy is, in milliseconds. */
export function lag(status: JobStatus | undefined, now: number): number | undefined {
  return status?.lastSuccessTime === undefined
    ? undefined
    : now - Date.parse(status.lastSuccessTime);
}

export function nextRun(job: SyncJob): string {
  if (job.spec.suspend) {
    return 'none while suspended';
  } else if (!job.spec.schedule) {
    return 'at a change of the spec, or run-now';
  }
  return job.status?.nextRunTime ?? 'not known yet';
}

export function condition(status: { conditions?: Condition[] } | undefined, type: string) {
  return status?.conditions?.find(one => one.type === type);
}

/** Returns each phase that took time, with its share of the whole. */
export function phases(
  timings: Timings | undefined
): { name: string; ms: number; share: number }[] {
  const total = timings?.total || 1;
  const all = PHASES.map(name => ({ name, ms: timings?.[name] ?? 0 }));
  return all.filter(({ ms }) => ms > 0).map(phase => ({ ...phase, share: phase.ms / total }));
}

/** Returns how long a run worked, without its time in the queue and until its pods were there. */
export function worked(timings: Timings | undefined): number | undefined {
  const { total, queue = 0, podStart = 0 } = timings ?? {};
  return total === undefined ? undefined : total - queue - podStart;
}

/** Returns the bytes of changed files for each second of a run's work. */
export function throughput(run: PastRun): number | undefined {
  const ms = worked(run.timings);
  return ms ? Math.round((run.bytesChanged ?? 0) / (ms / 1000)) : undefined;
}

/** Returns how much of a run is done, of 100, and how long the rest takes at its present rate. */
export function done(progress: Progress | undefined): { percent: number; left: string } {
  const { bytes: there = 0, bytesTotal = 0, rate = 0 } = progress ?? {};
  const percent = bytesTotal > 0 ? Math.floor((Math.min(there, bytesTotal) * 100) / bytesTotal) : 0;
  return { percent, left: rate > 0 ? duration(((bytesTotal - there) / rate) * 1000) : NONE };
}
