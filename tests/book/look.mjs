// Looks at pages of the built book in a browser: axe, wide parts, search, and a screenshot of each.
//
//     .ci/book /tmp/book && (cd /tmp/book && python3 -m http.server 8765 --bind 127.0.0.1 &)
//     npm install --no-save axe-core puppeteer-core
//     node tests/book/look.mjs http://127.0.0.1:8765/ SHOTS guarantees.html reference/cli.html
//
// CHROMIUM names the browser. Exit code 1: a serious violation, a page wider than the screen, or a
// search without a result.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import puppeteer from 'puppeteer-core';

const [base, shots, ...paths] = process.argv.slice(2);
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
let bad = 0;
fs.mkdirSync(shots, { recursive: true });
for (const path of paths) {
  for (const width of [1280, 390]) {
    for (const theme of ['light', 'navy']) {
      const page = await browser.newPage();
      await page.setViewport({ width, height: 900, isMobile: width < 500 });
      await page.evaluateOnNewDocument((name) => localStorage.setItem('mdbook-theme', name), theme);
      await page.goto(base + path, { waitUntil: 'networkidle0' });
      await page.screenshot({ path: `${shots}/${path.replaceAll('/', '_')}-${width}-${theme}.png` });
      const extra = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => axe.run(document));
      const serious = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
      bad += serious.length + (extra > 0);
      const found = violations.map(({ impact, id, nodes }) => `${impact} ${id} x${nodes.length}`);
      console.log(path, width, theme, `${extra} px too wide;`, found.join(', ') || 'no violation');
      await page.close();
    }
  }
}
const page = await browser.newPage();
await page.goto(base + paths[0], { waitUntil: 'networkidle0' });
await page.keyboard.press('s');
await page.waitForSelector('#mdbook-searchbar', { visible: true });
await page.type('#mdbook-searchbar', 'embargo');
const result = '#mdbook-searchresults li a';
await page.waitForSelector(result, { timeout: 15000 }).catch(() => (bad += 1));
console.log('search:', await page.$$eval(result, (links) => links.map((link) => link.textContent)[0]));
await browser.close();
process.exit(bad ? 1 : 0);
