// Our own icons, in JupyterLab's two greys.

import { LabIcon } from '@jupyterlab/ui-components';

/** A graphics card with a triangle: run this on a GPU. */
export const runOnGpuIcon = new LabIcon({
  name: 'jupyter-gpusched:run',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
    '<path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="M3 4h1v16H3zM5 6h16v6.2l-2-1.2V8H7v8h6v2H5z' +
    'M8 19h4v2H8zM10 9.500a2.500 2.500 0 1 0 0 5a2.500 2.500 0 0 0 0-5z"/>' +
    '<path class="jp-icon3" fill="#616161" d="M15 12.500v9l7.500-4.500z"/></svg>'
});
