"""Signatures of webhooks: documented examples, the senders of each scheme, and everything that can be wrong."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable

import pytest
from foldlog.adapters.http.signatures import HmacTable, Scheme, verifier_of
from foldlog.eventlog import ConfigError

from tests.http.door import SCHEMES, SECRETS, Headers, signed

NOW = 1_800_000_000.0
TABLE = HmacTable(header="X-Signature", prefix="v1:", encoding="base64", timestamp="X-Time")
BODY = b'{"text": "It is broken"}'


def verified(scheme: Scheme, headers: Headers, body: bytes, now: float, *more: str) -> bool:
    secrets = [*more, SECRETS[scheme.upper()]]
    lower = {name.lower(): value for name, value in headers.items()}

    class AnyCase(dict[str, str]):
        def get(self, name: str, default: str = "") -> str:  # type: ignore[override]
            return lower.get(name.lower(), default)

    return verifier_of(scheme, secrets, TABLE if scheme == "hmac" else None, "[hooks.x]")(
        AnyCase(), body, now
    )


def test_the_example_that_github_documents_holds() -> None:
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"X-Hub-Signature-256": f"sha256={digest}"}
    assert verified("github", headers, b"Hello, World!", NOW)
    assert not verified("github", headers, b"Hello, World?", NOW)


def test_the_example_that_slack_documents_holds() -> None:
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F"
        b"96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    assert verified("slack", headers, body, 1_531_420_618.0)
    assert not verified("slack", headers, body, 1_531_420_618.0 + 301)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_a_sender_signs_is_taken_also_while_its_secret_is_rotated(scheme: Scheme) -> None:
    headers, other = signed(scheme, BODY), "whsec_" + base64.b64encode(b"another secret of 24 bytes").decode()
    assert verified(scheme, headers, BODY, time.time())
    assert verified(scheme, headers, BODY, time.time(), other)
    assert verified(scheme, {name.upper(): value for name, value in headers.items()}, BODY, time.time())


def without(name: str) -> Callable[[Headers], Headers]:
    return lambda headers: {key: value for key, value in headers.items() if name not in key}


def with_value(name: str, value: str) -> Callable[[Headers], Headers]:
    return lambda headers: {key: value if name in key else old for key, old in headers.items()}


def with_change(name: str, change: Callable[[str], str]) -> Callable[[Headers], Headers]:
    return lambda headers: {key: change(old) if name in key else old for key, old in headers.items()}


SIGNED = {
    "standard": "signature",
    "github": "Signature",
    "stripe": "Signature",
    "slack": "Signature",
    "hmac": "Signature",
}
STAMPED = {"standard": "timestamp", "slack": "Timestamp", "hmac": "Time"}
GARBAGE = ["", " ", ",", "=", "v1", "v1,", "v1,!!", "v0=", "sha256=", "sha256=zz", "t=,v1=", "t=1", "v1:"]
GARBAGE += ["\xff\xfe", "é" * 40, "0" * 64, "v1," * 500]
TIMES = ["", "now", "-1", "1e9", "٣", "9" * 400, "NaN", "1800000000.5\n"]


def other_end(signature: str) -> str:
    return f"{signature[:-6]}AAAA==" if signature.endswith("=") else f"{signature[:-4]}0000"


BROKEN: list[tuple[str, str, Callable[[Headers], Headers]]] = [
    *((scheme, "no signature", without(name)) for scheme, name in SIGNED.items()),
    *(
        (scheme, "another end", with_change(SIGNED[scheme], other_end))
        for scheme in SIGNED
        if scheme != "stripe"
    ),
    *(
        (scheme, f"signature {text[:8]!r}", with_value(name, text))
        for scheme, name in SIGNED.items()
        for text in GARBAGE
    ),
    *((scheme, "no time", without(name)) for scheme, name in STAMPED.items()),
    *(
        (scheme, f"time {text[:8]!r}", with_value(name, text))
        for scheme, name in STAMPED.items()
        for text in TIMES
    ),
    ("stripe", "no time", with_change("Signature", lambda old: old.partition(",")[2])),
    ("stripe", "two times", with_change("Signature", lambda old: "t=1," + old)),
    ("stripe", "another version", with_change("Signature", lambda old: old.replace("v1=", "v2="))),
    ("stripe", "many signatures", with_change("Signature", lambda old: ",".join(["v1=00"] * 99) + "," + old)),
    ("github", "another algorithm", with_change("Signature", lambda old: old.replace("sha256=", "sha1="))),
    ("slack", "another version", with_change("Signature", lambda old: old.replace("v0=", "v1="))),
    ("standard", "another id", with_value("webhook-id", "d2")),
    ("standard", "no id", without("webhook-id")),
    ("standard", "another kind", with_change("signature", lambda old: old.replace("v1,", "v1a,"))),
]


@pytest.mark.parametrize(
    ("scheme", "change"),
    [(scheme, change) for scheme, _, change in BROKEN],
    ids=[f"{scheme}: {what}" for scheme, what, _ in BROKEN],
)
def test_a_broken_signature_is_refused(scheme: Scheme, change: Callable[[Headers], Headers]) -> None:
    assert not verified(scheme, change(signed(scheme, BODY)), BODY, time.time())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_another_body_is_refused(scheme: Scheme) -> None:
    headers = signed(scheme, BODY)
    for body in (b"", BODY + b" ", BODY[:-1], b"\xff" + BODY, BODY.replace(b"broken", b"mended")):
        assert not verified(scheme, headers, body, time.time())


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "github"])
@pytest.mark.parametrize("off_s", [-310, 310])
def test_a_signature_of_another_time_is_refused(scheme: Scheme, off_s: float) -> None:
    now = time.time()
    assert not verified(scheme, signed(scheme, BODY, at=now + off_s), BODY, now)


def test_a_secret_that_is_none_is_refused_without_its_text() -> None:
    with pytest.raises(ConfigError, match="whsec_ and Base64") as refused:
        verifier_of("standard", ["whsec_é!"], None, "[hooks.x]")
    assert "é" not in str(refused.value)
    with pytest.raises(ConfigError, match="needs a table hmac"):
        verifier_of("hmac", ["secret"], None, "[hooks.x]")
