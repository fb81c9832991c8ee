"""What is asked of a page in the browser: expressions in JavaScript that give plain values."""

UNFOLD = "document.querySelectorAll('details').forEach(one => one.open = true)"

MARKS = """
Object.fromEntries([...document.querySelectorAll('figure[data-chart]')].map(figure => {
  const seen = [...figure.querySelectorAll('svg [id*="-mark-"]')].filter(mark => {
    const box = mark.getBoundingClientRect();
    return box.width + box.height > 0;
  });
  const cells = [...figure.querySelectorAll('svg image')].filter(
    image => image.getBoundingClientRect().width > 50);
  return [figure.dataset.chart, [seen.length, cells.length]];
}))
"""
"""Of each chart: how many marks, and how many pictures of cells, take up room."""

FAINT = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => below.map((c, i) => top[i] * top[3] + c * (1 - top[3]));
  const ground = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement)
      layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = colour => {
    const [r, g, b] = colour.map(c => c / 255).map(
      c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = {looked: 0, faint: []};
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, words = texts.currentNode.data.trim();
    if (!words || !element.getClientRects().length || element.closest('title, desc, style'))
      continue;
    const style = getComputedStyle(element), below = ground(element);
    const colour = over(rgba(element.closest('svg') ? style.fill : style.color), below);
    const [low, high] = [light(colour), light(below)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    found.looked += 1;
    if (ratio < 4.5) found.faint.push([words.slice(0, 40), ratio]);
  }
  return found;
})()
"""
"""How many texts there are, and which stand out from what is behind them by less than 4.5 : 1."""

WIDER = """
[...document.querySelectorAll('body *')].filter(element => !element.closest('.wide, svg'))
  .filter(element => element.getBoundingClientRect().right > 400.5)
  .map(element => element.outerHTML.slice(0, 120))
"""
"""What reaches beyond a page of 400 pixels; a wide table scrolls by itself."""

HIDDEN = """
[...document.querySelectorAll('details *')].filter(
  element => !element.closest('svg') &&
    !element.checkVisibility({contentVisibilityProperty: true, contentVisibilityAuto: true}))
  .map(element => element.outerHTML.slice(0, 120))
"""
"""What nobody sees of that which can be folded away."""

HEADINGS = "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(one => Number(one.tagName[1]))"

IDS_TWICE = """
[...document.querySelectorAll('[id]')].map(one => one.id)
  .filter((id, at, all) => all.indexOf(id) !== at)
"""

LANDMARKS = "['header', 'main', 'footer'].map(tag => document.querySelectorAll(tag).length)"
