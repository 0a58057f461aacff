// Our own icon; all others are JupyterLab's.

import { LabIcon } from '@jupyterlab/ui-components';

export const gpuIcon = new LabIcon({
  name: 'jupyter-gpusched:gpu',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
    '<path class="jp-icon3" fill="#616161" d="M3 5h1v14H3zM5 7h16v9H5zm5 2a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z' +
    'm7 0a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM7 17h8v2H7z" fill-rule="evenodd"/></svg>'
});
