// A Headlamp around a page for tests: its store, its router and an API server that answers with objects of a real cluster.
import { lightTheme } from '@kinvolk/headlamp-plugin/lib/components/App/defaultAppThemes';
import { createMuiTheme } from '@kinvolk/headlamp-plugin/lib/lib/themes';
import store from '@kinvolk/headlamp-plugin/lib/redux/stores/store';
import { ThemeProvider } from '@mui/material';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { configure, render } from '@testing-library/react';
import { mkdirSync, writeFileSync } from 'fs';
import { join } from 'path';
import { ReactElement } from 'react';
import { Provider } from 'react-redux';
import { MemoryRouter, Route } from 'react-router-dom';
import { afterEach, expect, vi } from 'vitest';
import objects from './examples/objects.json';

export const API_VERSION = 'volferry.dev/v1alpha1';

// A busy machine may need long for what takes moments.
const PATIENCE_MS = 60_000;
configure({ asyncUtilTimeout: PATIENCE_MS });
vi.setConfig({ testTimeout: 2 * PATIENCE_MS });

/** Returns what the API server knows of a kind. */
export function all(kind: string): any[] {
  return objects.items.filter(item => item.kind === kind);
}

/** Answers requests of lists and of single objects. */
function answer(url: string): unknown {
  const [plural, name] =
    url
      .replace(/\?.*/, '')
      .split(`${API_VERSION}/`)[1]
      ?.replace(/^namespaces\/[^/]+\//, '')
      .split('/') ?? [];
  const kinds = [...new Set(objects.items.map(item => item.kind))];
  const kind = kinds.find(one => `${one.toLowerCase()}s` === plural);
  if (!kind) {
    return { kind: 'List', apiVersion: 'v1', metadata: {}, items: [] };
  }
  const items = all(kind);
  return name
    ? items.find(item => item.metadata.name === name)
    : { kind: `${kind}List`, apiVersion: API_VERSION, metadata: { resourceVersion: '1' }, items };
}

/** Answers a request of the browser's database. */
function answered(result: unknown) {
  return {
    set onsuccess(told: (event: unknown) => void) {
      queueMicrotask(() => told({ target: { result } }));
    },
  };
}

/** A database with no kubeconfigs, in which Headlamp looks before it asks the API server. */
const database = {
  transaction: () => ({ objectStore: () => ({ openCursor: () => answered(null) }) }),
};

/** A watch on which nothing changes. */
class NoChanges extends EventTarget {
  close() {}
}

/** Shows a page at an address of the cluster `main`. */
export function show(page: ReactElement, path: string, address: string) {
  // Headlamp would show one and the same age everywhere.
  vi.stubEnv('UNDER_TEST', '');
  vi.stubGlobal('fetch', async (url: string) => new Response(JSON.stringify(answer(String(url)))));
  vi.stubGlobal('WebSocket', NoChanges);
  vi.stubGlobal('indexedDB', { open: () => answered(database) });
  window.history.pushState({}, '', `/c/main${address}`);
  return render(
    <Provider store={store}>
      <QueryClientProvider client={new QueryClient()}>
        <ThemeProvider theme={createMuiTheme(lightTheme)}>
          <MemoryRouter initialEntries={[`/c/main${address}`]}>
            <Route path={`/c/:cluster${path}`}>{page}</Route>
          </MemoryRouter>
        </ThemeProvider>
      </QueryClientProvider>
    </Provider>
  );
}

// Keeps what a test shows, for a browser.
afterEach(() => {
  const folder = process.env.PAGES;
  if (folder) {
    const name = expect.getState().currentTestName?.replace(/\W+/g, '-');
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `${name}.html`), document.documentElement.outerHTML);
  }
});
