#pragma once
// The one table of errors: name, stable number, HTTP status, retriable, what it means.
// Numbers are retired, never reused. docs/guide/errors.md and the OpenAPI enum are generated from it (tools/gen_errors).
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace llorch::base {

// clang-format off
// X(Name, WIRE_NAME, number, http, retriable, text)
#define LLORCH_ERROR_TABLE(X)                                                                                            \
  /* requests */                                                                                                         \
  X(InvalidParams,           "INVALID_PARAMS",             1001, 400, false, "a field of the request is missing, malformed or out of range") \
  X(DeadlineUnmet,           "DEADLINE_UNMET",             1002, 400, false, "the deadline cannot be met")                \
  X(BudgetExceeded,          "BUDGET_EXCEEDED",            1003, 400, false, "the session's budget does not cover the request") \
  X(PayloadTooLarge,         "PAYLOAD_TOO_LARGE",          1004, 413, false, "the request is larger than the server reads") \
  X(UntrustedArtifact,       "UNTRUSTED_ARTIFACT",         1005, 400, false, "the bytes that were fetched are not those that were asked for") \
  X(MissingToken,            "MISSING_TOKEN",              1010, 401, false, "no bearer token was sent")                  \
  X(BadToken,                "BAD_TOKEN",                  1011, 401, false, "the bearer token is not valid")             \
  X(NonLoopbackWithoutToken, "NON_LOOPBACK_WITHOUT_TOKEN", 1012, 403, false, "a bind beyond loopback needs a token")      \
  X(Forbidden,               "FORBIDDEN",                  1013, 403, false, "the caller may not do this")                \
  X(NotFound,                "NOT_FOUND",                  1020, 404, false, "no such resource")                          \
  X(JobNotFound,             "JOB_NOT_FOUND",              1021, 404, false, "no job has this id")                        \
  X(ModelNotFound,           "MODEL_NOT_FOUND",            1022, 404, false, "the model reference resolves to nothing")   \
  X(WorkerNotFound,          "WORKER_NOT_FOUND",           1023, 404, false, "no worker has this id")                     \
  X(PoolNotFound,            "POOL_NOT_FOUND",             1024, 404, false, "no pool has this id")                       \
  X(MethodNotAllowed,        "METHOD_NOT_ALLOWED",         1025, 405, false, "the path exists, the method does not")      \
  X(Conflict,                "CONFLICT",                   1030, 409, false, "the request contradicts an earlier one or the current state") \
  X(VersionMismatch,         "VERSION_MISMATCH",           1031, 409, false, "engine or sampler versions would be mixed in a replica set") \
  X(ModelDeprecated,         "MODEL_DEPRECATED",           1032, 409, false, "the model is retired")                      \
  X(StreamOffsetGone,        "STREAM_OFFSET_GONE",         1040, 410, false, "the events after this offset are no longer held") \
  /* admission and placement */                                                                                         \
  X(QueueFull,               "QUEUE_FULL",                 1101, 429, true,  "the queue is full")                         \
  X(QueueFullDropLru,        "QUEUE_FULL_DROP_LRU",        1102, 429, true,  "dropped from a full queue for a newer job") \
  X(QuotaExceeded,           "QUOTA_EXCEEDED",             1103, 429, true,  "the caller submits more than it may, or the server keeps as many sessions as it may") \
  X(PoolUnready,             "POOL_UNREADY",               1110, 503, true,  "a pool exists but cannot serve this yet")   \
  X(PoolUnavailable,         "POOL_UNAVAILABLE",           1111, 503, true,  "no pool has room for this model")           \
  X(WorkerUnavailable,       "WORKER_UNAVAILABLE",         1112, 503, true,  "the worker cannot be reached")              \
  X(ModelIncompatible,       "MODEL_INCOMPATIBLE",         1113, 409, false, "no device here can run this model")         \
  X(InsufficientVram,        "INSUFFICIENT_VRAM",          1114, 409, true,  "the device has too little free memory")     \
  X(GpuUnavailable,          "GPU_UNAVAILABLE",            1115, 503, true,  "the device is missing or in error")         \
  X(ShuttingDown,            "SHUTTING_DOWN",              1116, 503, true,  "the process is stopping and takes no new work") \
  X(ServerBusy,              "SERVER_BUSY",                1117, 503, true,  "the process holds as many connections, requests or bytes of requests as it may") \
  X(StoreUnavailable,        "STORE_UNAVAILABLE",          1120, 503, true,  "the job store cannot commit")               \
  /* job outcomes */                                                                                                    \
  X(Cancelled,               "CANCELLED",                  1201, 499, false, "the job was cancelled")                     \
  X(Timeout,                 "TIMEOUT",                    1202, 504, false, "the job's time limit ran out")              \
  X(WorkerReset,             "WORKER_RESET",               1203, 500, true,  "the worker was lost while the job ran")     \
  X(WorkerTimeout,           "WORKER_TIMEOUT",             1204, 504, true,  "the worker stopped answering")              \
  X(WorkerStartFailed,       "WORKER_START_FAILED",        1205, 500, false, "the worker could not be started")           \
  X(WorkerStartTimeout,      "WORKER_START_TIMEOUT",       1206, 504, true,  "the worker did not become ready in time")   \
  X(RetryExhausted,          "RETRY_EXHAUSTED",            1207, 500, false, "every attempt failed")                      \
  X(PayloadLost,             "PAYLOAD_LOST",               1208, 500, true,  "the prompt was not kept across the restart") \
  X(ReplayDiverged,          "REPLAY_DIVERGED",            1209, 500, false, "the replay did not reproduce what was already sent") \
  X(QueueTimeout,            "QUEUE_TIMEOUT",              1210, 504, true,  "the job waited longer than jobs may")       \
  /* worker and engine at run time */                                                                                   \
  X(VramOom,                 "VRAM_OOM",                   1301, 500, false, "the device ran out of memory during the job") \
  X(CudaError,               "CUDA_ERROR",                 1302, 500, false, "the device reported an error")              \
  X(ModelLoadFailed,         "MODEL_LOAD_FAILED",          1303, 500, false, "the model could not be loaded")             \
  X(WorkerBusy,              "WORKER_BUSY",                1304, 503, true,  "the worker has no free slot")               \
  X(SelfTestFailed,          "SELF_TEST_FAILED",           1305, 500, false, "the start-up self-test did not reproduce its record") \
  X(Internal,                "INTERNAL",                   1999, 500, false, "a fault of ours")                           \
  /* environment */                                                                                                     \
  X(IoError,                 "IO_ERROR",                   1401, 500, false, "a file or socket operation failed")         \
  X(ConfigInvalid,           "CONFIG_INVALID",             1402, 400, false, "the configuration is not valid")            \
  X(PortInUse,               "PORT_IN_USE",                1403, 500, false, "the address is taken by another process")   \
  X(NoGpu,                   "NO_GPU",                     1404, 503, false, "no NVIDIA GPU and the CPU device was not asked for") \
  X(Unreachable,             "UNREACHABLE",                1405, 503, true,  "nothing answers at this address")           \
  X(AlreadyRunning,          "ALREADY_RUNNING",            1406, 409, false, "another process already owns this state directory") \
  X(InsufficientDisk,        "INSUFFICIENT_DISK",          1407, 409, true,  "the disk has too little room for the model") \
  /* files and formats */                                                                                               \
  X(CorruptFile,             "CORRUPT_FILE",               2001, 500, false, "the file contradicts its own format")       \
  X(UnsupportedFormatVersion,"UNSUPPORTED_FORMAT_VERSION", 2002, 500, false, "the file's format version is not supported") \
  X(UnsupportedQuantType,    "UNSUPPORTED_QUANT_TYPE",     2003, 500, false, "a tensor's type is not supported")          \
  X(UnsupportedTokenizer,    "UNSUPPORTED_TOKENIZER",      2004, 500, false, "the file's tokenizer is not supported")     \
  X(ConfigKeyMissing,        "CONFIG_KEY_MISSING",         2010, 500, false, "the model file lacks a required key")       \
  X(ConfigKeyInvalid,        "CONFIG_KEY_INVALID",         2011, 500, false, "a key of the model file has an impossible value, or may change the output and is not supported") \
  X(UnknownArchitecture,     "UNKNOWN_ARCHITECTURE",       2012, 500, false, "no model family has this architecture name") \
  X(FormatCannotExpress,     "FORMAT_CANNOT_EXPRESS",      2013, 500, false, "the file format to write has no way to say what the model needs") \
  X(MissingWeight,           "MISSING_WEIGHT",             2020, 500, false, "the model file lacks a required tensor")    \
  X(UnclaimedWeight,         "UNCLAIMED_WEIGHT",           2021, 500, false, "the model file holds a tensor nothing uses") \
  X(WeightShapeMismatch,     "WEIGHT_SHAPE_MISMATCH",      2022, 500, false, "a tensor has another shape than the configuration says") \
  X(WeightDTypeUnsupported,  "WEIGHT_DTYPE_UNSUPPORTED",   2023, 500, false, "no kernel takes a tensor of this type here") \
  X(WeightValueUnsupported,  "WEIGHT_VALUE_UNSUPPORTED",   2024, 500, false, "a tensor holds a value that the type asked for cannot") \
  /* plans */                                                                                                           \
  X(UnsupportedOpcode,           "UNSUPPORTED_OPCODE",             2101, 500, false, "the backend has no adapter for an instruction") \
  X(UnsupportedTensorRank,       "UNSUPPORTED_TENSOR_RANK",        2102, 500, false, "a tensor has more dimensions than the contract allows") \
  X(InvalidParamBlockABI,        "INVALID_PARAM_BLOCK_ABI",        2103, 500, false, "a parameter block has the wrong version or size") \
  X(ParamBlockOpcodeMismatch,    "PARAM_BLOCK_OPCODE_MISMATCH",    2104, 500, false, "a parameter block belongs to another opcode") \
  X(MissingParamBlock,           "MISSING_PARAM_BLOCK",            2105, 500, false, "an instruction needs a parameter block and names none") \
  X(UnknownParamBlockId,         "UNKNOWN_PARAM_BLOCK_ID",         2106, 500, false, "an instruction names a parameter block the plan lacks") \
  X(BatchUnsupported,            "BATCH_UNSUPPORTED",              2107, 500, false, "an adapter cannot run the requested batch") \
  X(InvalidInstructionBinding,   "INVALID_INSTRUCTION_BINDING",    2108, 500, false, "an instruction has the wrong number of inputs or outputs") \
  X(InvalidRegisterRef,          "INVALID_REGISTER_REF",           2109, 500, false, "an instruction names a register the plan lacks") \
  X(RegisterRedefined,           "REGISTER_REDEFINED",             2110, 500, false, "a register is written twice")            \
  X(RegisterReadBeforeWrite,     "REGISTER_READ_BEFORE_WRITE",     2111, 500, false, "a register is read before it is written") \
  X(InvalidRegisterSpec,         "INVALID_REGISTER_SPEC",          2112, 500, false, "a register has no size or an unknown type") \
  X(InvalidWeightRefCount,       "INVALID_WEIGHT_REF_COUNT",       2113, 500, false, "an instruction has the wrong number of weights") \
  X(InvalidWeightRefIndex,       "INVALID_WEIGHT_REF_INDEX",       2114, 500, false, "an instruction names a weight the plan lacks") \
  X(InvalidLiveness,             "INVALID_LIVENESS",               2115, 500, false, "the liveness map contradicts the instructions") \
  X(InvalidPeakRegisters,        "INVALID_PEAK_REGISTERS",         2116, 500, false, "the peak register count contradicts the liveness map") \
  X(UnknownStateDescriptorId,    "UNKNOWN_STATE_DESCRIPTOR_ID",    2117, 500, false, "an instruction names a state the plan lacks") \
  X(DuplicateStateDescriptorId,  "DUPLICATE_STATE_DESCRIPTOR_ID",  2118, 500, false, "two states have one id")                 \
  X(InvalidStateAlignment,       "INVALID_STATE_ALIGNMENT",        2119, 500, false, "a state's alignment is not a power of two") \
  X(InvalidStateLifecycleAction, "INVALID_STATE_LIFECYCLE_ACTION", 2120, 500, false, "the lifecycle matrix forbids this action") \
  X(InvalidBatchSize,            "INVALID_BATCH_SIZE",             2121, 500, false, "the step's rows exceed what was planned") \
  X(InvalidVisionStageHandoff,   "INVALID_VISION_STAGE_HANDOFF",   2122, 500, false, "what the vision plan writes is not what the prefill plan reads") \
  X(OutOfDeviceMemory,           "OUT_OF_DEVICE_MEMORY",           2201, 500, false, "an allocation on the device failed")     \
  X(ContextExhausted,            "CONTEXT_EXHAUSTED",              2202, 500, false, "the slot has no room for another token")
// clang-format on

enum class ErrorCode : std::uint16_t {
#define LLORCH_X(name, wire, number, http, retriable, text) k##name = number,
  LLORCH_ERROR_TABLE(LLORCH_X)
#undef LLORCH_X
};

struct ErrorInfo {
  ErrorCode code;
  std::string_view name;  // upper-snake, stable on the wire
  int http_status;
  bool retriable;
  std::string_view text;  // what it means, one clause, for the docs
};

inline constexpr auto kErrorTable = std::to_array<ErrorInfo>({
#define LLORCH_X(name, wire, number, http, retriable, text) {ErrorCode::k##name, wire, http, retriable, text},
    LLORCH_ERROR_TABLE(LLORCH_X)
#undef LLORCH_X
});

// The table's row of `code`; every enumerator has one.
const ErrorInfo& info(ErrorCode code);
std::optional<ErrorCode> error_code_from_name(std::string_view wire_name);

}  // namespace llorch::base
