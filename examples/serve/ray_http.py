"""Ray Data's HTTP processor against `deltaic serve`: ray_http.py PROMPTS.jsonl ANSWERS, with {"prompt": ...} a line.

DELTAIC_URL: the server; DELTAIC_KEY: an API key, where it wants one. Needs `pip install "ray[data,llm]"`.
"""
import os
import sys

import ray
from ray.data.llm import HttpRequestProcessorConfig, build_processor

prompts, answers = sys.argv[1:]
key = os.environ.get("DELTAIC_KEY")
config = HttpRequestProcessorConfig(
    url=os.environ.get("DELTAIC_URL", "http://127.0.0.1:8080") + "/v1/completions",
    headers={"Authorization": f"Bearer {key}"} if key else None,
    batch_size=64,
    concurrency=4,  # the server joins what comes at once into one pass over the weights
    max_retries=5,  # a queue that is full answers 429
)
processor = build_processor(
    config,
    preprocess=lambda row: {
        "payload": {"prompt": row["prompt"], "max_tokens": 64, "temperature": 0, "store": False},
        **row,
    },
    postprocess=lambda row: {"prompt": row["prompt"], "answer": row["http_response"]["choices"][0]["text"]},
)
processor(ray.data.read_json(prompts)).write_json(answers)
