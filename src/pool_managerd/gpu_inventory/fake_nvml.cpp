// A driver library for tests. FAKE_NVML="init=N;count=N;total=BYTES;free=BYTES;freeINDEX=BYTES;lost=INDEX" says what it
// reports.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

long long setting(const char* name, long long absent) {
  const char* all = std::getenv("FAKE_NVML");
  if (all == nullptr) return absent;
  const std::string key = std::string(name) + "=";
  for (const char* at = all; at != nullptr; at = std::strchr(at, ';')) {
    if (*at == ';') ++at;
    if (std::strncmp(at, key.c_str(), key.size()) == 0) return std::atoll(at + key.size());
  }
  return absent;
}

constexpr int kGpuIsLost = 15;
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
const char* nvmlErrorString(int code) { return code == kGpuIsLost ? "GPU is lost" : "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
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
  *celsius = 41;
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
