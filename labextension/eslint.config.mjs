// Faults that the compiler does not see: hooks out of order, promises that nobody awaits, `any`.

import hooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib', 'lib-test', 'node_modules', 'src/wire.ts', '*.mjs'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { project: ['tsconfig.json', 'test/tsconfig.json'], jsxPragma: 'h' } },
    plugins: { 'react-hooks': hooks },
    rules: {
      ...hooks.configs.recommended.rules,
      eqeqeq: 'error',
      'no-restricted-properties': ['error', { property: 'innerHTML', message: 'What users write is text.' }],
      // Numbers in template strings are meant.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // `await` on a function that only sometimes waits keeps one shape.
      '@typescript-eslint/require-await': 'off',
      // The global `JSX` is what JupyterLab's own sources use.
      '@typescript-eslint/no-deprecated': 'off',
      // `() => void doIt()` is how a handler says that nobody waits.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true, ignoreVoidOperator: true }],
      // Lumino's and React's typings declare methods that are used unbound by design.
      '@typescript-eslint/unbound-method': 'off',
      // Types of answers are promises of the server, not proofs: what may be missing is looked at.
      '@typescript-eslint/no-unnecessary-condition': 'off',
      '@typescript-eslint/no-non-null-assertion': 'error'
    }
  },
  {
    files: ['test/**'],
    rules: { '@typescript-eslint/no-floating-promises': 'off' } // node:test's own
  }
);
