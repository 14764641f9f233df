// Small helpers for SVG made in code. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

/** Return a new SVG element with attributes and children; a string becomes its text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Return a picture of so many pixels that says what it shows. */
export function picture(width, height, label) {
  const size = { viewBox: `0 0 ${width} ${height}`, width, height };
  return make("svg", { ...size, role: "img", "aria-label": label });
}
