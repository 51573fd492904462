// Light, dark, or as the system has it.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const THEMES: readonly Theme[] = ["system", "light", "dark"];
const KEY = "sparkfleet-theme";

function stored(): Theme {
  try {
    const found = localStorage.getItem(KEY) as Theme | null;
    return found !== null && THEMES.includes(found) ? found : "system";
  } catch {
    return "system";
  }
}

export const theme = signal<Theme>(stored());
/** Counts up whenever colours change, for what is drawn on a canvas. */
export const painted = signal(0);

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length]!;
}

export function startTheme(): void {
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
    try {
      localStorage.setItem(KEY, theme.value);
    } catch {
      // A browser without storage forgets the choice.
    }
    painted.value = painted.peek() + 1;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (painted.value = painted.peek() + 1));
}
