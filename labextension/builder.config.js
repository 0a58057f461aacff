// How the bundle is made beyond what JupyterLab's builder does by itself: style sheets lose blanks and comments.

module.exports = {
  module: {
    rules: [{ test: /\.css$/, enforce: 'pre', loader: 'builtin:lightningcss-loader', options: { minify: true } }]
  }
};
