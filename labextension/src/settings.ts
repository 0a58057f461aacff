// Our settings, whose titles and descriptions the settings editor shows in the user's language.
// The server translates schemas only where the language pack of the project is installed, so that we do it here.

import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { trans } from './translation';

const SPOKEN = new Set(['title', 'description', 'jupyter.lab.setting-icon-label']);

/** The settings of a plugin of ours, with every text of its schema translated; the registry waits for this with it. */
export function loadSettings(registry: ISettingRegistry, id: string): Promise<ISettingRegistry.ISettings> {
  registry.transform(id, { fetch: plugin => ({ ...plugin, schema: translated(plugin.schema) }) });
  return registry.load(id);
}

/** A schema, or a part of it, with what a person reads in the user's language. */
export function translated<Part>(part: Part, key = ''): Part {
  if (typeof part === 'string') {
    return (SPOKEN.has(key) ? trans.text(part) : part) as Part;
  }
  if (Array.isArray(part)) {
    return part.map(each => translated<unknown>(each)) as Part;
  }
  if (part !== null && typeof part === 'object') {
    return Object.fromEntries(Object.entries(part).map(([name, each]) => [name, translated<unknown>(each, name)])) as Part;
  }
  return part;
}
