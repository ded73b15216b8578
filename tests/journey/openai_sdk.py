"""Uses an OpenAI-compatible server as its users do: python openai_sdk.py BASE_URL MODEL."""

import sys

import openai


def main(base_url, model):
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=60)
    question = [{"role": "user", "content": "How long is a piece of string?"}]

    models = [listed.id for listed in client.models.list()]
    assert models == [model], models

    plain = client.chat.completions.create(
        model=model, messages=question, max_tokens=9, extra_body={"ignore_eos": True}
    )
    assert plain.usage.completion_tokens == 9, plain
    assert len(plain.choices[0].message.content.split()) == 9, plain
    assert plain.choices[0].finish_reason == "length", plain

    stream = client.chat.completions.create(
        model=model,
        messages=question,
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    pieces, usage = [], None
    for chunk in stream:
        usage = chunk.usage or usage
        pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]
    assert len(pieces) == 9, pieces
    assert usage.completion_tokens == 9, usage
    assert "".join(pieces) == plain.choices[0].message.content, pieces

    completion = client.completions.create(
        model=model, prompt="Once upon a time", max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert len(completion.choices[0].text.split()) == 5, completion

    raw = client.chat.completions.with_raw_response.create(
        model=model,
        messages=question,
        max_tokens=2,
        extra_headers={"x-slo-ttft-ms": "2000", "x-slackline-explain": "true"},
    )
    assert raw.headers["x-inference-pod"] in ("e0", "e1"), raw.headers
    assert raw.headers["x-slackline-explanation"].startswith("{"), raw.headers

    try:
        client.chat.completions.create(model="gpt-9", messages=question)
    except openai.NotFoundError as error:
        assert "gpt-9" in error.message, error
    else:
        raise AssertionError("an unknown model was found")

    try:
        client.chat.completions.create(model=model, messages=[])
    except openai.BadRequestError as error:
        assert "messages" in error.message, error
    else:
        raise AssertionError("an empty conversation was answered")


if __name__ == "__main__":
    main(*sys.argv[1:])
