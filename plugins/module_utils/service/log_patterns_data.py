# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM's log says, as a table: one row a message, with its meaning, its remedy and where it was read.

The table holds knowledge only; `log_triage` applies it. `anchor` is a literal that every matching line contains: it is what makes
a journal of 100 MB quick to read, so it must be rare in ordinary lines. `{name}` in `remedy` is a named group of `regex`.

Releases 0.15.1 to 0.33.0 are covered. `since` and `until` name the first and the last release that prints the row's wording; both
empty means all of them. Rows are matched in order and the first match of a line wins, so a special case stands above the general one.
"""

from __future__ import annotations

from typing import NamedTuple

HARMLESS = "harmless"
DEGRADED = "degraded"
FATAL = "fatal"

# How much a row says about the cause of a failure.
WRAPPER = 0  # a consequence: something else failed first
GENERIC = 1  # a cause, but another exception of the same chain may say it better
SPECIFIC = 2  # the cause, with its numbers
CERTAIN = 3  # the cause, even if others were told before it: what tells it comes late


class LogPattern(NamedTuple):
    """One row of the table."""

    id: str
    severity: str
    anchor: str
    regex: str
    meaning: str
    remedy: str
    source: str
    rank: int = SPECIFIC
    since: str = ""
    until: str = ""
    ends: bool = False  # the server is gone, even if it was ready; a WRAPPER says so too
    expected: bool = False  # normal on some hosts: shown, but it does not colour the verdict


_KV = "vllm/v1/core/kv_cache_utils.py (0.33: kv_cache_planning)"
_CUSTOM_ALL_REDUCE = "vllm/distributed/device_communicators/custom_all_reduce.py"

PATTERNS: tuple[LogPattern, ...] = (
    # --- memory -------------------------------------------------------------------------------------------------------
    LogPattern(
        id="kv_no_memory",
        severity=FATAL,
        anchor="No available memory for the cache blocks",
        regex=r"No available memory for the cache blocks\.",
        meaning="Weights and working memory leave nothing for the KV cache at this GPU memory utilization.",
        remedy="Raise gpu_memory_utilization, spread the model over more GPUs, take a smaller quantization, or lower max_num_seqs "
        "and max_num_batched_tokens; a vision model also gains from language_model_only or fewer multimodal items.",
        source=_KV,
    ),
    LogPattern(
        id="kv_too_small",
        severity=FATAL,
        anchor="To serve at least one request with the model",
        regex=r"To serve at least one request with the models?'s max seq len \((?P<max_model_len>\d+)\), "
        r"\((?P<needed_gib>[\d.]+) GiB KV cache is needed, which is larger than the available KV cache memory "
        r"\((?P<available_gib>[\d.]+) GiB\)\.(?: Based on the available memory, the estimated maximum model length is "
        r"(?P<fit>\d+)\.)?",
        meaning="The KV cache of a single request of full length does not fit into the memory that is left.",
        remedy="Set max_model_len to {fit} or less (the estimate of vLLM itself), or use an FP8 KV cache, decode context "
        "parallelism or more GPUs.",
        source=_KV + '; "models\'s" through 0.21.0, "model\'s" from 0.22.1',
    ),
    LogPattern(
        id="autofit_impossible",
        severity=FATAL,
        anchor="Cannot auto-fit max_model_len",
        regex=r"Cannot auto-fit max_model_len: not enough GPU memory",
        meaning="max_model_len was to be fitted to the memory, and not even one token fits.",
        remedy="As for a KV cache without memory: raise gpu_memory_utilization, use more GPUs or a smaller quantization.",
        source=_KV,
    ),
    LogPattern(
        id="autofit",
        severity=HARMLESS,
        anchor="Auto-fit max_model_len",
        regex=r"Auto-fit max_model_len: (?:reduced from (?P<wanted>\d+) to (?P<fit>\d+)"
        r"|full model context length (?P<full>\d+) fits)",
        meaning="vLLM fitted max_model_len to the memory itself.",
        remedy="Nothing to do; write the length down to keep it across releases.",
        source=_KV,
    ),
    LogPattern(
        id="memory_not_free",
        severity=FATAL,
        anchor=" on startup is less than ",
        regex=r"Free memory on device (?P<device>\S+) \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup is less than "
        r"(?:desired GPU memory utilization|the engine's budget).*?\((?P<utilization>[\d.]+), (?P<wanted_gib>[\d.]+) GiB\)",
        meaning="Something else holds memory of {device}: {free_gib} of {total_gib} GiB are free, {wanted_gib} GiB are wanted.",
        remedy="Stop what holds it (nvidia-smi lists it; a dead server's memory needs some seconds), or lower "
        "gpu_memory_utilization below {free_gib}/{total_gib}.",
        source="vllm/v1/worker/utils.py request_memory",
    ),
    LogPattern(
        id="memory_profile_disturbed",
        severity=FATAL,
        anchor="Error in memory profiling",
        regex=r"Error in memory profiling\. Initial free memory",
        meaning="Another process freed GPU memory while vLLM measured it.",
        remedy="Start the instances of a host one after the other.",
        source="vllm/v1/worker/gpu_worker.py",
    ),
    LogPattern(
        id="sampler_out_of_memory",
        severity=FATAL,
        anchor="out of memory occurred when warming up sampler",
        regex=r"CUDA out of memory occurred when warming up sampler with (?P<requests>\d+) dummy requests",
        meaning="max_num_seqs ({requests}) times the vocabulary needs more memory than is left.",
        remedy="Lower max_num_seqs or gpu_memory_utilization.",
        source="vllm/v1/worker/gpu_model_runner.py",
    ),
    LogPattern(
        id="gpu_out_of_memory",
        severity=FATAL,
        anchor="OutOfMemoryError",
        regex=r"torch\.(?:cuda\.)?OutOfMemoryError",
        meaning="The GPU ran out of memory while loading, capturing graphs or computing.",
        remedy="Lower gpu_memory_utilization or max_num_batched_tokens; enforce_eager as a test tells whether graphs are to blame.",
        source="torch",
        rank=GENERIC,
    ),
    LogPattern(
        id="gpu_out_of_memory",
        severity=FATAL,
        anchor="CUDA out of memory",
        regex=r"CUDA out of memory",
        meaning="The GPU ran out of memory while loading, capturing graphs or computing.",
        remedy="Lower gpu_memory_utilization or max_num_batched_tokens; enforce_eager as a test tells whether graphs are to blame.",
        source="torch",
        rank=GENERIC,
    ),
    LogPattern(
        id="graph_profiling",
        severity=HARMLESS,
        anchor="CUDA graph memory profiling",
        regex=r"CUDA graph memory profiling is enabled.*?increase --gpu-memory-utilization to (?P<suggested>[\d.]+)",
        meaning="Memory of CUDA graphs is deducted from the KV cache, so the same utilization gives less cache than before 0.20.",
        remedy="For the cache size of older releases set gpu_memory_utilization to {suggested}.",
        source="vllm/v1/worker/gpu_worker.py",
        since="0.20",
    ),
    LogPattern(
        id="graph_profiling_off",
        severity=DEGRADED,
        anchor="CUDA graph memory profiling",
        regex=r"CUDA graph memory profiling is disabled \(VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0\)",
        meaning="Memory of CUDA graphs is not deducted from the KV cache and may run out later.",
        remedy="Remove VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0, or keep 1 to 2 GiB free.",
        source="vllm/v1/worker/gpu_worker.py",
        since="0.20",
    ),
    LogPattern(
        id="graph_profiling_announced",
        severity=HARMLESS,
        anchor="CUDA graph memory profiling",
        regex=r"In v0\.19, CUDA graph memory profiling will be enabled",
        meaning="From the next releases on the same utilization gives less KV cache, because CUDA graphs are counted.",
        remedy="Raise gpu_memory_utilization by the difference that the line states when upgrading.",
        source="vllm/v1/worker/gpu_worker.py",
        since="0.18",
        until="0.20",
    ),
    LogPattern(
        id="cpu_kv_too_large",
        severity=FATAL,
        anchor="Available memory on node ",
        regex=r"Available memory on node \S+ \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on kv cache allocation is less than "
        r"requested memory for kv",
        meaning="The host has {free_gib} of {total_gib} GiB free, less than the KV cache that was asked for.",
        remedy="Lower VLLM_CPU_KVCACHE_SPACE or kv_cache_memory_bytes, or free memory on the host.",
        source="vllm/v1/worker/cpu_worker.py [read in 0.32.0]",
    ),
    LogPattern(
        id="host_out_of_memory",
        severity=FATAL,
        anchor="killed by the OOM killer",
        regex=r"A process of this unit has been killed by the OOM killer",
        meaning="The host ran out of main memory and the kernel killed a process of the unit.",
        remedy="Give the host more memory or swap, lower the CPU offload and KV space, or load with fewer workers at a time.",
        source="systemd, src/core/unit.c",
        rank=CERTAIN,
        ends=True,
    ),
    # --- attention and kernels ----------------------------------------------------------------------------------------
    LogPattern(
        id="mla_fp8_unsupported",
        severity=FATAL,
        anchor="not yet supported",
        regex=r"TritonMLA V1 with FP8 KV cache not yet supported|FP8 Triton MLA not yet supported",
        meaning="TRITON_MLA, the only MLA backend of compute capability 12.x, cannot use an FP8 KV cache in this release.",
        remedy="Set kv_cache_dtype to bfloat16, or use vLLM 0.18.1 or newer.",
        source="vllm/v1/attention/backends/mla/triton_mla.py",
        until="0.17.1",
    ),
    LogPattern(
        id="no_attention_backend",
        severity=FATAL,
        anchor="No valid attention backend found",
        regex=r"No valid attention backend found for (?P<device>\w+) with (?:AttentionSelectorConfig\()?(?P<config>.*?)\)?\. "
        r"Reasons: \{(?P<reasons>.*)\}",
        meaning="No attention backend takes this head size, dtype and KV cache dtype on {device}: {reasons}.",
        remedy="Change kv_cache_dtype, the attention backend or the release.",
        source="vllm/platforms/cuda.py",
    ),
    LogPattern(
        id="attention_backend_invalid",
        severity=FATAL,
        anchor=" is not valid for this configuration",
        regex=r"Selected (?:MLA prefill )?(?:backend )?(?P<backend>\S+) is not valid for this configuration\. Reason: (?P<reason>.*)",
        meaning="The attention backend {backend} was forced and cannot be used: {reason}",
        remedy="Remove the attention backend from the options and let vLLM choose.",
        source="vllm/platforms/cuda.py; vllm/v1/attention/backends/mla/prefill/selector.py",
    ),
    LogPattern(
        id="autotuner_tactic_skipped",
        severity=HARMLESS,
        anchor="[Autotuner]: Skipping tactic",
        regex=r"\[Autotuner\]: Skipping tactic .*due to failure while profiling",
        meaning="FlashInfer tried kernels that need more shared memory than this GPU has and uses others (known on SM120).",
        remedy="Nothing to do; only if an illegal instruction follows, disable the FlashInfer autotuner.",
        source="flashinfer; flashinfer#2077, cutlass#2692",
    ),
    LogPattern(
        id="autotuner_tactic_skipped",
        severity=HARMLESS,
        anchor="Failed to initialize cutlass TMA WS grouped gemm",
        regex=r"Failed to initialize cutlass TMA WS grouped gemm",
        meaning="FlashInfer tried kernels that need more shared memory than this GPU has and uses others (known on SM120).",
        remedy="Nothing to do; only if an illegal instruction follows, disable the FlashInfer autotuner.",
        source="flashinfer; flashinfer#2077, cutlass#2692",
    ),
    LogPattern(
        id="illegal_instruction",
        severity=FATAL,
        anchor="CUDA error: an illegal",
        regex=r"CUDA error: an illegal (?P<what>instruction|memory access) was encountered",
        meaning="A kernel executed an illegal {what}: a defect of a kernel, a build for other GPUs, or a stale JIT cache.",
        remedy="Empty the instance's JIT cache, disable the FlashInfer autotuner, then try another attention or MoE backend.",
        source="CUDA runtime; flashinfer#4049, #3558",
    ),
    LogPattern(
        id="no_kernel_image",
        severity=FATAL,
        anchor="no kernel image is available",
        regex=r"no kernel image is available for execution on the device",
        meaning="The build holds no code for this GPU's compute capability.",
        remedy="Install a build for this GPU; vllm_install_info names the compiled architectures.",
        source="CUDA runtime",
    ),
    LogPattern(
        id="fp4_not_native",
        severity=DEGRADED,
        anchor="native support for FP4",
        regex=r"Your GPU does not have native support for FP4 computation",
        meaning="NVFP4 weights are expanded on the fly (Marlin): correct, but slower.",
        remedy="Expected on Hopper; on compute capability 10.x and 12.x the build lacks the FP4 kernels: use another build.",
        source="vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py",
    ),
    LogPattern(
        id="kv_quant_unknown",
        severity=DEGRADED,
        anchor="Unknown kv_cache_quant_algo",
        regex=r"Unknown kv_cache_quant_algo '(?P<algo>.*?)' in model config",
        meaning="The checkpoint asks for the KV cache quantization {algo}, which this release does not know: the cache is 16 bit.",
        remedy="Set kv_cache_dtype explicitly.",
        source="vllm/utils/torch_utils.py",
    ),
    # --- GPUs talking to each other -----------------------------------------------------------------------------------
    LogPattern(
        id="custom_all_reduce_pcie",
        severity=DEGRADED,
        anchor="Custom allreduce is disabled",
        regex=r"Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs",
        meaning="More than two GPUs without NVLink: NCCL does the all-reduce, as expected on such a host.",
        remedy="disable_custom_all_reduce: true says the same explicitly and silences the line.",
        source=_CUSTOM_ALL_REDUCE,
        expected=True,
    ),
    LogPattern(
        id="custom_all_reduce_no_p2p",
        severity=DEGRADED,
        anchor="Custom allreduce is disabled",
        regex=r"Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed",
        meaning="The GPUs cannot read each other's memory, so every all-reduce goes through the host.",
        remedy="Look at `nvidia-smi topo -p2p r`; ACS or the IOMMU redirect peer traffic, or the driver has P2P off.",
        source=_CUSTOM_ALL_REDUCE,
    ),
    LogPattern(
        id="custom_all_reduce_world_size",
        severity=DEGRADED,
        anchor="Custom allreduce is disabled",
        regex=r"Custom allreduce is disabled due to an unsupported world size: (?P<size>\d+)",
        meaning="The custom all-reduce knows 2, 4, 6 and 8 GPUs, not {size}: NCCL does it.",
        remedy="Nothing to do, or another tensor_parallel_size.",
        source=_CUSTOM_ALL_REDUCE,
        expected=True,
    ),
    LogPattern(
        id="symm_mem_unavailable",
        severity=DEGRADED,
        anchor="communicator is not available",
        regex=r"SymmMemCommunicator: .*communicator is not available",
        meaning="Symmetric memory is not used with this GPU or number of GPUs.",
        remedy="Nothing to do.",
        source="vllm/distributed/device_communicators/symm_mem.py",
        expected=True,
    ),
    LogPattern(
        id="nccl_remote_died",
        severity=FATAL,
        anchor="remote process exited or there was a network error",
        regex=r"remote process exited or there was a network error",
        meaning="NCCL lost another worker: that worker failed first.",
        remedy="Look for the first error of another worker above.",
        source="NCCL, through torch's ProcessGroupNCCL",
        rank=WRAPPER,
    ),
    LogPattern(
        id="nccl_error",
        severity=FATAL,
        anchor="NCCL error:",
        regex=r"NCCL error: (?P<reason>.*)",
        meaning="The GPUs cannot talk to each other: {reason}",
        remedy="Run with NCCL_DEBUG=INFO; look at /dev/shm, P2P and the driver; NCCL_P2P_DISABLE=1 together with "
        "disable_custom_all_reduce as a test.",
        source="vllm/distributed/device_communicators/pynccl_wrapper.py",
    ),
    LogPattern(
        id="nccl_error",
        severity=FATAL,
        anchor="nccl",
        regex=r"(?P<reason>ncclSystemError|ncclUnhandledCudaError|ncclInternalError)",
        meaning="The GPUs cannot talk to each other: {reason}.",
        remedy="Run with NCCL_DEBUG=INFO; look at /dev/shm, P2P and the driver; NCCL_P2P_DISABLE=1 together with "
        "disable_custom_all_reduce as a test.",
        source="torch",
    ),
    LogPattern(
        id="worker_stalled",
        severity=DEGRADED,
        anchor="No available shared memory broadcast block found",
        regex=r"No available shared memory broadcast block found",
        meaning="A worker is busy (compiling, loading) or dead; the others wait for it.",
        remedy="Wait; if it lasts, look at what the workers last did.",
        source="vllm/distributed/device_communicators/shm_broadcast.py",
    ),
    # --- model and options --------------------------------------------------------------------------------------------
    LogPattern(
        id="needs_remote_code",
        severity=FATAL,
        anchor="custom model not yet available",
        regex=r"Failed to load the model config\. If the model is a custom model .*trust_remote_code",
        meaning="The checkpoint brings its own Python code, which vLLM does not run unasked.",
        remedy="Review that code, then set trust_remote_code: true.",
        source="vllm/transformers_utils/config.py",
    ),
    LogPattern(
        id="needs_remote_code",
        severity=FATAL,
        anchor="requires you to execute the configuration file",
        regex=r"requires you to execute the configuration file",
        meaning="The checkpoint brings its own Python code, which vLLM does not run unasked.",
        remedy="Review that code, then set trust_remote_code: true.",
        source="transformers",
        rank=GENERIC,
    ),
    LogPattern(
        id="architecture_unsupported",
        severity=FATAL,
        anchor=" are not supported for now",
        regex=r"Model architectures (?P<architectures>\[.*?\]) are not supported for now",
        meaning="This vLLM does not know the architecture {architectures}.",
        remedy="Use a newer vLLM release.",
        source="vllm/model_executor/models/registry.py",
    ),
    LogPattern(
        id="architecture_removed",
        severity=FATAL,
        anchor="was supported in vLLM until",
        regex=r"Model architecture (?P<architecture>\S+) was supported in vLLM until v(?P<version>\S+?),",
        meaning="vLLM dropped the architecture {architecture} after {version}.",
        remedy="Set vllm_version to {version}.",
        source="vllm/model_executor/models/registry.py [0.32, 0.33]",
    ),
    LogPattern(
        id="transformers_fallback",
        severity=DEGRADED,
        anchor="has no vLLM implementation",
        regex=r"(?P<architecture>\S+) has no vLLM implementation, falling back to Transformers",
        meaning="{architecture} runs through Transformers: slower, with fewer features.",
        remedy="Use a vLLM release that knows the architecture.",
        source="vllm/model_executor/model_loader/utils.py",
    ),
    LogPattern(
        id="transformers_too_old",
        severity=FATAL,
        anchor="not recognize this architecture",
        regex=r"does not recognize this architecture",
        meaning="The transformers library of this release does not know the checkpoint's model_type.",
        remedy="Use a newer vLLM release (it brings a newer transformers).",
        source="transformers",
    ),
    LogPattern(
        id="max_model_len_too_large",
        severity=FATAL,
        anchor="User-specified max_model_len",
        regex=r"User-specified max_model_len \((?P<wanted>\d+)\) is greater than the derived max_model_len "
        r"\((?P<key>\w+)=(?P<limit>[\d.]+)",
        meaning="max_model_len {wanted} is more than the model was made for ({key} = {limit}).",
        remedy="Lower max_model_len to the model's own limit.",
        source="vllm/config/model.py",
    ),
    LogPattern(
        id="heads_not_divisible",
        severity=FATAL,
        anchor="Total number of attention heads",
        regex=r"Total number of attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<tp>\d+)\)",
        meaning="{heads} attention heads cannot be divided among {tp} GPUs.",
        remedy="Choose a tensor_parallel_size that divides {heads}, or split by pipeline_parallel_size.",
        source="vllm/config/model.py",
    ),
    LogPattern(
        id="too_few_gpus",
        severity=FATAL,
        anchor="is larger than the number of",
        regex=r"World size \((?P<size>\d+)\) is larger than the number of available GPUs \((?P<gpus>\d+)\)",
        meaning="{size} GPUs are asked for and {gpus} are visible.",
        remedy="Lower tensor_parallel_size times pipeline_parallel_size, or make the GPUs visible (vllm_gpus, CUDA_VISIBLE_DEVICES).",
        source="vllm/config/parallel.py",
    ),
    LogPattern(
        id="kv_padding_layers",
        severity=DEGRADED,
        anchor="padding layers, may waste",
        regex=r"Add (?P<layers>\d+) padding layers, may waste at most (?P<percent>[\d.]+)% KV cache memory",
        meaning="Layers of different kinds do not pair up evenly: up to {percent} % of the KV cache is unused.",
        remedy="Nothing to do.",
        source=_KV,
        expected=True,
    ),
    LogPattern(
        id="hybrid_kv_disabled",
        severity=DEGRADED,
        anchor="Hybrid KV cache manager is disabled",
        regex=r"Hybrid KV cache manager is disabled for this hybrid model",
        meaning="Sliding-window layers keep the whole context, so the cache holds a fraction of the tokens it could.",
        remedy="Remove disable_hybrid_kv_cache_manager, or the connector that forces it.",
        source=_KV,
    ),
    LogPattern(
        id="port_retry",
        severity=HARMLESS,
        anchor="ddress already in use",
        regex=r"Address already in use\. Retrying with a new port",
        meaning="An internal port was taken; vLLM takes another one.",
        remedy="Nothing to do.",
        source="vllm/config/parallel.py",
    ),
    LogPattern(
        id="port_in_use",
        severity=FATAL,
        anchor="ddress already in use",
        regex=r"\[Errno 98\].*address already in use|Address already in use\b",
        meaning="Another process listens on the API port.",
        remedy="Stop it (`ss -ltnp` names it) or set another vllm_port.",
        source="the operating system, through uvicorn",
    ),
    LogPattern(
        id="option_unknown",
        severity=FATAL,
        anchor=": error: ",
        regex=r"\S+: error: (?P<what>unrecognized arguments|argument |the following arguments|ambiguous option|Unknown arguments?)"
        r"(?P<rest>.*)",
        meaning="This release refuses an option of the configuration: {what}{rest}",
        remedy="Remove or correct that key of vllm_engine_args; `vllm serve --help=all` of the release lists what it knows.",
        source="Python's argparse",
    ),
    LogPattern(
        id="shared_library_missing",
        severity=FATAL,
        anchor="cannot open shared object file",
        regex=r"(?P<library>[\w.+-]+\.so[.\d]*): cannot open shared object file",
        meaning="The shared library {library} is not installed or not found.",
        remedy="Install the OS package that holds {library}.",
        source="the dynamic loader",
    ),
    LogPattern(
        id="native_ops_missing",
        severity=FATAL,
        anchor="_OpNamespace",
        regex=r"'_OpNamespace' '(?P<namespace>\w+)' object has no attribute '(?P<op>\w+)'",
        meaning="vLLM's compiled part could not be loaded (operation {op}): a missing OS library such as libnuma1, or a mixed install.",
        remedy="Install the OS packages of the vllm_install role; vllm_install_info tells whether the install is whole.",
        source="torch; seen with vllm-cpu 0.32.0 without libnuma1 [ran]",
    ),
    LogPattern(
        id="weights_cut",
        severity=FATAL,
        anchor="SafetensorError",
        regex=r"SafetensorError: (?P<reason>.*)",
        meaning="A weight file is not whole: {reason}",
        remedy="Verify the checkpoint in full (checkpoint_fetch with verify: full).",
        source="safetensors",
    ),
    # --- the server's own life ----------------------------------------------------------------------------------------
    LogPattern(
        id="engine_died",
        severity=FATAL,
        anchor="EngineCore encountered an issue",
        regex=r"EngineCore encountered an issue\. See stack trace \(above\)",
        meaning="The engine died while the server was up.",
        remedy="Look at the first error above this line.",
        source="vllm/v1/engine/exceptions.py",
        rank=WRAPPER,
    ),
    LogPattern(
        id="engine_died",
        severity=FATAL,
        anchor="EngineCore encountered a fatal error",
        regex=r"EngineCore encountered a fatal error\.",
        meaning="The engine died while the server was up.",
        remedy="Look at the first error above this line.",
        source="vllm/v1/engine/core.py",
        rank=WRAPPER,
    ),
    LogPattern(
        id="worker_start_failed",
        severity=FATAL,
        anchor="WorkerProc ",
        regex=r"WorkerProc initialization failed due to an exception in a background process|WorkerProc failed to start",
        meaning="A worker failed at its start.",
        remedy="Look at the first error above this line.",
        source="vllm/v1/executor/multiproc_executor.py",
        rank=WRAPPER,
    ),
    LogPattern(
        id="engine_start_failed",
        severity=FATAL,
        anchor="EngineCore failed to start",
        regex=r"EngineCore failed to start\.",
        meaning="The engine failed at its start.",
        remedy="Look at the first error above this line.",
        source="vllm/v1/engine/core.py",
        rank=WRAPPER,
    ),
    LogPattern(
        id="engine_start_failed",
        severity=FATAL,
        anchor="See root cause above",
        regex=r"(?:Engine core initialization failed|Frontend process failed during engine core initialization)\. See root cause above",
        meaning="The engine failed at its start.",
        remedy="Look at the first error above this line.",
        source="vllm/v1/engine/utils.py",
        rank=WRAPPER,
    ),
    LogPattern(
        id="engine_ready_timeout",
        severity=FATAL,
        anchor="Timed out waiting for engine",
        regex=r"Timed out waiting for engine core processes to start.*?Waited (?P<seconds>\d+)\s?s",
        meaning="The API server waited {seconds} s for its engine, which was still loading or hung.",
        remedy="Look at what the workers last did; if they were still loading, raise VLLM_ENGINE_READY_TIMEOUT_S (the serve role sets it from "
        "serve_start_timeout_s).",
        source="vllm/v1/engine/utils.py; vllm#32116, #44751",
        rank=GENERIC,
    ),
    LogPattern(
        id="start_timed_out",
        severity=FATAL,
        anchor="operation timed out. Terminating",
        regex=r"(?P<operation>start(?:-pre|-post)?) operation timed out\. Terminating",
        meaning="systemd gave up waiting for the service ({operation}).",
        remedy="Look at what the log last did; if the load was still running, raise serve_start_timeout_s.",
        source="systemd, src/core/service.c",
        rank=GENERIC,
    ),
    LogPattern(
        id="worker_died",
        severity=FATAL,
        anchor="died unexpectedly",
        regex=r"Worker ?[Pp]roc (?:rank=)?(?P<worker>\S+) died unexpectedly \(exit code: -9\)",
        meaning="The worker {worker} was killed from outside: by the kernel, when the host or its container ran out of main memory, or by hand.",
        remedy="Look for 'Killed process' in the kernel's log (journalctl -k, on the container's host too). Give the host more memory, or lower the CPU "
        "offload and KV space.",
        source="vllm/v1/executor/multiproc_executor.py [ran: kernel's OOM killer, 0.32.0]",
        rank=GENERIC,
        ends=True,
    ),
    LogPattern(
        id="worker_died",
        severity=FATAL,
        anchor="died unexpectedly",
        regex=r"Worker ?[Pp]roc (?:rank=)?(?P<worker>\S+) died unexpectedly",
        meaning="The worker {worker} ended without a Python error: killed, most often for lack of main memory, or crashed in compiled code.",
        remedy="Look for 'Killed process', 'segfault' or 'Xid' in the kernel's log (journalctl -k, on the container's host too).",
        source="vllm/v1/executor/multiproc_executor.py, ray_executor_v2.py",
        rank=GENERIC,
        ends=True,
    ),
    LogPattern(
        id="engine_exited",
        severity=FATAL,
        anchor="unexpectedly",
        regex=r"engine core exited unexpectedly|Engine core proc \S+ died unexpectedly",
        meaning="The engine process ended. If no error stands above, it was killed: by the kernel for lack of main memory, or by hand.",
        remedy="Look for 'Killed process' in the kernel's log (journalctl -k, on the container's host too).",
        source="vllm/v1/engine/core_client.py",
        rank=WRAPPER,
    ),
    LogPattern(
        id="server_killed",
        severity=FATAL,
        anchor="process exited, code=killed",
        regex=r"Main process exited, code=killed, status=9/KILL",
        meaning="The server process was killed from outside: by the kernel, when the host or its container ran out of main memory, or by hand.",
        remedy="Look for 'Killed process' in the kernel's log (journalctl -k, on the container's host too).",
        source="systemd, src/core/service.c [ran]",
        rank=GENERIC,
        ends=True,
    ),
    LogPattern(
        id="process_exited",
        severity=FATAL,
        anchor="process exited, code=",
        regex=r"Main process exited, code=(?P<how>exited|killed|dumped), status=(?P<status>(?!0/SUCCESS|15/TERM)\S+)",
        meaning="The server process ended ({how}, {status}).",
        remedy="Look at the first error above this line.",
        source="systemd, src/core/service.c",
        rank=WRAPPER,
    ),
)

# Figures that vLLM prints about itself: (key, anchor, regex). log_triage.measured says what becomes of each key.
MEASURED: tuple[tuple[str, str, str], ...] = (
    (
        "weights",
        "Model loading took",
        r"Model loading took (?P<gib>[\d.]+) GiB(?: memory)? and (?P<seconds>[\d.]+) seconds",
    ),
    ("weights_read", "Loading weights took", r"Loading weights took (?P<seconds>[\d.]+) seconds"),
    ("available_kv", "Available KV cache memory", r"Available KV cache memory: (?P<gib>-?[\d.]+) GiB"),
    (
        "cpu_kv",
        " GiB for KV cache on node",
        r"(?:Explicitly|Auto) set \((?P<gib>[\d.]+)/[\d.]+\) GiB for KV cache on node",
    ),
    ("kv_tokens", " KV cache size: ", r"(?P<device>[A-Z]+)(?: \+ host)? KV cache size: (?P<tokens>[\d,]+) tokens"),
    (
        "concurrency",
        "Maximum concurrency for ",
        r"Maximum concurrency for (?P<max_model_len>[\d,]+) tokens per request: (?P<concurrency>[\d.]+)x",
    ),
    (
        "graph",
        "Graph capturing finished",
        r"Graph capturing finished in (?P<seconds>\d+) secs, took (?P<gib>-?[\d.]+) GiB",
    ),
    ("backend", " attention backend out of", r"Using (?P<backend>\S+) attention backend out of potential backends"),
    ("init_engine", "init engine (", r"init engine \(.*?\) took (?P<seconds>[\d.]+) s"),
    ("engine", "LLM engine (v", r"Initializing a V\d LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)"),
)

# The life of one start.
START_ANCHOR = "non-default args:"  # vllm/entrypoints: the line of each start that names its options
READY_ANCHOR = "Application startup complete"  # uvicorn, once the API answers
# An orderly stop begins: vLLM's launcher (from 0.22 on), uvicorn. What dies afterwards was told to.
STOP_ANCHORS = ("shutdown triggered", "Shutting down")

# Request logging quotes what users wrote: such a line says nothing about the server, whatever words it contains.
QUOTING_PREFIXES = ("Received request", "Generated response")

# Exceptions of an orderly stop.
INTERRUPTIONS = (
    "KeyboardInterrupt",
    "SystemExit",
    "asyncio.exceptions.CancelledError",
    "concurrent.futures._base.CancelledError",
)
