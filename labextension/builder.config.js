// How the bundle is made beyond what JupyterLab's builder does by itself: style sheets lose blanks and comments, and
// scripts are shortened for the browsers that JupyterLab 4 runs in.

const { SwcJsMinimizerRspackPlugin } = require('@rspack/core'); // the builder's own

const ecma = 2020;

module.exports = {
  module: {
    rules: [{ test: /\.css$/, enforce: 'pre', loader: 'builtin:lightningcss-loader', options: { minify: true } }]
  },
  optimization: {
    minimizer: [
      new SwcJsMinimizerRspackPlugin({
        minimizerOptions: { ecma, compress: { ecma, passes: 3 }, mangle: true, format: { ecma, comments: false } }
      })
    ]
  }
};
