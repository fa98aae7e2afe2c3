// In place of the dashboard, where the npm packages that it is made of were missing.
document.getElementById("app").textContent =
  "This Worker was built without its dashboard: `npm run build` makes it. The API below /agents/ is there.";
