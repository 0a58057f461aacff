// Makes JupyterLab and Notebook 7 draw our job cards; their content is text only, hence safe.

import { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { JobRenderer, MIME } from './jobcard';

const extension: IRenderMime.IExtension = {
  id: 'jupyter-gpusched:card',
  description: 'Draws GPU jobs below the cells that submitted them.',
  rendererFactory: { safe: true, mimeTypes: [MIME], createRenderer: () => new JobRenderer() },
  rank: -20, // before a widget's view in the same bundle
  dataType: 'json'
};

export default extension;
