"""Run on the host by test_3_crashes: many requests at once, some given up; exits with 1 if one is answered wrongly."""

import asyncio
import random
import sys

import httpx2

MODEL = "demo/tiny-mla"
COUNT = 500
PROMPTS = [f"{number} boats on the sea" for number in range(5)]


async def ask(client, prompt, give_up_after=None):
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 12, "seed": 1}
    try:
        answer = await asyncio.wait_for(client.post("/v1/completions", json=body), give_up_after)
    except asyncio.TimeoutError:
        return None
    answer.raise_for_status()
    return answer.json()["choices"][0]["text"]


async def main(url, key):
    random.seed(7)
    limits = httpx2.Limits(max_connections=COUNT, max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=300, trust_env=False) as client:
        alone = {prompt: await ask(client, prompt) for prompt in PROMPTS}
        plan = [
            (random.choice(PROMPTS), random.uniform(0.01, 2) if random.random() < 1 / 3 else None) for _ in range(COUNT)
        ]
        answers = await asyncio.gather(*(ask(client, prompt, after) for prompt, after in plan), return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    given_up = sum(answer is None for answer in answers)
    # Batches may round differently from a single request, so an answer may part ways late; one that begins with another text is wrong.
    wrong = [
        (prompt, answer)
        for (prompt, _after), answer in zip(plan, answers)
        if isinstance(answer, str) and answer[:8] != alone[prompt][:8]
    ]
    print(f"{COUNT} requests: {given_up} given up, {len(errors)} errors, {len(wrong)} wrong; {errors[:2]} {wrong[:2]}")
    return 1 if errors or wrong else 0


sys.exit(asyncio.run(main(*sys.argv[1:])))
