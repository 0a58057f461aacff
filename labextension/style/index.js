// One style sheet of all our files; those that JupyterLab's builder would make one by one bring more script than style.
import bars from './bars.raw.css';
import base from './base.raw.css';
import card from './card.raw.css';
import contrast from './contrast.raw.css';
import details from './details.raw.css';
import panel from './panel.raw.css';
import queue from './queue.raw.css';

const sheet = document.createElement('style');
sheet.textContent = [base, panel, bars, queue, details, card, contrast].join('');
document.head.append(sheet);
