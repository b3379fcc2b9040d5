// Before the first drawing: the reader's theme, and a mark by which the style knows that the page has scripts.
"use strict";

document.documentElement.dataset.script = "";
try {
  const theme = localStorage.getItem("logforensics-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // storage may be forbidden for local files
}
