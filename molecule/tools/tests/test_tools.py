"""What a user sees of the modules' environment on a host."""

PYTHON = "/opt/vllm/tools/bin/python"


def test_the_collections_own_code_is_importable(host):
    command = host.run(f"{PYTHON} -c 'from gpuhost_vllm.errors import VllmHostError; print(VllmHostError.__name__)'")
    assert command.stdout.strip() == "VllmHostError", command.stderr


def test_the_real_nvml_client_sees_the_gpus(host):
    count = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    assert host.check_output(f"{PYTHON} -c '{count}'") == "8"


def test_only_root_can_change_it(host):
    tools = host.file("/opt/vllm/tools")
    assert (tools.user, tools.group, tools.mode) == ("root", "root", 0o755)
