#include "worker/step_gate/step_gate.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace llorch::worker {

base::Result<std::unique_ptr<StepGate>> StepGate::open(const std::filesystem::path& fifo) {
  const int fd = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return base::fail(base::io_error("open the step gate", fifo, errno));
  std::unique_ptr<StepGate> gate(new StepGate(fd));
  struct stat status {};
  if (::fstat(fd, &status) != 0) return base::fail(base::io_error("look at the step gate", fifo, errno));
  if (!S_ISFIFO(status.st_mode)) {
    return base::fail(base::ErrorCode::kIoError,
                      "the step gate " + fifo.string() + " is no FIFO; make one with mkfifo");
  }
  return gate;
}

StepGate::~StepGate() { ::close(fd_); }

bool StepGate::may_step() {
  if (!armed_.load()) return true;
  char byte = 0;
  for (;;) {
    const ssize_t taken = ::read(fd_, &byte, 1);
    if (taken >= 0) return true;  // 0: nobody holds it
    if (errno != EINTR) return errno != EAGAIN;
  }
}

}  // namespace llorch::worker
