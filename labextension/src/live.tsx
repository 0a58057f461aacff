// A widget that follows the store only while it can be seen.

import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';

import { h } from './element';
import { Shown } from './hooks';

export abstract class LiveWidget extends ReactWidget {
  protected abstract draw(): JSX.Element;

  protected render(): JSX.Element {
    return <Shown.Provider value={this.isVisible}>{this.draw()}</Shown.Provider>;
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  protected onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.update();
  }
}
