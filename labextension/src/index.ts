// The plugins of this extension; each says in its own file what it adds.

import card from './cardplugin';
import { plugin as panel } from './plugin';
import toolbar from './toolbar';

export default [card, panel, toolbar];
