// serve_clients.mjs URL TESTS...: what npm's openai and @ai-sdk/openai-compatible do with a server of `deltaic serve`,
// whose model is novelist with the template chatml; for the test `thinking` qwen3.5, with which it thinks without end.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import { generateText, streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';

const baseURL = process.argv[2] + '/v1';
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const model = 'novelist', greedy = { model, temperature: 0 };
const messages = [{ role: 'user', content: 'The house' }];
const metric = async name => {
  const text = await (await fetch(baseURL.slice(0, -3) + '/metrics')).text();
  return Number(text.match(new RegExp(`^deltaic_${name} (\\S+)$`, 'm'))[1]);
};

const tests = {
  async models() {
    assert.equal((await client.models.list()).data[0].id, model);
    assert.equal((await client.models.retrieve(model)).id, model);
    await assert.rejects(client.models.retrieve('gpt-4'), OpenAI.NotFoundError);
  },
  async completions() {
    const whole = await client.completions.create({ ...greedy, prompt: 'The old house', max_tokens: 20 });
    let text = '';
    const stream = await client.completions.create({ ...greedy, prompt: 'The old house', max_tokens: 20, stream: true });
    for await (const chunk of stream) text += chunk.choices[0].text;
    assert.equal(text, whole.choices[0].text);
    const many = await client.completions.create({ model, prompt: ['a', 'b'], n: 2, max_tokens: 3, logprobs: 2 });
    assert.equal(many.choices.length, 4);
    assert.equal(many.choices[0].logprobs.tokens.length, 3);
  },
  async chat() {
    const whole = await client.chat.completions.create({ ...greedy, messages, max_tokens: 12 });
    assert.equal(whole.usage.completion_tokens, 12);
    const more = { max_tokens: 12, stream_options: { include_usage: true } };
    const stream = client.chat.completions.stream({ ...greedy, messages, ...more });
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
    assert.equal(final.usage.completion_tokens, 12);
    const next = [...messages, whole.choices[0].message, { role: 'user', content: 'And then?' }];
    const second = await client.chat.completions.create({ ...greedy, messages: next, max_tokens: 4 });
    assert.ok(second.usage.prompt_tokens_details.cached_tokens > 0);
  },
  async responses() {
    const ask = { ...greedy, instructions: 'Speak.', max_output_tokens: 12 };
    const first = await client.responses.create({ ...ask, input: 'The house' });
    assert.ok(first.output_text.length);
    const rest = { ...greedy, input: 'And then?', previous_response_id: first.id, max_output_tokens: 12 };
    const second = await client.responses.create(rest);
    assert.ok(second.usage.input_tokens_details.cached_tokens > 0);
    const final = await client.responses.stream(rest).finalResponse();
    assert.equal(final.output_text, second.output_text);
    const kinds = new Set();
    for await (const event of await client.responses.create({ ...rest, stream: true })) kinds.add(event.type);
    for (const kind of ['created', 'output_text.delta', 'output_text.done', 'incomplete'])
      assert.ok(kinds.has('response.' + kind));
    assert.equal((await client.responses.retrieve(first.id)).output_text, first.output_text);
    await client.responses.delete(first.id);
    await assert.rejects(client.responses.retrieve(first.id), OpenAI.NotFoundError);
  },
  async thinking() {
    const ask = { ...greedy, input: 'The house', max_output_tokens: 12 };
    const whole = await client.responses.create(ask);
    assert.equal(whole.status, 'incomplete');
    assert.equal(whole.output[0].type, 'reasoning');
    let text = '';
    const stream = client.responses.stream(ask);
    stream.on('response.reasoning_summary_text.delta', event => (text += event.delta));
    const final = await stream.finalResponse();
    assert.deepEqual(final.output[0].summary, whole.output[0].summary);
    assert.equal(text, whole.output[0].summary[0].text);
    const input = [{ role: 'user', content: ask.input }, ...whole.output, { role: 'user', content: 'And then?' }];
    assert.equal((await client.responses.create({ ...ask, input })).status, 'incomplete');
  },
  async abort() {
    const before = await metric('requests_cancelled_total');
    const long = { model, prompt: 'The', max_tokens: 4096, ignore_eos: true };
    const stream = await client.completions.create({ ...long, stream: true });
    for await (const _ of stream) break; // this aborts it
    const control = new AbortController();
    const whole = client.completions.create(long, { signal: control.signal });
    setTimeout(() => control.abort(), 200);
    await assert.rejects(whole, OpenAI.APIUserAbortError);
    // A request is counted a moment after its slot is free.
    for (let i = 0; i < 100 && (await metric('requests_cancelled_total')) < before + 2; i++)
      await new Promise(r => setTimeout(r, 50));
    assert.equal(await metric('requests_cancelled_total'), before + 2);
    assert.equal(await metric('slots_busy'), 0);
  },
  async errors() {
    const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }];
    await assert.rejects(client.chat.completions.create({ model, messages, tools }), /tools is not supported/);
    await assert.rejects(client.completions.create({ model: 'gpt-4', prompt: 'x' }), OpenAI.NotFoundError);
  },
  async ai_sdk() {
    const provider = createOpenAICompatible({ name: 'deltaic', baseURL, includeUsage: true });
    const chat = { model: provider.chatModel(model), prompt: 'The house', temperature: 0, maxOutputTokens: 12 };
    const whole = await generateText(chat);
    assert.equal(whole.usage.outputTokens, 12);
    assert.equal(whole.finishReason, 'length');
    let text = '';
    for await (const part of streamText(chat).textStream) text += part;
    assert.equal(text, whole.text);
    const completion = await generateText({ ...chat, model: provider.completionModel(model) });
    assert.ok(completion.text.length);
  },
};

let failed = 0;
for (const name of process.argv.slice(3)) {
  try {
    await tests[name]();
    console.log(`${name}: passed`);
  } catch (error) {
    failed++;
    console.log(`${name}: FAILED: ${error.stack}`);
  }
}
process.exit(failed ? 1 : 0);
