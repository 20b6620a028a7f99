"""The proof: the size of the cache that a real vLLM prints, as shipped, stripped and restored.

Nothing is said to vLLM about its cache, so that the metadata alone decide. With 1 GiB: tiny-mla 3 layers of 576 values a token,
smollm2 30 layers of 2 * 3 * 64 values. vLLM rounds down to blocks of 16 tokens, 128 with the AMX backend and for SmolLM2.
"""

from __future__ import annotations

import pytest

GIB = 2**30
VIEWS = {
    "tiny": ("/var/lib/vllm/checkpoints/demo--tiny-mla/views/tiny", 3 * 576),
    "smol": ("/var/lib/vllm/views/smollm2-135m/smol", 30 * 2 * 3 * 64),
}
EXPECTED = {
    name: {width: {GIB // (values * width * block) * block for block in (16, 128)} for width in (1, 2)}
    for name, (_path, values) in VIEWS.items()
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_strip_is_seen_in_the_running_server(host, converge, kv_cache_tokens, name):
    path, _values = VIEWS[name]
    seen = []
    for state in ("original", "stripped", "original"):
        run = converge(state=state)
        assert run.ok, run.text[-2000:]
        seen.append(kv_cache_tokens(host.check_output(f"readlink -f {path}")))
    print(f"{name}: as shipped, stripped, restored: {seen}")
    as_shipped, stripped, restored = seen
    assert as_shipped == restored
    assert as_shipped in EXPECTED[name][1]
    assert stripped in EXPECTED[name][2]
    assert converge(state="stripped").ok


def test_the_figures_that_are_expected():
    assert EXPECTED["tiny"] == {1: {621_376, 621_312}, 2: {310_688, 310_656}}
    assert 93_184 in EXPECTED["smol"][1]
    assert 46_592 in EXPECTED["smol"][2]
