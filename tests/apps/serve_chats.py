#!/usr/bin/python3
"""serve_chats.py PROGRAM TOP: chats and responses of `deltaic serve` with templates, on the CPU."""
import sys
from serve_tools import Server, check, done

greedy = {"temperature": 0}


def outputs(events, what):
    """The events of a response's stream give its output, item by item."""
    made, types = [], [e["type"].removeprefix("response.") for e in events]
    for e, kind in zip(events, types):
        if kind == "output_item.added":
            made.append({"item": e["item"], "text": "", "ended": False})
        elif kind.endswith("text.delta"):
            made[e["output_index"]]["text"] += e["delta"]
            check(e["item_id"] == made[e["output_index"]]["item"]["id"], f"{what}: {e}")
        elif kind == "output_item.done":
            made[e["output_index"]]["ended"] = e["item"]
    final = events[-1]["response"]["output"]
    check([m["ended"] for m in made] == final, f"{what}: {made} {final}")
    check([m["text"] for m in made] == [(i.get("summary") or i["content"])[0]["text"] for i in final], f"{what}: {made} {final}")
    check(types.count("content_part.done") + types.count("reasoning_summary_part.done") == len(made), f"{what}: {types}")


def chats(program, top):
    """Every template's way to go on: with the state of the answer, or with that of the question."""
    for model, template, more in ((top + "/models/novelist", "chatml", {}), (top + "/models/novelist", "qwen3.5", {}),
                                  (top + "/models/novelist", "qwen3.5", {"chat_template_kwargs": {"enable_thinking": False}}),
                                  (top + "/tests/vectors/models/tiny_delta_net_global", "qwen2.5", {})):
        what = f"{model.rsplit('/')[-1]} {template} {more}"
        options = dict(max_tokens=12, **greedy, **more)
        talk = [{"role": "system", "content": "Speak."}, {"role": "user", "content": [{"type": "text", "text": "The house"}]}]
        s = Server(program, model, "--template", template, "--precision", "float32", "--slots", "2")
        first = s.post("/v1/chat/completions", messages=talk, **options)
        said = first["choices"][0]["message"]
        check(first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, f"{what}: nothing is cached")
        events = s.stream("/v1/chat/completions", messages=talk, stream_options={"include_usage": True}, **options)
        # This model never ends its thinking (test_serve.c has one that does).
        thought = 12 if "reasoning_content" in said else 0
        for usage in (first["usage"], events[-2]["usage"]):
            check(usage["completion_tokens"] == 12 and usage["completion_tokens_details"]["reasoning_tokens"] == thought, f"{what}: {usage}")
        deltas = [c["delta"] for e in events[:-1] for c in e["choices"]]
        check("".join(d.get("content", "") for d in deltas) == said["content"] and deltas[0]["role"] == "assistant", f"{what}: stream")
        check("".join(d.get("reasoning_content", "") for d in deltas) == said.get("reasoning_content", ""), f"{what}: thinking")
        scored = s.post("/v1/chat/completions", messages=talk, logprobs=True, top_logprobs=2, **options)["choices"][0]
        check(scored["message"] == said and len(scored["logprobs"]["content"][0]["top_logprobs"]) == 2, f"{what}: logprobs")

        if template == "chatml":  # random tokens, many of which are a part of a character
            wild = s.post("/v1/chat/completions", messages=talk, logprobs=True, max_tokens=300, temperature=100, top_p=1, ignore_eos=True)
            notes = wild["choices"][0]["logprobs"]["content"]
            parts = [n["bytes"] for n in notes if "\ufffd" in n["token"]]
            check(parts and [239, 191, 189] not in parts, f"bytes of parts of characters: {parts}")
            check(all(bytes(n["bytes"]).decode(errors="replace") == n["token"] for n in notes), f"bytes: {notes}")

        longer = talk + [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": "It was late."}]
        second = s.post("/v1/chat/completions", messages=longer, **options)
        check(second["usage"]["prompt_tokens_details"]["cached_tokens"] > 5, f"{what}: the second turn begins with a state: {second}")
        one = s.post("/v1/responses", input=talk, max_output_tokens=12, **greedy, **more)
        events = s.stream("/v1/responses", input=talk, max_output_tokens=12, **greedy, **more)
        streamed = events[-1]["response"]
        outputs(events, f"{what}: stream of a response")
        # The thinking is an item of its own, before the message; here there is no message behind it.
        kinds = ["reasoning" if thought else "message"]
        for response in (one, streamed):
            check([item["type"] for item in response["output"]] == kinds, f"{what}: {response['output']}")
            check(response["incomplete_details"] == {"reason": "max_output_tokens"}, f"{what}: {response}")
        if thought:
            check(one["output"][0]["summary"][0]["text"] == said["reasoning_content"], f"{what}: thinking {one['output']}")
            check(streamed["output"][0]["summary"] == one["output"][0]["summary"], f"{what}: thinking {streamed['output']}")
        for usage in (one["usage"], streamed["usage"]):
            check(usage["output_tokens_details"]["reasoning_tokens"] == thought, f"{what}: {usage}")
        two = s.post("/v1/responses", input="It was late.", previous_response_id=one["id"], max_output_tokens=12, **greedy, **more)
        text = "".join(item["content"][0]["text"] for item in two["output"] if item["type"] == "message")
        check(text == second["choices"][0]["message"]["content"], f"{what}: /v1/responses goes on with {text}")
        if "reasoning_content" not in said: # a client does not send it again
            check(two["usage"]["input_tokens"] == second["usage"]["prompt_tokens"], f"{what}: tokens of the second turn")
        s.end()
        s = Server(program, model, "--template", template, "--precision", "float32", "--slots", "2")
        fresh = s.post("/v1/chat/completions", messages=longer, **options)
        check(fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, f"{what}: a server that knows nothing")
        check(fresh["choices"][0]["message"] == second["choices"][0]["message"], f"{what}: the answer depends on the state")
        check(fresh["usage"]["prompt_tokens"] == second["usage"]["prompt_tokens"], f"{what}: tokens of the prompt")
        s.end()


if __name__ == "__main__":
    chats(*sys.argv[1:3])
    done("serve_chats")
