// The lists of each kind.
import { Link, ResourceListView } from '@kinvolk/headlamp-plugin/lib/CommonComponents';
import { bytes, condition, duration, lag, NONE, plain, state } from './figures';
import { Reason, State, useNow, When } from './parts';
import { pageOf, SyncEndpoint, SyncJob, SyncJobSet, SyncRun } from './resources';

/** The columns of the condition Ready and its reason. */
const READINESS = [
  {
    id: 'ready',
    label: 'Ready',
    getValue: (one: SyncEndpoint | SyncJobSet) => condition(one.status, 'Ready')?.status ?? '',
    render: (one: SyncEndpoint | SyncJobSet) => (
      <State word={condition(one.status, 'Ready')?.status} />
    ),
  },
  {
    id: 'reason',
    label: 'Reason',
    getValue: (one: SyncEndpoint | SyncJobSet) => condition(one.status, 'Ready')?.reason,
    render: (one: SyncEndpoint | SyncJobSet) => (
      <Reason word={condition(one.status, 'Ready')?.reason} />
    ),
  },
];

export function SyncJobs() {
  const now = useNow();
  return (
    <ResourceListView
      title="SyncJobs"
      resourceClass={SyncJob}
      columns={[
        'name',
        'namespace',
        {
          id: 'state',
          label: 'State',
          getValue: state,
          render: job => <State word={state(job)} />,
        },
        {
          id: 'reason',
          label: 'Reason',
          getValue: job => condition(job.status, 'Ready')?.reason,
          render: job => <Reason word={condition(job.status, 'Ready')?.reason} />,
        },
        {
          id: 'lastRun',
          label: 'Last run',
          getValue: job => job.status?.lastRun?.completionTime ?? '',
          render: job => <When time={job.status?.lastRun?.completionTime} />,
        },
        {
          id: 'duration',
          label: 'Duration',
          getValue: job => job.status?.summary?.duration ?? NONE,
        },
        {
          id: 'lag',
          label: 'Lag',
          getValue: job => lag(job.status, now),
          render: job => <>{duration(lag(job.status, now))}</>,
        },
        { id: 'nextRun', label: 'Next run', getValue: job => job.status?.nextRunTime ?? NONE },
        'age',
      ]}
    />
  );
}

export function SyncRuns() {
  return (
    <ResourceListView
      title="SyncRuns"
      resourceClass={SyncRun}
      columns={[
        'name',
        'namespace',
        {
          id: 'syncJob',
          label: 'SyncJob',
          getValue: run => run.spec.syncJob.name,
          render: run => (
            <Link
              routeName={pageOf('SyncJob')}
              params={{ namespace: run.getNamespace() ?? '', name: run.spec.syncJob.name }}
              activeCluster={run.cluster}
            >
              {run.spec.syncJob.name}
            </Link>
          ),
        },
        { id: 'cause', label: 'Cause', getValue: run => run.spec.cause ?? NONE },
        { id: 'stage', label: 'Stage', getValue: run => run.status?.stage ?? NONE },
        {
          id: 'result',
          label: 'Result',
          getValue: run => run.status?.report?.result ?? '',
          render: run => <State word={run.status?.report?.result} />,
        },
        {
          id: 'reason',
          label: 'Reason',
          getValue: run => condition(run.status, 'Ready')?.reason,
          render: run => <Reason word={condition(run.status, 'Ready')?.reason} />,
        },
        { id: 'files', label: 'Files', getValue: run => run.status?.summary?.files ?? NONE },
        {
          id: 'bytes',
          label: 'Transferred',
          getValue: run => run.status?.summary?.transferred ?? NONE,
        },
        {
          id: 'duration',
          label: 'Duration',
          getValue: run => run.status?.summary?.duration ?? NONE,
        },
        'age',
      ]}
    />
  );
}

export function SyncEndpoints() {
  return (
    <ResourceListView
      title="SyncEndpoints"
      resourceClass={SyncEndpoint}
      columns={[
        'name',
        'namespace',
        { id: 'address', label: 'Address', getValue: end => plain(end.status?.address) },
        { id: 'access', label: 'Access', getValue: end => end.spec.access ?? NONE },
        ...READINESS,
        { id: 'peers', label: 'Peers', getValue: end => end.status?.peers?.length ?? 0 },
        {
          id: 'lastRun',
          label: 'Last run',
          getValue: end => end.status?.lastRun?.completionTime ?? '',
          render: end => <When time={end.status?.lastRun?.completionTime} />,
        },
        {
          id: 'result',
          label: 'Result',
          getValue: end => end.status?.lastRun?.result ?? '',
          render: end => <State word={end.status?.lastRun?.result} />,
        },
        {
          id: 'bytes',
          label: 'On the wire',
          getValue: end => end.status?.lastRun?.bytesOnWire,
          render: end => <>{bytes(end.status?.lastRun?.bytesOnWire)}</>,
        },
        'age',
      ]}
    />
  );
}

export function SyncJobSets() {
  return (
    <ResourceListView
      title="SyncJobSets"
      resourceClass={SyncJobSet}
      columns={[
        'name',
        'namespace',
        ...READINESS,
        { id: 'matched', label: 'Matched', getValue: set => set.status?.matched ?? 0 },
        { id: 'synced', label: 'Synced', getValue: set => set.status?.synced ?? 0 },
        { id: 'running', label: 'Running', getValue: set => set.status?.running ?? 0 },
        { id: 'failed', label: 'Failed', getValue: set => set.status?.failed ?? 0 },
        { id: 'worst', label: 'Worst', getValue: set => plain(set.status?.worst?.name) },
        'age',
      ]}
    />
  );
}
