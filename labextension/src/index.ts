// The plugins of this extension; each says in its own file what it adds.

import { plugin as panel } from './plugin';

export default [panel];
