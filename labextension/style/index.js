import './base.css';
import './panel.css';
import './bars.css';
import './queue.css';
import './details.css';
import './card.css';
import './contrast.css';
