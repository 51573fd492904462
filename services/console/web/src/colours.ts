// Colours for what is drawn on a canvas, where neither variables nor `light-dark()` are known.

/** The colours of the named tokens as they are at `place` in the present theme. */
export function coloursAt<N extends string>(place: HTMLElement, names: readonly N[]): Record<N, string> {
  const probe = document.createElement("span");
  place.append(probe);
  const found = names.map((name) => {
    probe.style.color = `var(--c-${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(found) as Record<N, string>;
}
