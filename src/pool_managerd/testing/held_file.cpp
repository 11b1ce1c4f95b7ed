// Preloaded into a program whose file LLORCH_HELD_FILE lies on a mount that does not answer: who opens or renames it waits until nobody has
// the pipe LLORCH_HELD_GATE open for writing.
#undef _FORTIFY_SOURCE  // it would define open() as well
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

using Open = int (*)(const char*, int, ...);

void wait_at_gate(const char* path) {
  const char* held = std::getenv("LLORCH_HELD_FILE");
  const char* gate = std::getenv("LLORCH_HELD_GATE");
  if (held == nullptr || gate == nullptr || std::strcmp(path, held) != 0) return;
  const int pipe = reinterpret_cast<Open>(::dlsym(RTLD_NEXT, "open"))(gate, O_RDONLY | O_CLOEXEC);
  char byte = 0;
  while (::read(pipe, &byte, 1) > 0) {
  }
  ::close(pipe);
}

int open_behind_gate(const char* name, const char* path, int flags, mode_t mode) {
  wait_at_gate(path);
  return reinterpret_cast<Open>(::dlsym(RTLD_NEXT, name))(path, flags, mode);
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = takes_mode(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_behind_gate("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = takes_mode(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_behind_gate("open64", path, flags, mode);
}

int rename(const char* from, const char* to) noexcept {
  wait_at_gate(from);
  return reinterpret_cast<int (*)(const char*, const char*)>(::dlsym(RTLD_NEXT, "rename"))(from, to);
}

#pragma GCC visibility pop
}  // extern "C"
