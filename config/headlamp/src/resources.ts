// The kinds of Volferry, with their fields as the CRDs have them.
import { makeCustomResourceClass } from '@kinvolk/headlamp-plugin/lib/Crd';
import {
  SyncEndpointFields,
  SyncJobFields,
  SyncJobSetFields,
  SyncRunFields,
} from '../generated/crds';

/** Returns the address of a kind's list. */
export function listOf(kind: string): string {
  return `/volferry/${kind.toLowerCase()}s`;
}

/** Returns the route of the page of one object. */
export function pageOf(kind: string): string {
  return `${listOf(kind)}/:namespace/:name`;
}

function base<Fields extends { spec: unknown; status?: unknown }>(kind: string) {
  const Resource = makeCustomResourceClass({
    apiInfo: [{ group: 'volferry.dev', version: 'v1alpha1' }],
    kind,
    singularName: kind.toLowerCase(),
    pluralName: `${kind.toLowerCase()}s`,
    isNamespaced: true,
  });
  return class extends Resource {
    static get detailsRoute() {
      return pageOf(kind);
    }

    get spec(): Fields['spec'] {
      return this.jsonData.spec;
    }

    get status(): Fields['status'] {
      return this.jsonData.status;
    }
  };
}

export class SyncJob extends base<SyncJobFields>('SyncJob') {}
export class SyncRun extends base<SyncRunFields>('SyncRun') {}
export class SyncEndpoint extends base<SyncEndpointFields>('SyncEndpoint') {}
export class SyncJobSet extends base<SyncJobSetFields>('SyncJobSet') {}

export type JobStatus = NonNullable<SyncJobFields['status']>;
export type Report = NonNullable<JobStatus['lastRun']>;
export type Timings = NonNullable<Report['timings']>;
export type PastRun = NonNullable<JobStatus['history']>[number];
export type Condition = NonNullable<JobStatus['conditions']>[number];
export type Progress = NonNullable<NonNullable<SyncRunFields['status']>['progress']>;
