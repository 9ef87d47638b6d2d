// Registers the entries of the side bar and the pages.
import { registerRoute, registerSidebarEntry } from '@kinvolk/headlamp-plugin/lib';
import { ReactElement } from 'react';
import { ObjectPage, SyncJobPage } from './detail';
import { SyncEndpoints, SyncJobs, SyncJobSets, SyncRuns } from './lists';
import { listOf, pageOf, SyncEndpoint, SyncJobSet, SyncRun } from './resources';

function register(kind: string, list: () => ReactElement, page: () => ReactElement) {
  registerSidebarEntry({ parent: 'volferry', name: kind, label: `${kind}s`, url: listOf(kind) });
  const pages = [
    { path: listOf(kind), component: list },
    { path: pageOf(kind), component: page },
  ];
  pages.forEach(one => registerRoute({ ...one, name: one.path, sidebar: kind, exact: true }));
}

registerSidebarEntry({
  parent: null,
  name: 'volferry',
  label: 'Volferry',
  url: listOf('SyncJob'),
  icon: 'mdi:ferry',
});
register('SyncJob', SyncJobs, SyncJobPage);
register('SyncRun', SyncRuns, () => <ObjectPage resourceType={SyncRun} />);
register('SyncEndpoint', SyncEndpoints, () => <ObjectPage resourceType={SyncEndpoint} />);
register('SyncJobSet', SyncJobSets, () => <ObjectPage resourceType={SyncJobSet} />);
