// browser.mjs: a headless Chromium of the test's own, spoken to in the DevTools protocol through two pipes.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export class Browser {
  constructor(program) {
    this.folder = mkdtempSync(join(tmpdir(), 'browser-'));
    this.child = spawn(program, ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage',
      '--no-first-run', '--hide-scrollbars', '--remote-debugging-pipe', `--user-data-dir=${this.folder}`,
      'about:blank'],
      { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    this.waiting = new Map();
    this.requests = [];
    this.errors = [];
    this.serial = 0;
    let rest = Buffer.alloc(0);
    this.child.stdio[4].on('data', (data) => {
      rest = Buffer.concat([rest, data]);
      for (let end; (end = rest.indexOf(0)) >= 0; rest = rest.subarray(end + 1))
        this.receive(JSON.parse(rest.subarray(0, end)));
    });
    this.child.on('exit', () => this.waiting.forEach(({ reject }) => reject(new Error('Chromium ended'))));
  }

  receive(message) {
    const wait = this.waiting.get(message.id);
    this.waiting.delete(message.id);
    if (wait) message.error ? wait.reject(new Error(message.error.message)) : wait.resolve(message.result);
    if (message.method === 'Network.requestWillBeSent') this.requests.push(message.params.request);
    if (message.method === 'Runtime.exceptionThrown') this.errors.push(JSON.stringify(message.params.exceptionDetails));
    if (message.method === 'Log.entryAdded' && message.params.entry.source === 'security')
      this.errors.push(message.params.entry.text);
  }

  send(method, params = {}) {
    const id = ++this.serial;
    this.child.stdio[3].write(JSON.stringify({ id, method, params, sessionId: this.session }) + '\0');
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  async open(url) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    this.session = (await this.send('Target.attachToTarget', { targetId, flatten: true })).sessionId;
    for (const domain of ['Page', 'Network', 'Runtime', 'Log']) await this.send(domain + '.enable');
    await this.send('Page.navigate', { url });
  }

  async evaluate(expression) {
    const { result, exceptionDetails } =
      await this.send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(`${expression}: ${JSON.stringify(exceptionDetails)}`);
    return result.value;
  }

  async until(expression, seconds = 60) {
    for (const end = Date.now() + seconds * 1000; Date.now() < end;) {
      const value = await this.evaluate(expression).catch(() => null); // the page may still be loading
      if (value) return value;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`after ${seconds} s not true: ${expression}`);
  }

  type(text) { return this.send('Input.insertText', { text }); }

  // modifiers: 1 Alt, 2 Ctrl
  async key(key, modifiers = 0) {
    for (const type of ['rawKeyDown', 'keyUp']) await this.send('Input.dispatchKeyEvent', { type, key, modifiers });
  }

  async click(selector) {
    const at = await this.evaluate(`(() => { const element = document.querySelector(${JSON.stringify(selector)});
      element.scrollIntoView({ block: 'center' });
      const box = element.getClientRects()[0];
      return { x: box.x + Math.min(box.width / 2, 20), y: box.y + box.height / 2 }; })()`);
    for (const type of ['mousePressed', 'mouseReleased'])
      await this.send('Input.dispatchMouseEvent', { type, ...at, button: 'left', clickCount: 1 });
  }

  async look(file, width, height, scheme) {
    await this.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: false });
    await this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    await this.evaluate('new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))');
    const { data } = await this.send('Page.captureScreenshot', { format: 'png', captureBeyondViewport: true });
    if (file) writeFileSync(file, Buffer.from(data, 'base64'));
    return data.length;
  }

  async close() {
    const ended = new Promise((resolve) => this.child.on('exit', resolve));
    this.session = undefined;
    this.send('Browser.close').catch(() => {});
    const timer = setTimeout(() => this.child.kill('SIGKILL'), 5000);
    await ended;
    clearTimeout(timer);
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
