"""A line for every row of the table, as the releases print it: `{id: [line, ...]}`."""

EXAMPLES: dict[str, list[str]] = {
    "kv_no_memory": [
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
    ],
    "kv_too_small": [
        "ValueError: To serve at least one request with the models's max seq len (262144), (17.16 GiB KV cache is needed, which is larger than "
        "the available KV cache memory (11.70 GiB). Based on the available memory, the estimated maximum model length is 178768. Try increasing",
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the "
        "available KV cache memory (12.49 GiB). Based on the available memory, the estimated maximum model length is 102304. Try increasing",
    ],
    "autofit_impossible": [
        "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token."
    ],
    "autofit": [
        "Auto-fit max_model_len: reduced from 262144 to 178768 to fit in available KV cache memory (11.70 GiB)",
        "Auto-fit max_model_len: full model context length 131072 fits in available KV cache memory (40.00 GiB)",
    ],
    "memory_not_free": [
        "ValueError: Free memory on device cuda:0 (98.77/139.8 GiB) on startup is less than desired GPU memory utilization (0.9, 125.82 GiB). "
        "Decrease GPU memory utilization or reduce GPU memory used by other processes."
    ],
    "memory_profile_disturbed": [
        "AssertionError: Error in memory profiling. Initial free memory 70.1 GiB, current free memory 71.0 GiB."
    ],
    "sampler_out_of_memory": [
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering"
    ],
    "gpu_out_of_memory": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: CUDA out of memory.",
    ],
    "graph_profiling": [
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9500 is equivalent to "
        "--gpu-memory-utilization=0.9301 without CUDA graph memory profiling. To maintain the same effective KV cache size as before, "
        "increase --gpu-memory-utilization to 0.9699. To disable, set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0."
    ],
    "graph_profiling_off": [
        "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0). Without it, CUDA graph"
    ],
    "graph_profiling_announced": ["In v0.19, CUDA graph memory profiling will be enabled by default."],
    "cpu_kv_too_large": [
        "ValueError: Available memory on node 0 (3.1/8.2 GiB) on kv cache allocation is less than requested memory for kv (4.0 GiB)"
    ],
    "host_out_of_memory": ["vllm-kimi.service: A process of this unit has been killed by the OOM killer."],
    "mla_fp8_unsupported": [
        "NotImplementedError: TritonMLA V1 with FP8 KV cache not yet supported",
        "NotImplementedError: FP8 Triton MLA not yet supported",
    ],
    "no_attention_backend": [
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576, dtype=torch.bfloat16, "
        "kv_cache_dtype=fp8, use_mla=True). Reasons: {FLASHMLA: [compute capability not supported], TRITON_MLA: [kv_cache_dtype not supported]}."
    ],
    "attention_backend_invalid": [
        "ValueError: Selected backend AttentionBackendEnum.FLASHMLA is not valid for this configuration. Reason: ['compute capability not supported']",
        "ValueError: Selected MLA prefill backend FLASH_ATTN is not valid for this configuration. Reason: ['ImportError']",
    ],
    "autotuner_tactic_skipped": [
        "[Autotuner]: Skipping tactic <flashinfer.fused_moe.core.MoERunner> 14, due to failure while profiling: [TensorRT-LLM][ERROR] Assertion "
        "failed: Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal",
        "[TensorRT-LLM][ERROR] Assertion failed: Failed to initialize cutlass TMA WS grouped gemm. Error: Error Internal",
    ],
    "illegal_instruction": [
        "torch.AcceleratorError: CUDA error: an illegal instruction was encountered",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ],
    "no_kernel_image": ["RuntimeError: CUDA error: no kernel image is available for execution on the device"],
    "fp4_not_native": ["Your GPU does not have native support for FP4 computation but FP4 quantization is being used."],
    "kv_quant_unknown": [
        "WARNING: Unknown kv_cache_quant_algo 'FP6' in model config. Supported values: ['FP8']. Falling back to 'auto'."
    ],
    "custom_all_reduce_pcie": [
        "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this warning,"
    ],
    "custom_all_reduce_no_p2p": [
        "Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed."
    ],
    "custom_all_reduce_world_size": [
        "Custom allreduce is disabled due to an unsupported world size: 5. Supported world sizes: [2, 4, 6, 8]."
    ],
    "symm_mem_unavailable": [
        "SymmMemCommunicator: Device capability 12.0 not supported, communicator is not available."
    ],
    "nccl_remote_died": [
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL version 2.27"
    ],
    "nccl_error": [
        "RuntimeError: NCCL error: unhandled system error",
        "ncclSystemError: System call (socket, malloc, munmap, etc) failed.",
    ],
    "worker_stalled": [
        "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging"
    ],
    "needs_remote_code": [
        "RuntimeError: Failed to load the model config. If the model is a custom model not yet available in the HuggingFace transformers "
        "library, consider setting `trust_remote_code=True` in LLM or using the `--trust-remote-code` flag in the CLI.",
        "ValueError: The repository /x requires you to execute the configuration file in that repo on your local machine.",
    ],
    "architecture_unsupported": [
        "ValueError: Model architectures ['FooForCausalLM'] are not supported for now. Supported architectures: dict_keys([])"
    ],
    "architecture_removed": [
        "ValueError: Model architecture BarForCausalLM was supported in vLLM until v0.30.1, and is not supported anymore."
    ],
    "transformers_fallback": [
        "BazForCausalLM has no vLLM implementation, falling back to Transformers implementation."
    ],
    "transformers_too_old": [
        "ValueError: The checkpoint has model type `x` but Transformers does not recognize this architecture."
    ],
    "max_model_len_too_large": [
        "Value error, User-specified max_model_len (200000) is greater than the derived max_model_len (max_position_embeddings=131072.0 or "
        "model_max_length=None in model's config.json)."
    ],
    "heads_not_divisible": [
        "Value error, Total number of attention heads (40) must be divisible by tensor parallel size (6)."
    ],
    "too_few_gpus": ["Value error, World size (8) is larger than the number of available GPUs (4) in this node."],
    "kv_padding_layers": ["Add 3 padding layers, may waste at most 12.50% KV cache memory"],
    "hybrid_kv_disabled": [
        "Hybrid KV cache manager is disabled for this hybrid model, This means we do not enable any optimizations"
    ],
    "port_retry": ["Address already in use. Retrying with a new port."],
    "port_in_use": [
        "OSError: [Errno 98] Address already in use",
        "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
    ],
    "option_unknown": [
        "vllm: error: unrecognized arguments: --kv-cache-typ",
        "api_server.py: error: argument --port: invalid int value: 'x'",
    ],
    "shared_library_missing": ["ImportError: libnuma.so.1: cannot open shared object file: No such file or directory"],
    "native_ops_missing": ["AttributeError: '_OpNamespace' '_C' object has no attribute 'init_cpu_threads_env'"],
    "weights_cut": [
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered"
    ],
    "engine_died": [
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        "EngineCore encountered a fatal error.",
    ],
    "worker_start_failed": [
        "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.",
        "WorkerProc failed to start.",
    ],
    "engine_start_failed": [
        "EngineCore failed to start.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}",
    ],
    "engine_ready_timeout": [
        "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight loading for large models. "
        "Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S)."
    ],
    "start_timed_out": ["vllm-kimi.service: start-post operation timed out. Terminating."],
    "worker_died": [
        "(EngineCore pid=273) ERROR 12-02 07:42:15 [multiproc_executor.py:315] Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting "
        "down executor.",
        "Worker proc VllmWorker-0 died unexpectedly (exit code: -11), shutting down executor.",
        "ERROR 06-01 03:50:07 [multiproc_executor.py:154] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
        "RayWorkerProc rank=3 died unexpectedly, shutting down executor.",
    ],
    "engine_exited": [
        "MPClient: engine core exited unexpectedly; starting cleanup",
        "(APIServer pid=19) ERROR 12-02 03:50:07 [core_client.py:607] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
    ],
    "server_killed": ["vllm-kimi.service: Main process exited, code=killed, status=9/KILL"],
    "process_exited": ["vllm-kimi.service: Main process exited, code=exited, status=1/FAILURE"],
}
