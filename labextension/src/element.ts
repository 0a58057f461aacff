// What JSX becomes, under a name of one letter: it is called hundreds of times in a bundle that is bounded.

import * as React from 'react';

export const h = React.createElement;
