// The pages of one object.
import {
  DetailsGrid,
  NameValueTable,
  SectionBox,
  SimpleTable,
} from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { useParams } from 'react-router-dom';
import {
  bytes,
  condition,
  done,
  duration,
  lag,
  nextRun,
  NONE,
  phases,
  plain,
  state,
  throughput,
  worked,
} from './figures';
import { Bar, Conditions, Message, Reason, State, useNow, When } from './parts';
import {
  JobStatus,
  PastRun,
  Report,
  SyncEndpoint,
  SyncJob,
  SyncJobSet,
  SyncRun,
} from './resources';
import { hint } from './runbook';

type Run = NonNullable<JobStatus['activeRun']>;
type Phase = ReturnType<typeof phases>[number];

export function SyncJobPage() {
  const { name, namespace } = useParams<{ name: string; namespace: string }>();
  return (
    <DetailsGrid
      resourceType={SyncJob}
      name={name}
      namespace={namespace}
      withEvents
      extraInfo={job => (job ? info(job) : null)}
      extraSections={job => sections(job)}
    />
  );
}

/** Shows an object of another kind with its conditions. */
export function ObjectPage({
  resourceType,
}: {
  resourceType: typeof SyncRun | typeof SyncEndpoint | typeof SyncJobSet;
}) {
  const { name, namespace } = useParams<{ name: string; namespace: string }>();
  return (
    <DetailsGrid
      resourceType={resourceType}
      name={name}
      namespace={namespace}
      withEvents
      extraSections={one => [
        <Conditions key="conditions" conditions={one?.jsonData.status?.conditions ?? []} />,
      ]}
    />
  );
}

function info(job: SyncJob) {
  const ready = condition(job.status, 'Ready');
  return [
    { name: 'State', value: <State word={state(job)} /> },
    { name: 'Reason', value: <Reason word={ready?.reason} /> },
    { name: 'Message', value: <Message text={ready?.message} /> },
    { name: 'What to do', value: hint(ready?.reason), hide: (words: unknown) => !words },
    { name: 'Source', value: end(job.spec.source) },
    { name: 'Destination', value: end(job.spec.destination) },
    { name: 'Schedule', value: plain(job.spec.schedule?.cron ?? job.spec.schedule?.interval) },
    { name: 'Last success', value: <When time={job.status?.lastSuccessTime} /> },
    { name: 'Lag', value: <Lag status={job.status} /> },
    { name: 'Next run', value: nextRun(job) },
    { name: 'Snapshots', value: snapshots(job.status), hide: !job.status?.snapshots },
  ];
}

function Lag({ status }: { status: JobStatus | undefined }) {
  return <>{duration(lag(status, useNow()))}</>;
}

/** Names the place of an end, whatever kind of place it is. */
function end(place: SyncJob['spec']['source'] | SyncJob['spec']['destination']): string {
  const claim = place.persistentVolumeClaim;
  if (claim) {
    return [claim.namespace, claim.claimName].filter(Boolean).join('/');
  }
  const { address } = ('endpoint' in place && place.endpoint) || {};
  const [kind] = Object.entries(place).find(([, value]) => typeof value === 'object') ?? [NONE];
  return plain(address ?? kind);
}

function snapshots(status: JobStatus | undefined): string {
  const { count = 0, latest, damaged = 0 } = status?.snapshots ?? {};
  return `${count}, the latest of ${plain(latest)}${
    damaged > 0 ? `, ${damaged} files damaged` : ''
  }`;
}

function sections(job: SyncJob | null) {
  const { activeRun, lastRun, history = [], conditions = [] } = job?.status ?? {};
  return [
    ...(job && activeRun ? [<RunNow key="now" job={job} run={activeRun} />] : []),
    ...(lastRun ? [<LastRun key="last" run={lastRun} />] : []),
    <Conditions key="conditions" conditions={conditions} />,
    <History key="history" runs={history} />,
  ];
}

/** Shows how far the run under way is, as its SyncRun tells. */
function RunNow({ job, run }: { job: SyncJob; run: Run }) {
  const [told] = SyncRun.useGet(run.id, job.getNamespace(), { cluster: job.cluster });
  const progress = told?.status?.progress;
  const { percent, left } = done(progress);
  return (
    <SectionBox title={`Run ${run.id}`}>
      <NameValueTable
        rows={[
          { name: 'Stage', value: run.stage },
          { name: 'Cause', value: run.cause },
          { name: 'Waits for', value: plain(run.message), hide: !run.message },
          { name: 'Phase', value: progress?.phase, hide: !progress },
          { name: `${percent}%`, value: <Bar percent={percent} />, hide: !progress },
          { name: 'Files', value: `${progress?.files}/${progress?.filesTotal}`, hide: !progress },
          {
            name: 'Bytes',
            value: `${bytes(progress?.bytes)}/${bytes(progress?.bytesTotal)}`,
            hide: !progress,
          },
          { name: 'Rate', value: `${bytes(progress?.rate)}/s, ${left} left`, hide: !progress },
        ]}
      />
    </SectionBox>
  );
}

/** Shows where the time of the last run went. */
export function LastRun({ run }: { run: Report }) {
  const { work, rates, bottleneck } = run;
  return (
    <SectionBox title={`Last run: ${run.id}`}>
      <NameValueTable
        rows={[
          { name: 'Result', value: <State word={run.result} /> },
          { name: 'Reason', value: <Reason word={run.reason} />, hide: !run.reason },
          { name: 'Ended', value: <When time={run.completionTime} /> },
          {
            name: 'Throughput',
            value: `${bytes(rates?.bytesPerSecond)}/s, ${rates?.filesPerSecond} files/s`,
            hide: !rates,
          },
          { name: 'Limited by', value: plain(bottleneck?.message), hide: !bottleneck },
          {
            name: 'Files',
            value: `${work?.filesCreated} created, ${work?.filesUpdated} updated, ${work?.filesDeleted} deleted, ${work?.filesFailed} failed`,
            hide: !work,
          },
          {
            name: 'Bytes',
            value: `${bytes(work?.bytesChanged)} changed, ${bytes(work?.bytesOnWire)} on the wire`,
            hide: !work,
          },
        ]}
      />
      <SimpleTable
        data={phases(run.timings)}
        columns={[
          { label: 'Phase', getter: (phase: Phase) => phase.name },
          { label: 'Time', getter: (phase: Phase) => duration(phase.ms) },
          {
            label: 'Share',
            gridTemplate: '3fr',
            getter: (phase: Phase) => <Bar percent={phase.share * 100} />,
          },
        ]}
      />
    </SectionBox>
  );
}

/** Shows the runs that the SyncJob remembers, the newest first. */
export function History({ runs }: { runs: PastRun[] }) {
  const newest = [...runs].sort((a, b) => (b.startTime ?? '').localeCompare(a.startTime ?? ''));
  return (
    <SectionBox title="History">
      <SimpleTable
        emptyMessage="No run has ended yet."
        data={newest}
        columns={[
          { label: 'Run', getter: (run: PastRun) => run.id },
          { label: 'Result', getter: (run: PastRun) => <State word={run.result} /> },
          { label: 'Reason', getter: (run: PastRun) => <Reason word={run.reason} /> },
          { label: 'Kind', getter: (run: PastRun) => run.kind ?? NONE },
          { label: 'Started', getter: (run: PastRun) => <When time={run.startTime} /> },
          { label: 'Worked', getter: (run: PastRun) => duration(worked(run.timings)) },
          { label: 'Files', getter: (run: PastRun) => `${run.filesChanged}/${run.filesScanned}` },
          { label: 'Changed', getter: (run: PastRun) => bytes(run.bytesChanged) },
          { label: 'On the wire', getter: (run: PastRun) => bytes(run.bytesOnWire) },
          { label: 'Throughput', getter: (run: PastRun) => rate(run) },
        ]}
      />
    </SectionBox>
  );
}

function rate(run: PastRun): string {
  const speed = throughput(run);
  return speed ? `${bytes(speed)}/s` : NONE;
}
