// The official JavaScript client against a workspace: typed, custom and any objects, patches, watches, informers.
//
// KUBECONFIG leads to a workspace of its own, where the widgets of two versions are bound; the argument is the definition of lamps.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import * as k8s from '@kubernetes/client-node';

const lamps = { group: 'house.example.io', version: 'v1', namespace: 'default', plural: 'lamps' };
const path = '/apis/house.example.io/v1/namespaces/default/lamps';
const as = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);
const { JsonPatch, MergePatch, ServerSideApply, StrategicMergePatch } = k8s.PatchStrategy;

const lamp = (name, spec) => ({ apiVersion: 'house.example.io/v1', kind: 'Lamp', metadata: { name, namespace: 'default' }, spec });

async function until(what, ask) {
  for (const deadline = Date.now() + 30_000; ; await sleep(20)) {
    if (await ask()) return;
    assert(Date.now() < deadline, `waited in vain until ${what}`);
  }
}

/** The Status of a refusal with this code. */
async function refused(code, promise) {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.code, code, error.body);
    return typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
  }
  assert.fail(`not refused with ${code}`);
}

async function install(config, file) {
  // Its models have other names than the wire (`_default`), which only its own reader of manifests knows.
  const definition = k8s.loadYaml(await readFile(file, 'utf8'));
  const api = config.makeApiClient(k8s.ApiextensionsV1Api);
  await api.createCustomResourceDefinition({ body: definition });
  await until('it is established', async () => {
    const found = await api.readCustomResourceDefinition({ name: definition.metadata.name });
    return found.status?.conditions?.some(({ type, status }) => type === 'Established' && status === 'True');
  });
}

async function typed(config) {
  const core = config.makeApiClient(k8s.CoreV1Api);
  const namespace = 'default';
  const made = await core.createNamespacedConfigMap({ namespace, body: { metadata: { generateName: 'map-' }, data: { a: 'b' } } });
  const { name } = made.metadata;
  assert(made.metadata.creationTimestamp instanceof Date && name.startsWith('map-'));
  await core.patchNamespacedConfigMap({ namespace, name, body: { data: { c: 'd' } } }, as(StrategicMergePatch));
  await core.patchNamespacedConfigMap({ namespace, name, body: [{ op: 'remove', path: '/data/a' }] }, as(JsonPatch));
  assert.deepEqual((await core.readNamespacedConfigMap({ namespace, name })).data, { c: 'd' });
  assert.equal((await refused(409, core.replaceNamespacedConfigMap({ namespace, name, body: made }))).reason, 'Conflict');
  await core.deleteNamespacedConfigMap({ namespace, name });
  assert.equal((await refused(404, core.readNamespacedConfigMap({ namespace, name }))).details.name, name);
  assert((await core.listNamespace()).items.some((item) => item.metadata.name === 'default'));
  const groups = await config.makeApiClient(k8s.ApisApi).getAPIVersions();
  assert(groups.groups.some((group) => group.name === 'house.example.io'));
}

async function custom(config) {
  const api = config.makeApiClient(k8s.CustomObjectsApi);
  const made = await api.createNamespacedCustomObject({ ...lamps, body: lamp('a', { watts: 5 }) });
  assert.deepEqual(made.spec, { watts: 5, colour: 'white' });
  const invalid = await refused(422, api.createNamespacedCustomObject({ ...lamps, body: lamp('b', { watts: -1 }) }));
  assert.equal(invalid.details.causes[0].field, 'spec.watts');
  const name = 'a';
  const merged = await api.patchNamespacedCustomObject({ ...lamps, name, body: { spec: { watts: 6 } } }, as(MergePatch));
  assert.equal(merged.metadata.generation, 2);
  const replace = [{ op: 'replace', path: '/spec/watts', value: 7 }];
  await api.patchNamespacedCustomObject({ ...lamps, name, body: replace }, as(JsonPatch));
  await api.patchNamespacedCustomObjectStatus({ ...lamps, name, body: { status: { phase: 'On' } } }, as(MergePatch));
  await api.patchNamespacedCustomObjectScale({ ...lamps, name, body: { spec: { replicas: 2 } } }, as(MergePatch));
  const now = await api.getNamespacedCustomObject({ ...lamps, name });
  assert.deepEqual([now.spec, now.status], [{ watts: 7, colour: 'white', replicas: 2 }, { phase: 'On' }]);
  await refused(409, api.replaceNamespacedCustomObject({ ...lamps, name, body: made }));
  const strict = { ...lamps, body: lamp('c', { wats: 1 }), fieldValidation: 'Strict' };
  assert.match((await refused(400, api.createNamespacedCustomObject(strict))).message, /unknown field "spec.wats"/);
  const apply = (manager, spec, more) =>
    api.patchNamespacedCustomObject({ ...lamps, name: 's', body: lamp('s', spec), fieldManager: manager, ...more }, as(ServerSideApply));
  await apply('one', { watts: 5 });
  const conflict = await refused(409, apply('two', { watts: 9 }));
  assert.deepEqual(conflict.details.causes.map(({ reason, field }) => [reason, field]), [['FieldManagerConflict', '.spec.watts']]);
  assert.equal((await apply('two', { watts: 9 }, { force: true })).spec.watts, 9);
  const page = await api.listNamespacedCustomObject({ ...lamps, limit: 1 });
  const rest = await api.listNamespacedCustomObject({ ...lamps, limit: 1, _continue: page.metadata._continue ?? page.metadata.continue });
  assert.deepEqual([...page.items, ...rest.items].map((item) => item.metadata.name), ['a', 's']);
  await api.deleteCollectionNamespacedCustomObject({ ...lamps });
  assert.deepEqual((await api.listNamespacedCustomObject({ ...lamps })).items, []);
}

/** KubernetesObjectApi: any manifest, by discovery. */
async function any(config) {
  const api = k8s.KubernetesObjectApi.makeApiClient(config);
  const made = await api.create(lamp('any', { watts: 1 }));
  assert.equal(made.spec.colour, 'white');
  const header = { metadata: made.metadata, apiVersion: made.apiVersion, kind: made.kind };
  assert.equal((await api.read(header)).spec.watts, 1);
  const patched = await api.patch(lamp('any', { watts: 2 }), undefined, undefined, 'check', undefined, MergePatch);
  assert.equal(patched.spec.watts, 2);
  const replaced = await api.replace({ ...patched, spec: { watts: 3 } });
  assert.equal(replaced.spec.watts, 3);
  assert.equal((await api.list('house.example.io/v1', 'Lamp', 'default')).items.length, 1);
  await api.create({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'any', namespace: 'default' }, data: { a: 'b' } });
  assert.equal((await api.delete(header)).status, 'Success');
}

async function watched(config) {
  const api = config.makeApiClient(k8s.CustomObjectsApi);
  const { metadata } = await api.listNamespacedCustomObject({ ...lamps });
  const seen = [];
  const options = { resourceVersion: metadata.resourceVersion, allowWatchBookmarks: true };
  let ended = false;
  const aborted = await new k8s.Watch(config).watch(path, options, (phase, object) => seen.push([phase, object.spec?.watts]), () => (ended = true));
  await api.createNamespacedCustomObject({ ...lamps, body: lamp('w', { watts: 1 }) });
  await api.patchNamespacedCustomObject({ ...lamps, name: 'w', body: { spec: { watts: 2 } } }, as(MergePatch));
  await api.deleteNamespacedCustomObject({ ...lamps, name: 'w' });
  await until('three events came', () => seen.length >= 3);
  assert.deepEqual(seen, [['ADDED', 1], ['MODIFIED', 2], ['DELETED', 2]]);
  aborted.abort();
  await until('the watch ended', () => ended);
}

async function informed(config) {
  const api = config.makeApiClient(k8s.CustomObjectsApi);
  await api.createNamespacedCustomObject({ ...lamps, body: lamp('before', {}) });
  const informer = k8s.makeInformer(config, path, () => api.listNamespacedCustomObject({ ...lamps }));
  const seen = [];
  for (const event of ['add', 'update', 'delete']) informer.on(event, (object) => seen.push(`${event} ${object.metadata.name}`));
  await informer.start();
  await api.createNamespacedCustomObject({ ...lamps, body: lamp('after', {}) });
  await api.patchNamespacedCustomObject({ ...lamps, name: 'after', body: { spec: { watts: 1 } } }, as(MergePatch));
  await api.deleteNamespacedCustomObject({ ...lamps, name: 'before' });
  await until('the informer saw everything', () => seen.length >= 4);
  assert.deepEqual(seen, ['add before', 'add after', 'update after', 'delete before']);
  assert.deepEqual(informer.list().map((object) => object.metadata.name), ['after']);
  await informer.stop();
}

/** A bound API in two versions: what one writes, the other reads. */
async function versions(config) {
  const api = config.makeApiClient(k8s.CustomObjectsApi);
  const at = (version) => ({ group: 'example.io', version, namespace: 'default', plural: 'widgets' });
  const body = { apiVersion: 'example.io/v1', kind: 'Widget', metadata: { name: 'a' }, spec: { firstName: 'Bob' } };
  await api.createNamespacedCustomObject({ ...at('v1'), body });
  await api.patchNamespacedCustomObject({ ...at('v2'), name: 'a', body: { spec: { more: 'kept' } } }, as(MergePatch));
  await api.patchNamespacedCustomObject({ ...at('v1'), name: 'a', body: { spec: { firstName: 'Eve' } } }, as(MergePatch));
  const seen = await api.getNamespacedCustomObject({ ...at('v2'), name: 'a' });
  assert.deepEqual(seen.spec, { name: { first: 'Eve' }, more: 'kept' });
}

const config = new k8s.KubeConfig();
config.loadFromDefault();
await install(config, process.argv[2]);
for (const step of [typed, custom, any, watched, informed, versions]) {
  await step(config);
  console.log(`${step.name} passed`);
}
process.exit(0);
