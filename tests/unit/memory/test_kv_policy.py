"""The rules of the KV-cache dtype, one by one, and over all combinations what must never happen."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.gpuhost.vllm.plugins.module_utils.errors import VllmHostError
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory import kv_policy_data
from ansible_collections.gpuhost.vllm.plugins.module_utils.memory.kv_policy import (
    KvDecision,
    ProbeResult,
    decide,
    wants_probe,
)

KIMI = {
    "attention": "mla",
    "compute_capability": "12.0",
    "device": "cuda",
    "vllm_version": "0.33.0",
    "checkpoint_kv_dtype": "fp8_e4m3",
    "model_dtype": "bfloat16",
}
FITS = ProbeResult("fits", 83_968, 101_376, "compiled")
DOES_NOT_FIT = ProbeResult("does_not_fit", 102_400, 101_376, "compiled")
CANNOT_TELL = ProbeResult("cannot_tell", None, 101_376, "no Triton")


def decision(policy: str = "auto", **changes) -> KvDecision:
    return decide(policy, **{**KIMI, **changes})


def outcome(*args, **changes) -> tuple[str, str]:
    made = decision(*args, **changes)
    return made.checkpoint_state, made.kv_cache_dtype


def refused(*args, **changes) -> VllmHostError:
    with pytest.raises(VllmHostError) as error:
        decision(*args, **changes)
    return error.value


# Rule 3: dense MLA on compute capability 12.x.
@pytest.mark.parametrize(
    ("version", "state", "dtype"),
    [
        ("0.16.0", "stripped", "auto"),
        ("0.17.1", "stripped", "auto"),
        ("0.18.0", "original", "fp8_e4m3"),
        ("0.19.1", "original", "fp8_e4m3"),
        ("0.20.0", "stripped", "bfloat16"),
        ("0.32.0", "stripped", "bfloat16"),
        ("0.33.0", "stripped", "bfloat16"),
        ("v0.33.0", "stripped", "bfloat16"),
        ("0.33.0+cu130", "stripped", "bfloat16"),
    ],
)
@pytest.mark.parametrize("capability", ["12.0", "12.1"])
def test_dense_mla_on_sm12x_follows_the_table(version, state, dtype, capability):
    made = decision(vllm_version=version, compute_capability=capability)
    assert (made.checkpoint_state, made.kv_cache_dtype) == (state, dtype)
    assert made.source


def test_the_decision_names_sizes_and_source():
    made = decision()
    assert "102,400" in made.reason
    assert "101,376" in made.reason
    assert "sm_120" in made.source


# Rule 5: what the table does not know.
@pytest.mark.parametrize(
    ("version", "state", "said"),
    [
        ("0.33.1", "stripped", "nearest older row, 0.33.0"),
        ("1.0.0", "stripped", "nearest older row, 0.33.0"),
        ("0.20.0rc1", "stripped", "nearest older row, 0.20.0"),
        ("0.33.1.dev7+gabc", "stripped", "nearest older row, 0.33.0"),
        ("0.12.0", "stripped", "oldest row, 0.17.1"),
        ("nightly", "stripped", "newest row, 0.33.0"),
        ("", "stripped", "newest row, 0.33.0"),
    ],
)
def test_an_unknown_version_is_judged_by_a_row_and_says_so(version, state, said):
    made = decision(vllm_version=version)
    assert made.checkpoint_state == state
    assert said in made.reason


def test_a_probe_rules_over_the_table():
    fits = decision(vllm_version="0.34.0", probe_result=FITS)
    assert (fits.checkpoint_state, fits.kv_cache_dtype, fits.source) == (
        "original",
        "fp8_e4m3",
        "probe of the installed kernel",
    )
    assert "83,968" in fits.reason
    denied = decision(vllm_version="0.19.1", probe_result=DOES_NOT_FIT)
    assert (denied.checkpoint_state, denied.source) == ("stripped", "probe of the installed kernel")


def test_a_probe_that_cannot_tell_leaves_the_table():
    unclear = decision(vllm_version="0.34.0", probe_result=CANNOT_TELL)
    assert unclear.checkpoint_state == "stripped"
    assert "no Triton" in unclear.reason
    assert outcome(vllm_version="0.19.1", probe_result=CANNOT_TELL)[0] == "original"


def test_no_probe_makes_an_old_release_able():
    assert outcome(vllm_version="0.17.1", probe_result=FITS)[0] == "stripped"


def test_when_a_probe_is_wanted():
    asked = {key: value for key, value in KIMI.items() if key != "model_dtype"}
    assert not wants_probe(**asked)
    assert wants_probe(**asked, always=True)
    assert wants_probe(**{**asked, "vllm_version": "0.34.0"})
    assert decision(vllm_version="0.34.0").probe_useful
    assert not decision().probe_useful
    for change in (
        {"attention": "dsa"},
        {"compute_capability": "9.0"},
        {"compute_capability": None},
        {"device": "cpu"},
        {"checkpoint_kv_dtype": None},
        {"checkpoint_kv_dtype": "nvfp4"},
        {"vllm_version": "0.17.1"},
        {"engine_args": {"kv_cache_dtype": "bfloat16"}},
    ):
        assert not wants_probe(**{**asked, **change}, always=True), change
    assert wants_probe(**{**asked, "checkpoint_kv_dtype": None, "engine_args": {"kv-cache-dtype": "fp8"}}, always=True)


# Decode context parallel.
@pytest.mark.parametrize(("version", "state"), [("0.18.0", "stripped"), ("0.19.1", "stripped"), ("0.27.1", "stripped")])
def test_decode_context_parallel(version, state):
    assert outcome(vllm_version=version, dcp=2)[0] == state
    assert outcome(vllm_version=version, engine_args={"decode_context_parallel_size": 2})[0] == state


def test_decode_context_parallel_works_from_0_25_0():
    assert outcome(vllm_version="0.27.1", dcp=4, probe_result=FITS) == ("original", "fp8_e4m3")
    assert outcome(vllm_version="0.24.0", dcp=4, compute_capability="9.0")[0] == "stripped"
    assert outcome(vllm_version="0.25.0", dcp=4, compute_capability="9.0")[0] == "original"
    assert outcome(vllm_version="0.27.1", dcp=4, compute_capability="9.0")[0] == "original"


# Rule 2: DSA.
@pytest.mark.parametrize("declared", [None, "fp8_e4m3"])
@pytest.mark.parametrize("capability", ["12.0", "9.0", "10.0"])
def test_a_dsa_model_is_left_alone(declared, capability):
    assert outcome(attention="dsa", checkpoint_kv_dtype=declared, compute_capability=capability) == (
        "original",
        declared or "auto",
    )


def test_a_dsa_model_is_never_stripped_on_sm12x():
    assert refused("strip", attention="dsa").code == "kv_choice_known_to_fail"
    forced = decision("strip", attention="dsa", force=True)
    assert forced.checkpoint_state == "original"
    assert any("never stripped" in warning for warning in forced.warnings)
    for policy in ("auto", "keep", "strip"):
        made = decision(policy, attention="dsa", engine_args={"kv_cache_dtype": "bfloat16"}, force=True)
        assert made.checkpoint_state == "original"


def test_a_dsa_model_takes_its_own_dtypes_only():
    for dtype in ("fp8", "fp8_e4m3", "fp8_ds_mla"):
        assert outcome(attention="dsa", engine_args={"kv_cache_dtype": dtype}) == ("original", dtype)
    error = refused(attention="dsa", engine_args={"kv_cache_dtype": "bfloat16"})
    assert "fp8_ds_mla" in error.message
    assert outcome("strip", attention="dsa", compute_capability="9.0") == ("stripped", "bfloat16")


# Rule 4: everything else.
@pytest.mark.parametrize(
    "other",
    [
        {"attention": "other"},
        {"compute_capability": "9.0"},
        {"compute_capability": "10.0"},
        {"device": "cpu", "compute_capability": None},
        {"compute_capability": None},
    ],
)
@pytest.mark.parametrize("version", ["0.17.1", "0.22.1", "0.33.0", "nightly"])
def test_everything_else_is_as_shipped_and_says_it_aloud(other, version):
    assert outcome(vllm_version=version, **other) == ("original", "fp8_e4m3")


def test_nothing_declared_nothing_to_strip():
    assert outcome(checkpoint_kv_dtype=None) == ("original", "bfloat16")
    assert outcome(checkpoint_kv_dtype="auto", model_dtype="float16") == ("original", "float16")
    assert outcome(checkpoint_kv_dtype=None, attention="other") == ("original", "auto")
    assert outcome(checkpoint_kv_dtype=None, vllm_version="0.19.1") == ("original", "auto")


def test_a_quantization_that_the_backend_does_not_have_is_stripped():
    assert outcome(checkpoint_kv_dtype="nvfp4") == ("stripped", "bfloat16")
    assert outcome(checkpoint_kv_dtype="nvfp4", vllm_version="0.19.1") == ("stripped", "auto")


def test_an_old_gpu_is_warned_about():
    made = decision(compute_capability="8.0")
    assert made.checkpoint_state == "original"
    assert "8.9" in made.warnings[0]


def test_a_cpu_with_amx_is_warned_about():
    cpu = {"device": "cpu", "compute_capability": None, "amx": True}
    for made in (decision(**cpu), decision("keep", **cpu), decision(**cpu, engine_args={"kv_cache_dtype": "fp8"})):
        assert made.checkpoint_state == "original"
        assert "AMX" in made.warnings[0]
    for made in (decision(**cpu, attention="other"), decision(compute_capability="9.0", amx=True)):
        assert made.warnings == ()
    stripped = decision("strip", **cpu)
    assert (stripped.checkpoint_state, stripped.kv_cache_dtype) == ("stripped", "auto")
    assert "AMX" in stripped.warnings[0]


# Rule 1: the user's word.
def test_an_explicit_choice_wins_where_nothing_is_known_against_it():
    assert outcome(engine_args={"kv_cache_dtype": "bfloat16"}) == ("stripped", "bfloat16")
    assert outcome(engine_args={"kv-cache-dtype": "bfloat16"}, checkpoint_kv_dtype=None) == ("original", "bfloat16")
    assert outcome("keep", engine_args={"kv_cache_dtype": "bfloat16"}) == ("original", "bfloat16")
    assert outcome(engine_args={"kv_cache_dtype": "fp8"}, vllm_version="0.19.1") == ("original", "fp8")
    assert outcome("strip", engine_args={"kv_cache_dtype": "fp8"}, compute_capability="9.0") == ("stripped", "fp8")
    assert outcome(engine_args={"kv_cache_dtype": "auto"}) == outcome()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine_args": {"kv_cache_dtype": "fp8"}}, "102,400"),
        ({"engine_args": {"kv_cache_dtype": "fp8_e5m2"}}, "has no fp8_e5m2"),
        ({"engine_args": {"kv_cache_dtype": "fp8"}, "vllm_version": "0.17.1"}, "no FP8 cache"),
        ({"engine_args": {"kv_cache_dtype": "fp8"}, "vllm_version": "0.19.1", "dcp": 2}, "decode context parallel"),
        ({"engine_args": {"kv_cache_dtype": "fp8"}, "compute_capability": "8.0"}, "8.9"),
        ({"engine_args": {"kv_cache_dtype": "bfloat16"}, "vllm_version": "0.19.1"}, "plan_kv_cache_policy: strip"),
        ({"engine_args": {"kv_cache_dtype": "float16"}}, "nonsense"),
        ({"engine_args": {"kv_cache_dtype": "bfloat16", "dtype": "half"}}, "nonsense"),
        ({"policy": "keep"}, "plan_kv_cache_policy: keep"),
    ],
)
def test_a_choice_that_is_known_to_fail_is_refused_unless_it_is_forced(changes, says):
    policy = changes.pop("policy", "auto")
    error = refused(policy, **changes)
    assert error.code == "kv_choice_known_to_fail"
    assert says in error.message
    assert error.details["source"]
    forced = decision(policy, **changes, force=True)
    assert says in forced.warnings[0]
    assert forced.kv_cache_dtype == changes.get("engine_args", {}).get("kv_cache_dtype", "fp8_e4m3")


def test_a_probe_makes_an_explicit_choice_possible():
    assert outcome(engine_args={"kv_cache_dtype": "fp8"}, probe_result=FITS) == ("original", "fp8")
    assert outcome("keep", probe_result=FITS) == ("original", "fp8_e4m3")


# Rule 6, and its limits.
def test_the_policy_strip():
    assert outcome("strip", attention="other", device="cpu", compute_capability=None) == ("stripped", "bfloat16")
    silent = decision("strip", vllm_version="0.19.1")
    assert (silent.checkpoint_state, silent.kv_cache_dtype) == ("stripped", "auto")
    assert "#38922" in silent.warnings[0]
    unknown = decision("strip", model_dtype=None)
    assert (unknown.kv_cache_dtype, len(unknown.warnings)) == ("auto", 1)
    assert outcome("strip", engine_args={"dtype": "float16"}) == ("stripped", "float16")
    assert outcome("strip", model_dtype="torch.bfloat16") == ("stripped", "bfloat16")


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": "always"},
        {"attention": "gqa"},
        {"device": "rocm"},
        {"compute_capability": "sm_120"},
        {"engine_args": {"kv_cache_dtype": "fp9"}},
        {"checkpoint_kv_dtype": "int3"},
    ],
)
def test_bad_values_are_named(changes):
    policy = changes.pop("policy", "auto")
    error = refused(policy, **changes)
    assert error.code in ("kv_policy_invalid", "bad_engine_args")


def test_what_must_never_happen():
    """Over everything: 16 bit is never left to a checkpoint that says otherwise, DSA is never stripped on SM12x."""
    for policy, attention, capability, version, declared, probe, dcp in itertools.product(
        ("auto", "keep", "strip"),
        ("mla", "dsa", "other"),
        ("12.0", "9.0", "8.0", None),
        ("0.17.1", "0.19.1", "0.22.1", "0.33.0", "0.40.0", "?"),
        (None, "fp8_e4m3", "nvfp4"),
        (None, FITS, DOES_NOT_FIT, CANNOT_TELL),
        (1, 2),
    ):
        made = decide(
            policy,
            attention=attention,
            compute_capability=capability,
            device="cuda" if capability else "cpu",
            vllm_version=version,
            checkpoint_kv_dtype=declared,
            dcp=dcp,
            force=True,
            probe_result=probe,
            model_dtype="bfloat16",
        )
        assert made.reason
        assert made.source
        if attention == "dsa" and capability == "12.0":
            assert made.checkpoint_state == "original"
        if policy == "auto" and declared and made.kv_cache_dtype in ("auto", "bfloat16"):
            assert made.checkpoint_state == "stripped"
        if made.checkpoint_state == "stripped":
            assert made.kv_cache_dtype in ("auto", "bfloat16")
        if policy == "keep":
            assert made.checkpoint_state == "original"


def test_every_row_of_the_table_has_its_source():
    rows = kv_policy_data.TRITON_MLA_FP8_ON_SM12X
    assert [row.vllm for row in rows] == sorted(
        (row.vllm for row in rows), key=lambda v: [int(p) for p in v.split(".")]
    )
    for row in rows:
        assert row.source
        assert row.verdict in ("not_implemented", "fits", "does_not_fit")
        if row.shared_memory_bytes:
            fits = row.shared_memory_bytes <= kv_policy_data.SHARED_MEMORY_LIMIT_SM12X_BYTES
            assert row.verdict == ("fits" if fits else "does_not_fit")
