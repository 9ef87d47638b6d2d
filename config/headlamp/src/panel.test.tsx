// Each page in a real DOM, with objects as a cluster's API server wrote them.
import { screen, within } from '@testing-library/react';
import { vi } from 'vitest';
import { ObjectPage, SyncJobPage } from './detail';
import { bytes, duration, lag, phases, plain, throughput } from './figures';
import { SyncEndpoints, SyncJobs, SyncJobSets, SyncRuns } from './lists';
import { listOf, pageOf, SyncRun } from './resources';
import { address, hint } from './runbook';
import { all, show } from './stage';

/** Returns the text of each cell of the row that has this text in one. */
async function row(text: string): Promise<string[]> {
  const cell = await screen.findByText(text);
  const cells = within(cell.closest('tr')!).getAllByRole('cell');
  return cells.map(one => one.textContent ?? '');
}

function pathOf(kind: string, object: { metadata: { namespace: string; name: string } }): string {
  return `${listOf(kind)}/${object.metadata.namespace}/${object.metadata.name}`;
}

/** Returns an object for which something holds. */
function one(kind: string, holds: (object: any) => unknown) {
  const found = all(kind).find(holds);
  expect(found, `a ${kind} among the examples`).toBeTruthy();
  return found;
}

afterEach(() => {
  vi.useRealTimers();
});

describe('lists', () => {
  const lists = {
    SyncJob: SyncJobs,
    SyncRun: SyncRuns,
    SyncEndpoint: SyncEndpoints,
    SyncJobSet: SyncJobSets,
  };
  it.each(Object.entries(lists))('show each %s', async (kind, List) => {
    show(<List />, listOf(kind), listOf(kind));
    expect(all(kind).length).toBeGreaterThan(0);
    for (const object of all(kind)) {
      const cells = await row(object.metadata.name);
      expect(cells).toContain(object.metadata.namespace);
    }
  });

  it('say how a SyncJob is, how old its copy is, and why it does not go on', async () => {
    const good = one('SyncJob', it => it.status.phase === 'Succeeded');
    const bad = one('SyncJob', it => it.status.phase === 'Stalled');
    vi.useFakeTimers({
      toFake: ['Date'],
      now: Date.parse(good.status.lastSuccessTime) + 3_660_000,
    });
    show(<SyncJobs />, listOf('SyncJob'), listOf('SyncJob'));
    const cells = await row(good.metadata.name);
    expect(cells).toContain('Succeeded');
    expect(cells).toContain(good.status.summary.duration);
    expect(cells, 'its lag').toContain('1h01m');
    const { reason } = bad.status.conditions.find((it: any) => it.type === 'Ready');
    expect(await row(bad.metadata.name)).toContain(reason);
    expect(screen.getByText(reason).getAttribute('href')).toBe(address(reason));
  });
});

describe('the page of a SyncJob', () => {
  it('shows the phases of the last run, its history and its conditions', async () => {
    const job = one('SyncJob', it => it.status.phase === 'Succeeded');
    show(<SyncJobPage />, pageOf('SyncJob'), pathOf('SyncJob', job));
    const { lastRun, history, conditions } = job.status;
    expect(await screen.findByText(`Last run: ${lastRun.id}`)).toBeTruthy();
    for (const phase of phases(lastRun.timings)) {
      expect((await row(phase.name))[1]).toBe(duration(phase.ms));
    }
    expect(await row(history[0].id)).toContain(
      `${history[0].filesChanged}/${history[0].filesScanned}`
    );
    for (const condition of conditions) {
      expect(
        screen.getAllByText((_, it) => it?.textContent === condition.message).length
      ).toBeGreaterThan(0);
    }
  });

  it('says what to do about a condition', async () => {
    const job = one('SyncJob', it => it.status.phase === 'Stalled');
    const { reason } = job.status.conditions.find((it: any) => it.type === 'Ready');
    show(<SyncJobPage />, pageOf('SyncJob'), pathOf('SyncJob', job));
    expect((await screen.findAllByText(hint(reason)!)).length).toBeGreaterThan(0);
    expect(screen.getAllByText(reason)[0].getAttribute('href')).toBe(address(reason));
  });

  it('shows how far a run under way is', async () => {
    const run = one('SyncRun', it => it.status?.progress);
    const job = one('SyncJob', it => it.status.activeRun?.id === run.metadata.name);
    show(<SyncJobPage />, pageOf('SyncJob'), pathOf('SyncJob', job));
    expect(await screen.findByText(`Run ${run.metadata.name}`)).toBeTruthy();
    expect(await screen.findByText(run.status.progress.phase)).toBeTruthy();
    expect(
      screen.getByText(`${run.status.progress.files}/${run.status.progress.filesTotal}`)
    ).toBeTruthy();
  });
});

it('shows the conditions of other kinds', async () => {
  const run = one('SyncRun', it => it.status?.conditions?.length);
  show(<ObjectPage resourceType={SyncRun} />, pageOf('SyncRun'), pathOf('SyncRun', run));
  expect(await screen.findByText(run.status.conditions[0].message)).toBeTruthy();
});

it('shows text of a status as it is', async () => {
  expect(plain('a\u202eb\n\tc')).toBe('a\\u{202e}b\n\\u{9}c');
  expect(address('../../evil')).toBeUndefined();
  expect(hint('Succeeded')).toBeUndefined();
});

it('formats figures as kubectl volferry does', () => {
  const counts = [0, 1023, 1024, 20_873_216, 2 ** 40, 2 ** 64, 2 ** 20 - 1];
  expect(counts.map(bytes)).toEqual(['0', '1023', '1.0Ki', '19.9Mi', '1.0Ti', '16.0Ei', '1.0Mi']);
  const times = [0, 999, 1000, 59_999, 60_000, 312_400, 7_500_000, 273_600_000];
  const shown = ['0ms', '999ms', '1.0s', '59.9s', '1m00s', '5m12s', '2h05m', '3d04h'];
  expect(times.map(duration)).toEqual(shown);
  expect(
    lag({ lastSuccessTime: '2026-11-26T19:00:00Z' } as any, Date.parse('2026-11-26T20:00:00Z'))
  ).toBe(3_600_000);
  const run = { bytesChanged: 1000, timings: { queue: 5000, podStart: 3000, total: 10_000 } };
  expect(throughput(run as any)).toBe(500);
});
