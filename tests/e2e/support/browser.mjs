// A real browser, where the machine has one: Chromium or Chrome.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PLACES = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
];

/** The path of the browser, or undefined. */
export const browserPath = PLACES.find((place) => place && existsSync(place));

/** A headless browser that asks nothing of the internet. */
export const startBrowser = () =>
  chromium.launch({
    executablePath: browserPath,
    // Chromium refuses to run its sandbox as root.
    chromiumSandbox: process.getuid?.() !== 0,
    args: ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"],
  });
