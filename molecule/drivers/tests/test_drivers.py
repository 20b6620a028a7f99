def test_the_satisfied_driver_was_left_alone(host):
    assert not host.file("/etc/apt/preferences.d/gpuhost-vllm-nvidia").exists
