// page.mjs CHROMIUM URL PID [PICTURES]: writes with the page at URL, which the process PID serves, as somebody would;
// ends that process. PICTURES: a folder for the page's four forms.
import assert from 'node:assert';
import { join } from 'node:path';
import { Browser } from './browser.mjs';

const [program, url, pid, pictures] = process.argv.slice(2);
const browser = new Browser(program);
const text = () => browser.evaluate(`document.getElementById('text').textContent`);
const written =
  `document.getElementById('stop').disabled && document.querySelectorAll('.choice button:enabled').length`;
const alternatives = () =>
  browser.evaluate(`[...document.querySelectorAll('.choice p')].map((p) => p.textContent)`);
const set = (id, value) =>
  browser.evaluate(`document.getElementById('${id}').value = ${JSON.stringify(String(value))}`);
const asked = () =>
  browser.requests.filter((request) => request.postData).map((request) => JSON.parse(request.postData));

try {
  await browser.open(url);
  await browser.until(`document.getElementById('model').textContent`);

  const typed = 'The old house stood on a hill, and nobody had lived there since';
  await browser.evaluate(`document.getElementById('entry').focus()`);
  await browser.type(typed);
  await set('tokens', 40);
  await browser.key('Enter', 2);
  await browser.until(`(${written}) === 3`);
  const three = await alternatives();
  assert.equal(new Set(three).size, 3, 'three different alternatives');
  assert.match(await browser.evaluate(`document.getElementById('speed').textContent`), /^[0-9.]+ tokens\/s$/);
  assert.match(await browser.evaluate(`document.getElementById('size').textContent`), /^[0-9.]+ [KM]iB$/);
  if (pictures)
    for (const [name, width, height] of [['wide', 1200, 660], ['narrow', 390, 844]])
      for (const scheme of ['light', 'dark'])
        await browser.look(join(pictures, `page-${name}-${scheme}.png`), width, height, scheme);
  // Nothing is wider than a narrow window; light and dark differ.
  await browser.look(null, 390, 844, 'light');
  const fits = 'document.documentElement.scrollWidth <= document.documentElement.clientWidth';
  assert(await browser.evaluate(fits), 'narrow');
  const background = `getComputedStyle(document.body).backgroundColor`;
  const light = await browser.evaluate(background);
  await browser.look(null, 1200, 860, 'dark');
  assert.notEqual(await browser.evaluate(background), light);

  await browser.click('.choice:nth-child(2) button');
  assert.equal(await text(), typed + three[1]);

  // On from there: the state behind the alternative is where it begins. Stopped in the middle.
  await set('tokens', 4000);
  await browser.click('#write');
  // The page itself looks, as texts may end within a tenth of a second.
  await browser.evaluate(`new Promise((done) => {
    const look = () => document.querySelectorAll('.choice p')[0]?.textContent.length > 20
      ? done(document.getElementById('stop').click()) : setTimeout(look, 1);
    look();
  })`);
  assert(asked()[1].previous_response_id, 'goes on from a state');
  assert.equal(asked()[1].prompt, '');
  await browser.until(`document.getElementById('note').textContent === 'Stopped.'`);
  const stopped = await alternatives();
  await browser.key('1', 1);
  assert.equal(await text(), typed + three[1] + stopped[0]);
  // What was stopped has no state: it is sent as text behind the last one.
  await set('tokens', 5);
  await browser.click('#write');
  await browser.until(written);
  assert.equal(asked()[2].prompt, stopped[0]);
  assert.equal(asked()[2].previous_response_id, asked()[1].previous_response_id);

  // Back to an earlier point, the alternative that was not taken, and on from it: a fork.
  await browser.click('#points li:nth-child(2) button');
  assert.equal(await text(), typed + three[0]);
  await browser.evaluate(`document.getElementById('entry').focus()`);
  await browser.type(' So it was.');
  await set('count', 1);
  await browser.key('Enter', 2);
  await browser.until(`document.querySelectorAll('.part').length === 4`);
  assert.equal(asked()[3].prompt, ' So it was.');
  assert(asked()[3].previous_response_id && asked()[3].previous_response_id !== asked()[1].previous_response_id);
  assert((await text()).startsWith(typed + three[0] + ' So it was.'));
  // In a list that is longer than its room, the point that the text has reached is in sight.
  await browser.evaluate(`document.getElementById('points').style.maxHeight = '40px'`);
  await browser.click('.part:nth-child(3)');
  const [top, bottom, first, last] = await browser.evaluate(`['#points', '#points .here'].flatMap((name) => {
    const box = document.querySelector(name).getBoundingClientRect();
    return [box.top, box.bottom];
  })`);
  assert(first >= top - 1 && last <= bottom + 1, `the point at ${first} to ${last} in a list at ${top} to ${bottom}`);
  await browser.evaluate(`document.getElementById('points').style.maxHeight = ''`);
  await browser.click('.part');
  assert.equal(await text(), typed);

  process.kill(Number(pid), 'SIGKILL');
  await browser.click('#write');
  await browser.until(`document.getElementById('note').className === 'bad'`);
  assert.deepEqual(browser.errors, []);
  for (const request of browser.requests) assert(request.url.startsWith(url) || request.url === 'data:,', request.url);
  console.log(`${browser.requests.length} requests, none elsewhere`);
} finally {
  await browser.close();
}
