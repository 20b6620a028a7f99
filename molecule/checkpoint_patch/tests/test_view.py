"""What a user finds on the host."""

from __future__ import annotations

EDITS = {
    ("config.json", "quantization_config.kv_cache_scheme", "removed"),
    ("hf_quant_config.json", "quantization.kv_cache_quant_algo", "set"),
}


def test_the_fact_names_the_view_and_its_edits(host, facts):
    view = facts["vllm_view"]
    assert {(edit["file"], edit["key"], edit["action"]) for edit in view["edits"]} == EDITS
    assert host.check_output("readlink -f /var/lib/vllm/checkpoints/demo--tiny-mla/views/tiny") == view["path"]


def test_the_view_declares_nothing_and_the_snapshot_still_does(facts, read_json):
    view, snapshot = facts["vllm_view"]["path"], facts["vllm_checkpoint"]["path"]
    assert "kv_cache_scheme" not in read_json(f"{view}/config.json")["quantization_config"]
    assert "kv_cache_scheme" in read_json(f"{snapshot}/config.json")["quantization_config"]
    patched = read_json(f"{view}/hf_quant_config.json")["quantization"]
    assert patched["kv_cache_quant_algo"] is None
    assert read_json(f"{snapshot}/hf_quant_config.json")["quantization"]["kv_cache_quant_algo"] == "FP8"


def test_shards_are_the_snapshot_s_own(host, facts):
    view, snapshot = facts["vllm_view"]["path"], facts["vllm_checkpoint"]["path"]
    for name in host.check_output(f"cd {snapshot} && ls *.safetensors").split():
        assert host.check_output(f"stat -c %i {view}/{name}") == host.check_output(f"stat -c %i {snapshot}/{name}")
    assert host.check_output(f"find {view} -type l") == ""


def test_a_folder_on_another_file_system_is_linked_symbolically(host):
    view = host.check_output("readlink -f /var/lib/vllm/views/smollm2-135m/smol")
    shards = host.check_output(f"find {view} -name '*.safetensors' -type l -printf '%l\\n'").split()
    assert len(shards) == 7
    assert all(not shard.startswith("/") for shard in shards)
    assert not host.file(f"{view}/config.json").is_symlink


def test_the_server_s_user_can_read_it(host, facts):
    for view in (facts["vllm_view"]["path"], "/var/lib/vllm/views/smollm2-135m/smol"):
        assert host.run(f"setpriv --reuid=65534 --regid=65534 --clear-groups sh -c 'cat {view}/* >/dev/null'").rc == 0
