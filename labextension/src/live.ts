// A widget that follows the store only while it can be seen.

import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';

export abstract class LiveWidget extends ReactWidget {
  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  protected onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.update();
  }
}
