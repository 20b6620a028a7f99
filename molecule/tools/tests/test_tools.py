def test_python_of_the_modules(host):
    assert host.file("/opt/vllm/tools/bin/python").exists
