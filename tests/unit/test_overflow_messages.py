"""Error messages of servers for a request that is too long, and the numbers in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from foldlog.adapters.models.failures import Callee, reported
from foldlog.runtime.ports.models import ContextOverflow

CALLEE = Callee("here:m", "http://127.0.0.1/v1", 600.0)
TOLD = """\
128000 128010
This model's maximum context length is 128000 tokens. However, your messages resulted in 128010
tokens. Please reduce the length of the messages.

3097 3927
This model's maximum context length is 4097 tokens. However, you requested 4927 tokens (3927 in the
messages, 1000 in the completion). Please reduce the length of the messages or completion.

2192 3927
This model's maximum context length is 8,192 tokens. However, you requested 9,927 tokens (3,727 in
the messages, 200 in the functions, and 6,000 in the completion).

272000 300018
Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300018 tokens.

- -
Your input exceeds the context window of this model. Please adjust your input and try again.

3192 4000
'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is
8192 tokens and your request has 4000 input tokens (5000 > 8192 - 4000).

8092 9000
You passed 9000 input tokens and requested 100 output tokens. However, the model's context length is
only 8192 tokens, resulting in a maximum input length of 8092 tokens. Please reduce the length of
the input prompt.

8192 9000
The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that
`max_model_len` is no smaller than the number of text tokens.

121072 131006
Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a
total of 141006 tokens: 131006 tokens from the input messages and 10000 tokens for the completion.

8192 9000
The input (9000 tokens) is longer than the model's context length (8192 tokens).

124000 131000
This endpoint's maximum context length is 128000 tokens. However, you requested about 135000 tokens
(131000 of text input, 4000 in the output). Please reduce the length of either one.

4096 9000
request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it

- -
the request exceeds the available context size, try increasing it

4096 5000
Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with
context length of only 4096 tokens, which is not enough.

- -
the input length exceeds the context length

- -
prompt too long; exceeded max context length by 1234 tokens

3097 4000
Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs`
tokens and 1000 `max_new_tokens`

1024 5000
Input validation error: `inputs` must have less than 1024 tokens. Given: 5000

200000 210000
prompt is too long: 210000 tokens > 200000 maximum

180000 190000
input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length
or `max_tokens` and try again

1048576 1200000
The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).

1048576 -
The input token count exceeds the maximum number of tokens allowed (1048576).

32768 33000
Unable to submit request because the input token count is 33000 but model only supports up to 32768.
Reduce the input token count and try again. The input token count exceeds what is allowed.

32768 40000
Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context
length

4081 4292
too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.

131072 160000
This model's maximum prompt length is 131072 but the request contains 160000 tokens.

6000 7009
Request too large for model `llama-3.1-8b` on tokens per minute (TPM): Limit 6000, Requested 7009,
please reduce your message size and try again.

8192 9000
Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192

8191 9000
The prompt is too long: 9000, model maximum context length: 8191

8192 9000
Your request exceeded model token limit: 8192 (requested: 9000)

30720 -
Range of input length should be [1, 30720]

128000 130000
prompt token count of 130000 exceeds the limit of 128000
"""
"""Of each: what a request may take, what it takes (-: not stated), and the words; of OpenAI and those like it, of local
servers, of others."""


def told() -> Iterator[tuple[str, int | None, int | None]]:
    for block in TOLD.split("\n\n"):
        numbers, _, text = block.partition("\n")
        window, request = (None if each == "-" else int(each) for each in numbers.split())
        yield " ".join(text.split()), window, request


@pytest.mark.parametrize(("text", "window", "request_tokens"), list(told()))
def test_the_numbers_of_a_request_that_is_too_long_are_read(
    text: str, window: int | None, request_tokens: int | None
) -> None:
    for status in (400, 0):
        error = reported(CALLEE, {"error": {"message": text}}, status=status)
        assert isinstance(error, ContextOverflow)
        assert (error.window_tokens, error.request_tokens) == (window, request_tokens)


def test_numbers_beside_the_text_go_before_those_in_it() -> None:
    body = {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9000,
        "n_ctx": 4096,
    }
    error = reported(CALLEE, {"error": body}, status=400)
    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.request_tokens) == (4096, 9000)


def test_what_a_router_quotes_is_read() -> None:
    quoted = {
        "message": "Provider returned error",
        "code": 400,
        "metadata": {"raw": '{"error": "prompt is too long: 9 tokens > 8 maximum"}'},
    }
    error = reported(CALLEE, {"error": quoted}, status=400)
    assert isinstance(error, ContextOverflow)
    assert (error.window_tokens, error.request_tokens) == (8, 9)


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached for gpt-4o: Limit 30000, Used 29000, Requested 2000. Please try again in 2s.",
        "max_tokens must be at least 1",
        "Too many tokens, please wait before trying again.",
        "Invalid value for temperature",
    ],
)
def test_other_refusals_are_not_overflows(text: str) -> None:
    assert not isinstance(reported(CALLEE, {"error": {"message": text}}, status=400), ContextOverflow)


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 12 tokens.",
        "maximum context length is 99999999999999999999999 tokens",
        "maximum context length is 0 tokens",
    ],
)
def test_numbers_that_make_no_sense_are_none(text: str) -> None:
    error = reported(CALLEE, {"error": {"message": text}}, status=400)
    assert isinstance(error, ContextOverflow)
    assert error.request_tokens is None
    assert error.window_tokens in {None, 128_000}
