// Dark, light, or as the system has it; remembered in this browser.

const THEMES = ["system", "light", "dark"];

/** Make a button go from theme to theme. */
export function themes(button) {
  const set = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    localStorage.setItem("theme", theme);
  };
  let theme = localStorage.getItem("theme");
  if (!THEMES.includes(theme)) theme = "system";
  set(theme);
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    set(theme);
  });
}
