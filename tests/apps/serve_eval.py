#!/usr/bin/python3
"""serve_eval.py PROGRAM TOP: what lm-evaluation-harness' `local-completions` sends, and reads of the answers."""
import json, math, os, sys, tempfile
from serve_tools import Server, check, done

program, top = (os.path.abspath(path) for path in sys.argv[1:3])
novelist = top + "/models/novelist"
tiny = top + "/tests/vectors/models/tiny_gated_deltanet"
VOCABULARY = 259  # of tiny


def ask(s, name, prompt, **more):
    body = dict(model=name, prompt=prompt, temperature=0, max_tokens=1, logprobs=1, seed=1234, echo=True)
    status, _, data = s.ask("POST", "/v1/completions", {**body, **more}, {"Authorization": "Bearer "})
    check(status == 200, f"{status}: {data[:300]}")
    return sorted(json.loads(data)["choices"], key=lambda choice: choice["index"])


def likelihood(choice, context):
    """The tool leaves out the last token, which it takes for the drawn one, and the first `context` ones."""
    notes = choice["logprobs"]
    values, tops = notes["token_logprobs"][context:-1], notes["top_logprobs"][context:-1]
    return sum(values), all(value == max(best.values()) for value, best in zip(values, tops)), len(values)


def token_lists():
    """Several prompts at once, as lists of tokens: all next tokens of a text, which share the probability of 1."""
    s = Server(program, tiny, "--slots", "8", "--precision", "float32")
    context = [1, 40, 50, 60]
    found = [likelihood(c, 4) for c in ask(s, "tiny_gated_deltanet", [context + [i] for i in range(VOCABULARY)])]
    check(all(count == 1 for _, _, count in found), "one token behind the context")
    check(abs(sum(math.exp(value) for value, _, _ in found) - 1) < 1e-4, "the probabilities of all next tokens")
    best = max(range(VOCABULARY), key=lambda i: found[i][0])
    check([i for i in range(VOCABULARY) if found[i][1]] == [best], "the likeliest token, and no other, is greedy")

    # Continuations of several tokens, of several lengths in one request; each as it is alone.
    other = (best + 1) % VOCABULARY
    prompts = [context + [best, 70, 80], context + [best], [1, other], context + [other, best, 90, 100, 110]]
    many = [likelihood(c, min(4, len(p) - 1)) for c, p in zip(ask(s, "tiny_gated_deltanet", prompts), prompts)]
    for (value, greedy, count), prompt in zip(many, prompts):
        n = min(4, len(prompt) - 1)
        alone = likelihood(ask(s, "tiny_gated_deltanet", [prompt])[0], n)
        check(count == len(prompt) - n and abs(alone[0] - value) < 1e-4 and alone[1:] == (greedy, count), f"{prompt}: {alone}")
        steps = sum(likelihood(ask(s, "tiny_gated_deltanet", [prompt[: k + 1]])[0], k)[0] for k in range(n, len(prompt)))
        check(abs(steps - value) < 1e-3, f"{prompt}: {value}, token by token {steps}")
    check([greedy for _, greedy, _ in many][1] and not many[3][1], "greedy continuations")

    s.end()
    return context, best


def ended(context, end):
    """A text that the model ends at once: the end is the drawn token, which the tool leaves out."""
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(tiny):
            os.symlink(f"{tiny}/{name}", f"{folder}/{name}")
        with open(tiny + "/config.json") as file:
            config = {**json.load(file), "eos_token_id": end}
        os.remove(folder + "/config.json")
        with open(folder + "/config.json", "w") as file:
            json.dump(config, file)
        s = Server(program, folder, "--slots", "8", "--precision", "float32", "--name", "tiny")
    choice = ask(s, "tiny", [context])[0]
    check(choice["finish_reason"] == "stop", f"the text ends: {choice}")
    value, _, count = likelihood(choice, 1)
    check(count == len(context) - 1, f"{count} of the text's tokens")
    longer = ask(s, "tiny", [context + [end]])[0]
    check(abs(sum(longer["logprobs"]["token_logprobs"][1 : len(context)]) - value) < 1e-3, f"before the end: {value}")
    check(likelihood(longer, len(context))[1:] == (True, 1), "the end is greedy")
    # The same streamed, and scored without a drawn token.
    events = s.stream("/v1/completions", prompt=context, temperature=0, max_tokens=1, logprobs=1, echo=True)
    values = [v for e in events if e != "[DONE]" for c in e["choices"] if c["logprobs"] for v in c["logprobs"]["token_logprobs"]]
    check(values == choice["logprobs"]["token_logprobs"], f"streamed: {values}")
    scored = ask(s, "tiny", [context], max_tokens=0)[0]["logprobs"]["token_logprobs"]
    check(len(scored) == len(context) and abs(sum(scored[1:]) - value) < 1e-3, f"without a drawn token: {scored}")
    s.end()


def texts():
    """Strings, one and several, and what is generated for tasks that compare texts."""
    s = Server(program, novelist, "--slots", "4")
    contexts = ["The old house stood", "It was"]
    continuations = [" upon a hill.", " a dark night, and nobody spoke."]
    lengths = [s.post("/v1/completions", prompt=c, max_tokens=0)["usage"]["prompt_tokens"] for c in contexts]
    whole = [c + d for c, d in zip(contexts, continuations)]
    many = [likelihood(c, n) for c, n in zip(ask(s, "novelist", whole), lengths)]
    for text, n, found in zip(whole, lengths, many):
        alone = likelihood(ask(s, "novelist", text)[0], n)
        check(alone[2] == found[2] > 2 and abs(alone[0] - found[0]) < 1e-2 and alone[0] < -1, f"{text}: {alone} {found}")
    # What the model writes is greedy, and what it writes at random is not. As a text it may be other tokens: such texts
    # are left out, and some must remain.
    for temperature in (0, 2):
        asked = dict(n=4, max_tokens=8, temperature=temperature, seed=1, ignore_eos=True, logprobs=0)
        choices = s.post("/v1/completions", prompt=contexts, **asked)["choices"]
        written = [(contexts[w["index"] // 4], lengths[w["index"] // 4], w) for w in choices]
        scored = [(n, w["logprobs"]["tokens"], ask(s, "novelist", c + w["text"])[0]) for c, n, w in written]
        same = [likelihood(c, n) for n, tokens, c in scored if c["logprobs"]["tokens"][n:-1] == tokens]
        check(same, f"temperature {temperature}: every text is other tokens: {scored}")
        check(all(greedy == (not temperature) for _, greedy, _ in same), f"temperature {temperature}: greedy? {same}")
    for stop in ([], [". ", "</s>"], ["\n\n"]):
        body = dict(model="novelist", max_tokens=32, temperature=0, stop=stop, seed=1234)
        texts = [c["text"] for c in s.post("/v1/completions", prompt=[[1, 300, 400], [1, 500]], **body)["choices"]]
        check(len(texts) == 2 and all(t and not any(end in t for end in stop) for t in texts), f"{stop}: {texts}")
    check(s.ask("GET", "/tokenizer_info")[0] == 404, "no tokenizer is offered")
    s.end()


ended(*token_lists())
texts()
done("serve_eval")
