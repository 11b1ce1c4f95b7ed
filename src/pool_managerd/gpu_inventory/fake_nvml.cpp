// A driver library for tests. FAKE_NVML="init=N;count=N;total=BYTES;free=BYTES;freeINDEX=BYTES;lost=INDEX" says what it
// reports; also unloaded=1 (the driver has gone), reset=INDEX (which needs one), xid=NUMBER (told once of device 0),
// uncorrected=N, throttle=BITS, celsius=N, busy=PERCENT and pid=N of a process that uses each device. If FAKE_NVML is
// "@FILE", what FILE holds at the time of each call counts.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

const char* settings() {
  const char* all = std::getenv("FAKE_NVML");
  if (all == nullptr || all[0] != '@') return all;
  static thread_local std::string text;
  text.clear();
  if (std::FILE* file = std::fopen(all + 1, "r")) {
    char buffer[512];
    text.assign(buffer, std::fread(buffer, 1, sizeof buffer, file));
    std::fclose(file);
  }
  return text.c_str();
}

long long setting(const char* name, long long absent) {
  const char* all = settings();
  if (all == nullptr) return absent;
  const std::string key = std::string(name) + "=";
  for (const char* at = all; at != nullptr; at = std::strchr(at, ';')) {
    if (*at == ';') ++at;
    if (std::strncmp(at, key.c_str(), key.size()) == 0) return std::atoll(at + key.size());
  }
  return absent;
}

constexpr int kGpuIsLost = 15, kResetRequired = 16, kUninitialized = 1, kTimeout = 10;
// A handle is the index plus one, so that it is never null.
unsigned long index_of(void* device) { return reinterpret_cast<unsigned long>(device) - 1; }

}  // namespace

extern "C" {
struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakePci {
  char legacy[16];
  unsigned numbers[5];
  char bus_id[32];
};

int nvmlInit_v2() { return static_cast<int>(setting("init", 0)); }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) {
  if (code == kResetRequired) return "GPU requires restart";
  return code == kGpuIsLost ? "GPU is lost" : "Driver Not Loaded";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  if (setting("unloaded", 0) != 0) return kUninitialized;
  *count = static_cast<unsigned>(setting("count", 2));
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned bytes) {
  std::snprintf(name, bytes, "Fake GPU %lu", index_of(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, FakeMemory* memory) {
  if (static_cast<long long>(index_of(device)) == setting("lost", -1)) return kGpuIsLost;
  if (static_cast<long long>(index_of(device)) == setting("reset", -1)) return kResetRequired;
  memory->total = static_cast<unsigned long long>(setting("total", 24LL << 30));
  const std::string of_this_one = "free" + std::to_string(index_of(device));
  memory->free = static_cast<unsigned long long>(setting(of_this_one.c_str(), setting("free", 20LL << 30)));
  memory->used = memory->total - memory->free;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, FakePci* pci) {
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02lX:00.0", index_of(device) + 1);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned bytes) {
  std::snprintf(text, bytes, "GPU-fake-%lu", index_of(device));
  return 0;
}
int nvmlDeviceGetTemperature(void*, unsigned, unsigned* celsius) {
  *celsius = static_cast<unsigned>(setting("celsius", 41));
  return 0;
}
struct FakeUtilization {
  unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void*, FakeUtilization* busy) {
  busy->gpu = static_cast<unsigned>(setting("busy", 37));
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 123'000;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void*, unsigned type, unsigned, unsigned long long* count) {
  *count = static_cast<unsigned long long>(type == 0 ? 3 : setting("uncorrected", 0));
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  *bits = static_cast<unsigned long long>(setting("throttle", 1));
  return 0;
}
struct FakeProcess {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned instances[2];
};
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, FakeProcess* processes) {
  const long long pid = setting("pid", 0);
  *count = pid == 0 ? 0 : 1;
  if (pid != 0) processes[0] = {static_cast<unsigned>(pid), 5ULL << 30, {0, 0}};
  return 0;
}
int nvmlEventSetCreate(void** set) {
  static int the_one = 0;
  *set = &the_one;
  return 0;
}
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void*, unsigned long long, void*) { return 0; }
struct FakeEvent {
  void* device;
  unsigned long long type, data;
  unsigned instances[2];
};
int nvmlEventSetWait_v2(void*, FakeEvent* event, unsigned) {
  static long long told = 0;
  const long long xid = setting("xid", 0);
  if (xid == 0 || xid == told) {
    if (xid == 0) told = 0;
    return kTimeout;
  }
  told = xid;
  *event = {reinterpret_cast<void*>(1UL), 8, static_cast<unsigned long long>(xid), {0, 0}};
  return 0;
}
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::snprintf(text, bytes, "555.42");
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return 0;
}
}
